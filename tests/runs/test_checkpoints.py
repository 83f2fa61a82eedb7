"""Folders of checkpoints: the newest good one is found, old ones go, and a kill at any moment leaves one."""

import subprocess
import sys
from pathlib import Path

import pytest

from kmyriad.errors import UsageError
from kmyriad.runs.checkpoints import checkpoint_iterations, checkpoint_path, newest_checkpoint, prune_checkpoints
from kmyriad.runs.tensor_file import CheckpointError, write_tensor_file
from tests.runs.test_tensor_file import assert_same, example

REPOSITORY = Path(__file__).parents[2]


def test_paths_sort_and_refuse_negative_iterations(tmp_path):
    assert checkpoint_path(tmp_path, 123) == tmp_path / "iteration-000123.safetensors"
    with pytest.raises(UsageError, match="-1"):
        checkpoint_path(tmp_path, -1)


def test_only_checkpoint_files_count(tmp_path):
    for name in (
        "iteration-1.safetensors",
        "iteration-0000007.safetensors",
        ".iteration-000009.safetensors.1.tmp",
        "other",
    ):
        (tmp_path / name).touch()
    (tmp_path / "iteration-000008.safetensors").mkdir()
    assert checkpoint_iterations(tmp_path) == []
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "missing") is None
    for iteration in (999_999, 1_000_000, 3):
        checkpoint_path(tmp_path, iteration).touch()
    assert checkpoint_iterations(tmp_path) == [1_000_000, 999_999, 3]


def test_newest_falls_back_to_older_ones_and_says_so_once(tmp_path, capfd):
    for iteration in (1, 2, 3):
        write_tensor_file(checkpoint_path(tmp_path, iteration), example(iteration))

    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.iteration == 3
    assert_same(newest.content, example(3))
    assert capfd.readouterr().err == ""

    checkpoint_path(tmp_path, 3).write_bytes(b"")
    data = bytearray(checkpoint_path(tmp_path, 2).read_bytes())
    data[-1] ^= 1
    checkpoint_path(tmp_path, 2).write_bytes(data)
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.iteration == 1
    told = capfd.readouterr().err.splitlines()
    assert [line.startswith("skipped: ") for line in told] == [True, True]
    assert [name in line for name, line in zip(("000003", "000002"), told, strict=True)] == [True, True]
    assert_same(newest.content, example(1))
    assert newest_checkpoint(tmp_path).iteration == 1
    assert capfd.readouterr().err == ""

    checkpoint_path(tmp_path, 1).write_bytes(b"")
    with pytest.raises(CheckpointError, match="none of the 3 checkpoints"):
        newest_checkpoint(tmp_path)


def test_prune_keeps_the_newest_and_clears_leftovers(tmp_path):
    for iteration in range(5):
        write_tensor_file(checkpoint_path(tmp_path, iteration), example(iteration))
    (tmp_path / ".iteration-000009.safetensors.99999999.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    prune_checkpoints(tmp_path, 9)
    assert checkpoint_iterations(tmp_path) == [4, 3, 2, 1, 0]
    prune_checkpoints(tmp_path, 2)
    assert checkpoint_iterations(tmp_path) == [4, 3]
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("iteration")) == ["notes.txt"]
    with pytest.raises(UsageError, match="at least 1; got 0"):
        prune_checkpoints(tmp_path, 0)


def test_prune_never_removes_the_last_good_one(tmp_path):
    for iteration in range(5):
        write_tensor_file(checkpoint_path(tmp_path, iteration), example(iteration))
    for iteration in (2, 3, 4):
        checkpoint_path(tmp_path, iteration).write_bytes(b"")
    prune_checkpoints(tmp_path, 1)
    assert checkpoint_iterations(tmp_path) == [4, 3, 2, 1]
    checkpoint_path(tmp_path, 1).write_bytes(b"")
    prune_checkpoints(tmp_path, 1)
    assert checkpoint_iterations(tmp_path) == [4, 3, 2, 1]


KILLED_WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from kmyriad.runs.checkpoints import checkpoint_path, newest_checkpoint, prune_checkpoints
from kmyriad.runs.tensor_file import TensorFile, write_tensor_file

torch.set_num_threads(1)  # forked processes cannot use the parent's threads
folder, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
first, leftovers = 1, 0
for kill in range(kills):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.set_blocking(writer, False)
        iteration = first
        while True:
            tensors = {"a": torch.full((500_000,), float(iteration)), "b": torch.full((100,), iteration)}
            write_tensor_file(checkpoint_path(folder, iteration), TensorFile(tensors, {"iteration": iteration}))
            os.write(writer, iteration.to_bytes(4, "little"))
            prune_checkpoints(folder, 2)
            iteration += 1
    os.close(writer)
    told = os.read(reader, 4)  # it is at work now
    time.sleep(rng.uniform(0, 0.1))
    if kill % 2:  # every other time in the middle of a write, or right after
        while not list(folder.glob(".*.tmp")):
            pass
        if kill % 4 == 3:  # else at once: a fast disk is done in a millisecond
            time.sleep(rng.uniform(0, 0.003))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reader, 65536):
        told = more
    os.close(reader)
    finished = int.from_bytes(told[-4:], "little")
    leftovers += len(list(folder.glob(".*.tmp")))
    newest = newest_checkpoint(folder)
    assert newest is not None
    assert newest.iteration in (finished, finished + 1), (newest.iteration, finished)
    assert newest.content.facts == {"iteration": newest.iteration}
    assert all((tensor == newest.iteration).all() for tensor in newest.content.tensors.values())
    first = newest.iteration + 1
print("survived", first - 1, leftovers)
"""


def test_kill_9_always_leaves_a_whole_newest_checkpoint(tmp_path):
    command = [sys.executable, "-c", KILLED_WRITER, str(tmp_path), "20"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # none was ever skipped
    word, iterations, leftovers = result.stdout.split()
    assert word == "survived"
    assert int(iterations) >= 20
    assert int(leftovers) >= 1  # some kills did hit in the middle of a write
    prune_checkpoints(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == [f"iteration-{int(iterations):06d}.safetensors"]
