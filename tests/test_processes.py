"""Many processes that train one run, started by torchrun as users start them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad import cli, torchrun
from kmyriad.errors import UsageError
from kmyriad.processes import (
    Share,
    agreed,
    divided,
    gathered,
    gathered_together,
    largest,
    shared_out,
    summed,
)
from kmyriad.runs.state import load_population

ROOT = Path(__file__).parents[1]
POINT = ["point-maze", "--agents", "2", "--replicas", "8", "--horizon", "20"]
RULES = {
    "actor_critic": ["--rollout-steps", "10", "--total-steps", "160"],
    "reinforce": ["--update", "reinforce", "--rollout-steps", "None", "--total-steps", "320"],
    "trust_region": ["--update", "trust_region", "--rollout-steps", "None", "--total-steps", "320"],
}
"""Two iterations each: rounding has not grown yet."""
SHARED_OUT = ("entropy_per_agent", "kl_between_agents", "entropy_xy", "information")
"""Metrics whose neighbours are looked up in parts, after some horizons."""


def start(processes, *arguments, options=(), program=("-m", "kmyriad")):
    """`kmyriad` in so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [*options, *map(str, program), *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process, timeout=120):
    """(exit code, what was said)."""
    try:
        said, _ = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said


def run_on(processes, *arguments):
    if processes == 1:
        cli.main([*map(str, arguments)])
        return ""
    code, said = finish(start(processes, *arguments))
    assert code == 0, said
    return said


def assert_close(one, other, atol=1e-4):
    """Weights, and what was written down, of two runs."""
    for name, tensor in load_population(one).state_dict().items():
        torch.testing.assert_close(tensor, load_population(other).state_dict()[name], rtol=1e-3, atol=atol)
    rows = [kmyriad.open_run(path).metrics() for path in (one, other)]
    assert len(rows[0]) == len(rows[1]) > 0
    for here, there in zip(*rows, strict=True):
        assert here.keys() == there.keys()
        for name in {"entropy", "std", "update_kl", "gradient_norm", *SHARED_OUT} & here.keys():
            assert here[name] == pytest.approx(there[name], rel=1e-2, abs=1e-4), name


@pytest.mark.parametrize("rule", RULES)
def test_two_processes_learn_what_one_does(rule, tmp_path):
    said = run_on(2, "pretrain", *POINT, *RULES[rule], "--out", tmp_path / "two")
    assert said.count("done; look at it with") == 1, "one process talks"
    run_on(1, "pretrain", *POINT, *RULES[rule], "--out", tmp_path / "one")
    assert_close(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("env", ["ant-maze", "HalfCheetah-v5"])
def test_four_processes_learn_what_one_does(env, tmp_path):
    settings = ["pretrain", env, "--agents", "2", "--replicas", "16", "--horizon", "20", *RULES["actor_critic"]]
    settings[-1] = "320"
    for processes in (1, 2, 4):
        run_on(processes, *settings, "--out", tmp_path / str(processes))
    assert_close(tmp_path / "1", tmp_path / "2", atol=2e-3)
    assert_close(tmp_path / "1", tmp_path / "4", atol=2e-3)


def test_a_run_goes_on_on_another_number_of_processes(tmp_path):
    """Segments end in mid-episode: the replicas' states are those of all processes."""
    settings = ["--agents", "2", "--replicas", "8", "--horizon", "20", "--rollout-steps", "10"]
    for number, env in enumerate(["point-maze", "tests.walk_env:Walk"]):  # saved, and played again
        one, moved = tmp_path / f"one-{number}", tmp_path / f"moved-{number}"
        run_on(1, "pretrain", env, *settings, "--total-steps", 160, "--out", one)
        run_on(2, "pretrain", env, *settings, "--total-steps", 80, "--out", moved)
        run_on(1, "pretrain", "--out", moved, "--resume", "--total-steps", 160)
        assert_close(one, moved)


def test_a_jump_start_in_two_processes(tmp_path):
    run_on(1, "pretrain", *POINT, *RULES["actor_critic"], "--out", tmp_path / "source")
    settings = ["--goal", "1.5", "0.5", "--replicas", "8", "--rollout-steps", "10", "--selection-steps", "800"]
    settings += ["--total-steps", "960"]
    for processes in (1, 2):
        out = tmp_path / str(processes)
        run_on(processes, "jumpstart", tmp_path / "source", *settings, "--out", out)
    one, two = (load_population(tmp_path / str(processes)).state_dict() for processes in (1, 2))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-3, atol=1e-4)
    chosen = [json.loads((tmp_path / name / "selection.json").read_text()) for name in ("1", "2")]
    assert chosen[0] == chosen[1]


def workers_of(process):
    """The processes that torchrun has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            environment = (status.parent / "environ").read_bytes()
        except OSError:
            continue
        if int(lines["PPid"]) == process.pid and b"LOCAL_RANK=" in environment:
            found.append(int(status.parent.name))
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_one_that_is_killed_ends_the_others_and_torchrun_goes_on(tmp_path):
    """Killed with -9 after a checkpoint; torchrun starts all again, and they end where they would have."""
    settings = [*POINT, "--rollout-steps", "10", "--total-steps", str(80 * 30), "--checkpoint-every", "2"]
    process = start(2, "pretrain", *settings, "--out", tmp_path / "run", options=["--max-restarts", "1"])
    wait_for(lambda: len(list((tmp_path / "run" / "checkpoints").glob("*"))) > 1)
    before = time.monotonic()
    os.kill(workers_of(process)[-1], signal.SIGKILL)
    code, said = finish(process)
    assert code == 0, said
    assert time.monotonic() - before < 60
    run = kmyriad.open_run(tmp_path / "run")
    assert run.is_finished
    assert [row["iteration"] for row in run.metrics()] == list(range(1, 31))


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_without_restarts_the_others_end_with_one_sentence(tmp_path):
    settings = [*POINT, "--rollout-steps", "10", "--total-steps", "1e9"]
    process = start(2, "pretrain", *settings, "--out", tmp_path / "run")
    wait_for((tmp_path / "run" / "metrics.jsonl").exists)
    workers = workers_of(process)
    assert len(workers) == 2
    before = time.monotonic()
    os.kill(workers[1], signal.SIGKILL)
    code, said = finish(process)
    assert code != 0
    assert time.monotonic() - before < 30
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers), "nobody is left behind"
    ours = [line for line in said.splitlines() if line.startswith("kmyriad: ")]
    assert len(ours) == 1, said
    noticed = ("process 0 of 2 has lost another one", "torchrun ends this process")  # whoever is first
    assert any(sentence in ours[0] for sentence in noticed)


SPOILED = """
import os, sys
from importlib import import_module
import kmyriad
from kmyriad import cli
module = import_module("kmyriad.updates.actor_critic")
loss = module._loss
if os.environ["RANK"] == "1":
    module._loss = lambda *arguments: (loss(*arguments)[0] * float("nan"), loss(*arguments)[1])
cli.main(sys.argv[1:])
"""


def test_a_bad_gradient_in_one_process_is_skipped_by_all(tmp_path):
    """And three in a row stop them all; none waits for an update that another one left out."""
    script = tmp_path / "spoiled.py"
    script.write_text(SPOILED)
    settings = ["pretrain", *POINT, "--rollout-steps", "10", "--total-steps", "1e6", "--out", tmp_path / "run"]
    code, said = finish(start(2, *settings, program=[script]))
    assert code != 0
    assert "the gradient was not finite in 3 iterations in a row, up to iteration 3" in said
    assert kmyriad.open_run(tmp_path / "run").last_row()["skipped_updates"] == 3


def test_what_cannot_be_shared_out_is_one_sentence(tmp_path):
    code, said = finish(start(3, "pretrain", *POINT, "--out", tmp_path / "run"))
    assert code != 0
    assert "4 replicas of each agent cannot be split evenly over 3 processes; use --replicas 6" in said
    assert not (tmp_path / "run").exists()


def test_shares_are_places_of_every_agent():
    whole = np.arange(24).reshape(2, 12)
    for ranks in (1, 2, 3, 4):
        shares = [Share(2, 12, rank, ranks) for rank in range(ranks)]
        numbers = [share.numbers.reshape(2, -1) for share in shares]
        np.testing.assert_array_equal(np.concatenate(numbers, axis=1), whole)
        for share, own in zip(shares, numbers, strict=True):
            np.testing.assert_array_equal(share.own(torch.from_numpy(whole)), own)
    with pytest.raises(UsageError, match="12 replicas of each agent cannot be split evenly over 5 processes"):
        Share(2, 12, 0, 5)


def test_alone_nothing_is_exchanged():
    tensor = torch.arange(6.0).view(2, 3)
    share = Share.here(2, 3)
    assert share.gather(tensor) is share.own(tensor) is tensor
    assert share.gather_rows(tensor.numpy()) is not None
    assert gathered(tensor) == [tensor]
    assert gathered_together([tensor, tensor]) == [[tensor, tensor]]
    assert share.gather_all({"one": tensor})["one"] is tensor
    assert shared_out(float, 3) == [0, 1, 2]
    summed([tensor])
    assert largest(tensor) is tensor
    assert divided(lambda rows: rows.sum(1), tensor).tolist() == [3, 12]
    assert agreed("a path") == "a path"


def test_what_torchrun_tells(monkeypatch):
    assert not torchrun.is_one_of_many()
    assert torchrun.talks()
    assert (torchrun.threads(None), torchrun.threads(3)) == (None, 3)
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    assert torchrun.is_one_of_many()
    assert not torchrun.talks()
    assert (torchrun.threads(None), torchrun.threads(3)) == (4, 3)
    assert torchrun.restarts() == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert torchrun.restarts() == 1
    with pytest.raises(UsageError, match="started the processes again, and which run they were at is not known"):
        kmyriad.pretrain("point-maze")
