"""What a run writes down, and that nothing that goes wrong with the writing ends it."""

import errno
import json
import os
import shutil
import struct
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

import kmyriad
from kmyriad.objective.rewards import rewards_of
from kmyriad.runs import tensor_file
from kmyriad.runs.checkpoints import checkpoint_iterations
from kmyriad.runs.logger import Board
from kmyriad.runs.state import load_last_horizon

ITERATION = 8 * 12
SMALL = {"agents": 2, "replicas": 8, "horizon": 12, "rollout_steps": None, "total_steps": 5 * ITERATION, "threads": 1}
SMALL |= {"trunk_hidden": (16,), "agent_hidden": 8}
NOT_WRITTEN = "TensorBoard's files are no longer written: "


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def before_iteration(number, act):
    """An objective that does something on the way: `act()`, when iteration `number` is about to be written down."""
    calls = []

    def objective(pool, config):
        calls.append(None)
        if len(calls) == number:
            act()
        return rewards_of(pool, config)

    return objective


def on_board(run):
    """What TensorBoard shows: (iteration, value) pairs by name."""
    board = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {name: [(one.step, one.value) for one in board.Scalars(name)] for name in board.Tags()["scalars"]}


def test_tensorboard_shows_every_number_of_every_row(tmp_path):
    kmyriad.pretrain("point-maze", out=tmp_path / "run", **(SMALL | {"total_steps": 2 * ITERATION}))
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=4 * ITERATION)
    shown, rows = on_board(run), run.metrics()
    assert set(shown) == {name for name, value in rows[0].items() if isinstance(value, int | float)}
    assert {"entropy", "std", "env_steps", "seconds"} <= set(shown)
    for name, points in shown.items():
        told = [row for row in rows if name in row]
        assert [step for step, _ in points] == [row["iteration"] for row in told]
        assert [value for _, value in points] == [np.float32(row[name]) for row in told]
    assert [step for step, _ in shown["entropy"]] == [1, 2, 3, 4]


def test_tensorboard_forgets_what_a_resume_computes_again(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    board = Board(run, 2, pytest.fail)
    board.add(3, {"entropy": 0.25, "iteration": 3})
    assert [step for step, _ in on_board(run)["entropy"]] == [1, 2, 3]
    assert on_board(run)["entropy"][-1] == (3, 0.25)


@pytest.mark.parametrize("trouble", ["vanished", "full", "file", "not installed"])
def test_without_tensorboard_a_run_goes_on_and_says_so_once(trouble, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "run" / "tensorboard"
    objective = rewards_of
    if trouble == "vanished":
        objective = before_iteration(3, lambda: shutil.rmtree(folder))
    elif trouble == "full":
        objective = before_iteration(3, lambda: monkeypatch.setattr(RecordWriter, "write", no_space))
    elif trouble == "file":
        folder.parent.mkdir()
        folder.touch()
    else:
        monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", objective=objective, **SMALL)
    monkeypatch.undo()
    told = capfd.readouterr().err
    assert told.count(NOT_WRITTEN) == 1
    assert "Traceback" not in told
    assert len(told.splitlines()) == 3  # the run's folder, this sentence and the last iteration
    assert [row["iteration"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert run.is_finished
    if trouble == "full":
        assert "No space left on device" in told
        assert [step for step, _ in on_board(run)["entropy"]] == [1, 2]
    if trouble == "vanished":
        assert not folder.exists()


def test_metrics_that_cannot_be_written_do_not_end_a_run(tmp_path, capfd):
    metrics = tmp_path / "run" / "metrics.jsonl"

    def take_away():
        metrics.rename(tmp_path / "kept.jsonl")
        metrics.mkdir()

    kmyriad.pretrain("point-maze", out=tmp_path / "run", objective=before_iteration(3, take_away), **SMALL)
    told = capfd.readouterr().err
    for iteration in (3, 4, 5):
        assert told.count(f"metrics of iteration {iteration} not saved: cannot write the metrics of iteration") == 1
    assert checkpoint_iterations(tmp_path / "run" / "checkpoints") == [5, 4, 3]


def disk_with_room_for(count, monkeypatch, number=errno.ENOSPC):
    """No more than `count` checkpoints fit on it. Returns the folder's iterations at each refusal, as they come."""
    real, refusals = tensor_file.write_atomically, []

    def write(path, data):
        there = checkpoint_iterations(path.parent)
        if path.name.startswith("iteration") and len(there) >= count:
            refusals.append(there)
            raise OSError(number, os.strerror(number))
        real(path, data)

    monkeypatch.setattr(tensor_file, "write_atomically", write)
    return refusals


def test_a_full_disk_costs_the_older_checkpoints_and_not_the_new_one(tmp_path, monkeypatch, capfd):
    refusals = disk_with_room_for(2, monkeypatch)
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    assert refusals == [[2, 1], [3, 2], [4, 3]]  # each time all but the newest went, and there was room
    assert checkpoint_iterations(run.checkpoints) == [5, 4]
    assert "not saved" not in capfd.readouterr().err
    monkeypatch.undo()
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **SMALL)
    for name, array in vars(load_last_horizon(whole)).items():
        np.testing.assert_array_equal(getattr(load_last_horizon(run), name), array)
    newest = "checkpoints/iteration-000005.safetensors"
    assert (run.path / newest).read_bytes() == (whole.path / newest).read_bytes()


def test_a_disk_full_of_other_things_leaves_the_last_good_checkpoint(tmp_path, monkeypatch, capfd):
    refusals = disk_with_room_for(1, monkeypatch)
    with pytest.raises(kmyriad.UsageError, match=r"cannot write .*iteration-000005.*No space left on device"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    assert refusals == [[1]] * 8  # every one was tried twice
    assert checkpoint_iterations(tmp_path / "run" / "checkpoints") == [1]
    told = capfd.readouterr().err
    assert [told.count(f"checkpoint of iteration {number} not saved") for number in range(1, 6)] == [0, 1, 1, 1, 1]


def test_what_is_no_full_disk_costs_no_checkpoint(tmp_path, monkeypatch):
    refusals = disk_with_room_for(2, monkeypatch, errno.EIO)
    with pytest.raises(kmyriad.UsageError, match=r"cannot write .*iteration-000005.*Input/output error"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    assert refusals == [[2, 1]] * 3
    assert checkpoint_iterations(tmp_path / "run" / "checkpoints") == [2, 1]


@pytest.fixture
def wandb(monkeypatch):
    """The real library, which keeps what it would send."""
    library = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    library.teardown()  # it may have been set up by another test, and would not look at the mode again
    yield library
    library.teardown()


def records_in(path):
    """The records of a file of LevelDB's log format: blocks of 32 KiB, pieces with checksum, length and kind."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:  # no room for another piece in this block
            at += 32_768 - at % 32_768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if at > len(data):  # not written to its end yet
            return
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def finished_records(path):
    """What is in a file of its; it goes on writing for a moment after a session is finished."""
    from wandb.proto.wandb_internal_pb2 import Record

    for _ in range(100):
        records = [Record.FromString(data) for data in records_in(path)]
        if any(record.HasField("exit") for record in records):
            return records
        time.sleep(0.1)
    return records


def kept_by_wandb(run):
    """What it would send, session by session: (id, project, settings, {iteration: numbers})."""
    sessions = []
    for path in sorted(run.path.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        records, rows = finished_records(path), {}
        for record in records:
            row = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
            if row:
                rows[row["_step"]] = row
        begun = next(record.run for record in records if record.HasField("run"))
        settings = {update.key: json.loads(update.value_json) for update in begun.config.update}
        sessions.append((begun.run_id, begun.project, settings, rows))
    return sessions


def test_wandb_has_every_number_of_every_row_under_one_id(tmp_path, wandb):
    first = SMALL | {"total_steps": 2 * ITERATION, "wandb": "explorers"}
    kmyriad.pretrain("point-maze", out=tmp_path / "run", **first)
    time.sleep(1.1)  # its folders are named by the second
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=3 * ITERATION)
    (begun, resumed), rows = kept_by_wandb(run), run.metrics()
    assert begun[0] == resumed[0]
    assert begun[1] == "explorers"
    assert begun[2]["population"]["agents"] == 2
    assert [*begun[3], *resumed[3]] == [1, 2, 3]
    for row in rows:
        sent = (begun[3] | resumed[3])[row["iteration"]]
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        assert {name: sent[name] for name in numbers} == numbers
    off = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=4 * ITERATION, wandb="")
    assert len(kept_by_wandb(off)) == 2


@pytest.mark.parametrize("trouble", ["not installed", "no account", "breaks down", "cannot finish"])
def test_without_wandb_a_run_goes_on_and_says_so_once(trouble, tmp_path, monkeypatch, capfd):
    def fail(*_, **__):
        raise RuntimeError("api_key not configured (no-tty)\ncall wandb login")

    session = SimpleNamespace(log=fail if trouble == "breaks down" else lambda *_, **__: None, finish=fail)
    stand_in = SimpleNamespace(Settings=dict, init=fail if trouble == "no account" else lambda **_: session)
    monkeypatch.setitem(sys.modules, "wandb", None if trouble == "not installed" else stand_in)
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", wandb="explorers", **SMALL)
    assert run.is_finished
    said = " ".join(capfd.readouterr().err.split())
    why = "it is not installed; install it with: pip install 'kmyriad[wandb]'"
    why = why if trouble == "not installed" else "api_key not configured (no-tty)"
    assert said.count(f"nothing is sent to Weights & Biases: {why}") == 1
    assert said.count("Weights & Biases") == 1
    assert "Traceback" not in said
