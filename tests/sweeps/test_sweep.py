"""Whole sweeps of tiny runs: trained, interrupted, gone on with, listed, failed."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

import kmyriad
from kmyriad.cli import main
from kmyriad.runs.run import list_runs
from kmyriad.sweeps.conduct import State, Task
from kmyriad.sweeps.plan import make_plan
from kmyriad.sweeps.sweep import is_done
from kmyriad.sweeps.table import Steps, SweepTable
from kmyriad.sweeps.worker import Outcome

TINY = {"replicas": 8, "horizon": 20, "rollout_steps": 5, "trunk_hidden": [8], "agent_hidden": 8, "neighbours": 2}
TINY |= {"critic_hidden": [8], "update_epochs": 1}

FILE = """
[pretrain.pop]
env = "point-maze"
agents = 2
replicas = 8
horizon = 20
rollout_steps = 5
trunk_hidden = [8]
agent_hidden = 8
neighbours = 2
critic_hidden = [8]
update_epochs = 1
total_steps = 4e3
checkpoint_every = 3
grid = { seed = [0, 1] }

[jumpstart.best]
source = "pop"
where = { seed = 1 }
goal = [1, -2]
replicas = 4
rollout_steps = 5
selection_steps = 60
total_steps = 400
critic_epochs = 1
"""


def sweep_command(folder):
    command = [sys.executable, "-m", "kmyriad", "sweep", "many.toml", "--processes", "2"]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def test_a_sweep_that_is_interrupted_goes_on_and_computes_the_same(tmp_path):
    (tmp_path / "many.toml").write_text(FILE)
    stopped = sweep_command(tmp_path)
    rows = tmp_path / "runs" / "many" / "pop-seed-0" / "metrics.jsonl"
    until = time.monotonic() + 60
    while not (rows.exists() and rows.read_text().count("\n") > 8) and time.monotonic() < until:
        time.sleep(0.02)
    stopped.send_signal(signal.SIGINT)
    said = stopped.communicate()[1]
    assert stopped.returncode == 130, said
    assert "kmyriad: stopped; go on with the same command" in said
    assert "Traceback" not in said
    again = sweep_command(tmp_path)
    said = again.communicate()[1]
    assert again.returncode == 0, said
    assert "all 3 runs are done; compare them with:\n  kmyriad compare runs/many/*\n" in said
    runs = {run.name: run for run in list_runs(tmp_path / "runs" / "many")}
    assert sorted(runs) == ["best-seed-1", "pop-seed-0", "pop-seed-1"]
    assert all(run.is_finished for run in runs.values())
    settings = TINY | {"agents": 2, "total_steps": 4000, "checkpoint_every": 3, "threads": 1}
    alone = kmyriad.pretrain("point-maze", out=tmp_path / "alone", **settings)
    timings = ("seconds", "steps_per_second")
    plain = [[{k: v for k, v in row.items() if k not in timings} for row in run.metrics()]
             for run in (alone, runs["pop-seed-0"])]  # fmt: skip
    assert plain[0] == plain[1]
    assert runs["best-seed-1"].jumpstart.run.seed == 1


CONTENT = {"pretrain": {"a": TINY | {"env": "point-maze", "agents": 2, "total_steps": 200, "grid": {"seed": [0]}}}}


def test_a_sweep_from_python_returns_its_runs_and_does_nothing_twice(tmp_path, capfd):
    (run,) = kmyriad.sweep(CONTENT, folder=tmp_path / "runs", processes=1)
    assert (run.name, run.is_finished) == ("a-seed-0", True)
    changed = run.metrics_path.stat().st_mtime_ns
    assert kmyriad.sweep(CONTENT, folder=tmp_path / "runs", processes=1) == [run]
    assert run.metrics_path.stat().st_mtime_ns == changed
    longer = {"pretrain": {"a": CONTENT["pretrain"]["a"] | {"total_steps": 400}}}
    job = make_plan(longer, tmp_path / "runs").jobs[0]
    assert not is_done(job, run.path)
    for steps in (200, 400):  # finished or not, it is not what is asked for
        other = {"pretrain": {"a": CONTENT["pretrain"]["a"] | {"total_steps": steps, "neighbours": 3}}}
        with pytest.raises(
            kmyriad.UsageError, match=r"a-seed-0 was started with neighbours = 2 and cannot go on with 3"
        ):
            kmyriad.sweep(other, folder=tmp_path / "runs", processes=1)
    assert "a-seed-0 done" in capfd.readouterr().err


def test_what_failed_in_its_process_is_told_with_its_sentence(tmp_path, capfd):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a-seed-0").touch()  # no folder can be made there
    with pytest.raises(kmyriad.TrainingStoppedError, match=r"1 of 1 runs failed, .* a-seed-0: cannot create a run in"):
        kmyriad.sweep(CONTENT, folder=tmp_path / "runs", processes=1)
    assert "a-seed-0 failed: cannot create a run in" in capfd.readouterr().err


def test_what_would_run_is_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.toml").write_text(FILE)
    main(["sweep", "many.toml", "--list"])
    shown = capsys.readouterr().out
    assert "runs/many/pop-seed-1" in shown
    assert "0/4,000" in shown
    assert "pop-seed-1" in shown.split("best-seed-1")[1].splitlines()[0]
    assert os.listdir(tmp_path) == ["many.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml"], "cannot read nowhere.toml"),
        (["many.toml", "--processes", "0"], "processes must be between 1 and 100000; got 0"),
        (["many.toml", "--retries", "-1"], "retries must be between 0 and 100000; got -1"),
        (["many.toml", "--on", "slurm"], "submitit cannot use slurm"),
        (["many.toml", "--on", "clouds"], "invalid choice"),
        (["many.toml", "--folder", "many.toml"], "cannot make the folder many.toml/.sweep"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.toml").write_text(FILE)
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", *arguments])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def drawn(tasks, steps, terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    with SweepTable({name: lambda name=name: steps[name] for name in steps}, console) as table:
        table.show(tasks)
        steps["a"] = Steps(500, 1000, "entropy 2.00")
        table._looked = table._line = -1e9
        table.show(tasks)
        return out.getvalue(), table.summary(tasks)


def test_the_table_shows_what_runs_what_failed_and_how_long_it_takes():
    tasks = [Task(name, "m:f", {}) for name in "abcd"]
    tasks[0].state, tasks[0].attempts = State.RUNNING, 2
    tasks[1].state, tasks[1].outcome = State.FAILED, Outcome(error="the [disk] is full")
    tasks[2].state = State.DONE
    steps = {"a": Steps(0, 1000), "b": Steps(10, 1000), "c": Steps(1000, 1000), "d": Steps(0, 1000)}
    shown, summary = drawn(tasks, dict(steps), terminal=True)
    assert "b failed: the [disk] is full" in shown
    assert "running (2. time)" in shown
    assert "500/1,000" in shown
    assert "entropy 2.00" in shown
    assert summary.startswith("1 of 4 runs done, 1 running, 1 waiting, 1 failed; 1,510/4,000 steps, ")
    assert summary.endswith(" left")
    plain, _ = drawn(tasks, dict(steps), terminal=False)
    assert plain.splitlines()[0] == "b failed: the [disk] is full"
    assert "1 of 4 runs done" in plain.splitlines()[1]


def test_tasks_without_steps_and_more_of_them_than_rows():
    tasks = [Task(f"t{index}", "m:f", {}) for index in range(40)]
    out = io.StringIO()
    with SweepTable({}, Console(file=out, force_terminal=True, width=100, color_system=None)) as table:
        table.show(tasks)
        assert table.summary(tasks) == "0 of 40 runs done, 40 waiting"
    assert "and 16 more" in out.getvalue()
