import errno
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from kmyriad.errors import UsageError
from kmyriad.runs import tensor_file as module
from kmyriad.runs.tensor_file import (
    DTYPES,
    FORMAT,
    Checkpoint,
    CheckpointError,
    checkpoint_epochs,
    checkpoint_path,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    write_checkpoint,
)


def example(epoch: int = 0) -> Checkpoint:
    generator = torch.Generator().manual_seed(epoch)
    tensors = {
        "weights": torch.randn(5, 7, generator=generator),
        "step": torch.tensor(epoch),
        "none": torch.zeros(0, 3, dtype=torch.float64),
        "rng": torch.from_numpy(np.array([2**64 - 1, epoch], np.uint64)),
        "alive": torch.tensor([True, False]),
    }
    return Checkpoint(tensors, {"epoch": epoch, "rate": 0.1 + epoch / 3, "heads": ["a", "b"], "note": 'quote " é \n'})


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(actual: Checkpoint, expected: Checkpoint) -> None:
    assert actual.facts == expected.facts
    assert actual.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        read = actual.tensors[name]
        assert (read.dtype, read.shape, bits(read)) == (tensor.dtype, tensor.shape, bits(tensor)), name


@contextmanager
def full_disk(size: int):
    """No file can grow beyond `size` bytes; writing more fails with OSError (Python ignores SIGXFSZ)."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (4, 3)], ids=str)
@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_round_trip_is_bit_for_bit(tmp_path, dtype, shape):
    # Random bytes: NaNs with payloads, denormals and the largest integers are among them.
    size = int(np.prod(shape)) * dtype.itemsize
    data = np.random.default_rng(0).integers(0, 2 if dtype is torch.bool else 256, size, np.uint8)
    tensor = torch.from_numpy(data).view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    written = Checkpoint({"tensor": tensor}, {})
    write_checkpoint(tmp_path / "file", written)
    assert_same(read_checkpoint(tmp_path / "file"), written)


def test_views_parameters_and_shared_memory_are_stored(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "transposed": base.T, "row": base[1], "parameter": torch.nn.Parameter(base)}
    write_checkpoint(tmp_path / "file", Checkpoint(tensors, {}))
    read = read_checkpoint(tmp_path / "file").tensors
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor)
        read[name].add_(1)  # writable, and nobody else's memory
        assert torch.equal(read[name], tensor + 1)


def test_nothing_at_all_round_trips(tmp_path):
    write_checkpoint(tmp_path / "file", Checkpoint({}, {}))
    assert read_checkpoint(tmp_path / "file") == Checkpoint({}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None, database=None)
@given(facts=st.dictionaries(st.text(), JSON))
def test_facts_round_trip_exactly(tmp_path_factory, facts):
    path = tmp_path_factory.getbasetemp() / "facts.safetensors"
    write_checkpoint(path, Checkpoint({}, facts))
    assert repr(read_checkpoint(path).facts) == repr(facts)


def test_the_same_content_makes_the_same_file(tmp_path):
    contents = set()
    for number in range(10):
        write_checkpoint(tmp_path / str(number), example())
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1


def test_plain_safetensors_can_read_it(tmp_path):
    write_checkpoint(tmp_path / "file", example())
    with safe_open(tmp_path / "file", "pt") as file:
        assert_same(Checkpoint({name: file.get_tensor(name) for name in example().tensors}, example().facts), example())
        assert set(file.keys()) == set(example().tensors)
        digest, facts = file.metadata()[FORMAT].split(" ", 1)
    assert len(digest) == 64
    assert json.loads(facts) == example().facts


@pytest.mark.parametrize(
    "facts",
    [
        {"loss": float("nan")},
        {"deep": [{"loss": float("-inf")}]},
        {"shape": (1, 2)},
        {"heads": {1: "a"}},
        {1: "a"},
        {"array": np.zeros(2)},
        {"set": {1}},
    ],
    ids=str,
)
def test_facts_that_would_not_come_back_are_refused(tmp_path, facts):
    with pytest.raises(CheckpointError, match=r"file: .*facts"):
        write_checkpoint(tmp_path / "file", Checkpoint({}, facts))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("__metadata__", torch.zeros(1)),
        ("\ud800", torch.zeros(1)),
        ("complex", torch.zeros(1, dtype=torch.complex128)),
        ("unreadable", torch.zeros(1, dtype=torch.uint8).view(torch.float8_e8m0fnu)),
        ("sparse", torch.eye(2).to_sparse()),
        ("array", np.zeros(2)),
    ],
)
def test_tensors_that_cannot_be_stored_are_refused(tmp_path, name, tensor):
    with pytest.raises(CheckpointError, match="cannot write") as caught:
        write_checkpoint(tmp_path / "file", Checkpoint({name: tensor}, {}))
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_header_too_long_to_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_HEADER_LIMIT", 1000)
    with pytest.raises(CheckpointError, match="of at most 1000"):
        write_checkpoint(tmp_path / "file", Checkpoint({}, {"long": "x" * 1000}))


def test_every_header_bit_and_hundreds_of_others_are_guarded(tmp_path):
    path = tmp_path / "file"
    write_checkpoint(path, example())
    data = path.read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    rng = random.Random(0)
    flips = [(position, 1 << rng.randrange(8)) for position in range(header_end)]
    flips += [(rng.randrange(len(data)), rng.randrange(1, 256)) for _ in range(1000)]
    for position, mask in flips:
        damaged = bytearray(data)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_every_truncation_and_any_tail_is_noticed(tmp_path):
    path = tmp_path / "file"
    write_checkpoint(path, example())
    data = path.read_bytes()
    for damaged in [*(data[:size] for size in range(len(data))), data + b"\0", data + data, bytes(len(data))]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            read_checkpoint(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"F32"', b'"X32"'),
        (b'"F32"', b'"F64"'),
        (b"[5,7]", b"[5,8]"),
        (b'\\"epoch\\"', b'\\"epoch]"'),
        (b' {\\"epoch', b' \xff\\"epoch'),
        (b'"data_offsets":[', b'"data_offsets":{'),
    ],
    ids=str,
)
def test_wrong_content_with_a_right_checksum_is_one_clear_error(tmp_path, old, new):
    path = tmp_path / "file"
    write_checkpoint(path, example())
    data = path.read_bytes()
    assert old in data
    start = data.index(FORMAT.encode()) + len(FORMAT) + 3
    zeros = b"0" * 64
    data = data[:start] + zeros + data[start + 64 :].replace(old, new)
    path.write_bytes(data[:start] + hashlib.sha256(data).hexdigest().encode() + data[start + 64 :])
    with pytest.raises(CheckpointError, match="malformed"):
        read_checkpoint(path)


def test_other_files_and_missing_ones_are_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        read_checkpoint(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="directory"):
        read_checkpoint(tmp_path)
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="foreign is not a checkpoint"):
        read_checkpoint(tmp_path / "foreign")


def test_content_then_name_then_folder_reach_the_disk(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor):
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")
        events.append("folder" if is_folder else ("file", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def record_replace(old, new):
        events.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_checkpoint(tmp_path / "file", example())
    assert events == [("file", (tmp_path / "file").stat().st_size), "rename", "folder"]


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    path = checkpoint_path(tmp_path, 1)
    write_checkpoint(path, example(1))
    big = Checkpoint({"big": torch.ones(1_000_000)}, {})
    for target in (path, checkpoint_path(tmp_path, 2)):
        with full_disk(100_000), pytest.raises(CheckpointError) as caught:
            write_checkpoint(target, big)
        assert str(target) in str(caught.value)
        assert "File too large" in str(caught.value)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert_same(read_checkpoint(path), example(1))
    write_checkpoint(checkpoint_path(tmp_path, 2), big)
    assert_same(read_checkpoint(checkpoint_path(tmp_path, 2)), big)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_late_failures_leave_no_temporary_file(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CheckpointError, match="No space left on device"):
        write_checkpoint(tmp_path / "file", example())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot write .*missing.*No such file"):
        write_checkpoint(tmp_path / "missing" / "file", example())


def test_paths_sort_and_refuse_negative_epochs(tmp_path):
    assert checkpoint_path(tmp_path, 123) == tmp_path / "epoch-000123.safetensors"
    with pytest.raises(UsageError, match="-1"):
        checkpoint_path(tmp_path, -1)


def test_only_checkpoint_files_count(tmp_path):
    for name in ("epoch-1.safetensors", "epoch-0000007.safetensors", ".epoch-000009.safetensors.1.tmp", "other"):
        (tmp_path / name).touch()
    (tmp_path / "epoch-000008.safetensors").mkdir()
    assert checkpoint_epochs(tmp_path) == []
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "missing") is None
    for epoch in (999_999, 1_000_000, 3):
        checkpoint_path(tmp_path, epoch).touch()
    assert checkpoint_epochs(tmp_path) == [1_000_000, 999_999, 3]


def test_newest_falls_back_to_older_ones(tmp_path):
    for epoch in (1, 2, 3):
        write_checkpoint(checkpoint_path(tmp_path, epoch), example(epoch))

    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert (newest.epoch, newest.skipped) == (3, [])
    assert_same(newest.checkpoint, example(3))

    checkpoint_path(tmp_path, 3).write_bytes(b"")
    data = bytearray(checkpoint_path(tmp_path, 2).read_bytes())
    data[-1] ^= 1
    checkpoint_path(tmp_path, 2).write_bytes(data)
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.epoch == 1
    assert [name in text for name, text in zip(("000003", "000002"), newest.skipped, strict=True)] == [True, True]
    assert_same(newest.checkpoint, example(1))

    checkpoint_path(tmp_path, 1).write_bytes(b"")
    with pytest.raises(CheckpointError, match="none of the 3 checkpoints"):
        newest_checkpoint(tmp_path)


def test_prune_keeps_the_newest_and_clears_leftovers(tmp_path):
    for epoch in range(5):
        write_checkpoint(checkpoint_path(tmp_path, epoch), example(epoch))
    (tmp_path / ".epoch-000009.safetensors.123.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    prune_checkpoints(tmp_path, 9)
    assert checkpoint_epochs(tmp_path) == [4, 3, 2, 1, 0]
    prune_checkpoints(tmp_path, 2)
    assert checkpoint_epochs(tmp_path) == [4, 3]
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("epoch")) == ["notes.txt"]
    with pytest.raises(UsageError, match="at least 1; got 0"):
        prune_checkpoints(tmp_path, 0)


def test_prune_never_removes_the_last_good_one(tmp_path):
    for epoch in range(5):
        write_checkpoint(checkpoint_path(tmp_path, epoch), example(epoch))
    for epoch in (2, 3, 4):
        checkpoint_path(tmp_path, epoch).write_bytes(b"")
    prune_checkpoints(tmp_path, 1)
    assert checkpoint_epochs(tmp_path) == [4, 3, 2, 1]
    checkpoint_path(tmp_path, 1).write_bytes(b"")
    prune_checkpoints(tmp_path, 1)
    assert checkpoint_epochs(tmp_path) == [4, 3, 2, 1]


KILLED_WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from kmyriad.runs.tensor_file import Checkpoint, checkpoint_path, newest_checkpoint, prune_checkpoints, write_checkpoint

torch.set_num_threads(1)  # forked processes cannot use the parent's threads
folder, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
first, leftovers = 1, 0
for kill in range(kills):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.set_blocking(writer, False)
        epoch = first
        while True:
            tensors = {"a": torch.full((500_000,), float(epoch)), "b": torch.full((100,), epoch)}
            write_checkpoint(checkpoint_path(folder, epoch), Checkpoint(tensors, {"epoch": epoch}))
            os.write(writer, epoch.to_bytes(4, "little"))
            prune_checkpoints(folder, 2)
            epoch += 1
    os.close(writer)
    told = os.read(reader, 4)  # it is at work now
    time.sleep(rng.uniform(0, 0.1))
    if kill % 2:  # every other time in the middle of a write, or right after
        while not list(folder.glob(".*.tmp")):
            pass
        time.sleep(rng.uniform(0, 0.003))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reader, 65536):
        told = more
    os.close(reader)
    finished = int.from_bytes(told[-4:], "little")
    leftovers += len(list(folder.glob(".*.tmp")))
    newest = newest_checkpoint(folder)
    assert newest is not None and newest.skipped == [], newest
    assert newest.epoch in (finished, finished + 1), (newest.epoch, finished)
    assert newest.checkpoint.facts == {"epoch": newest.epoch}
    assert all((tensor == newest.epoch).all() for tensor in newest.checkpoint.tensors.values())
    first = newest.epoch + 1
print("survived", first - 1, leftovers)
"""


def test_kill_9_always_leaves_a_whole_newest_checkpoint(tmp_path):
    command = [sys.executable, "-c", KILLED_WRITER, str(tmp_path), "20"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(module.__file__).parents[1])
    assert result.returncode == 0, result.stderr
    word, epochs, leftovers = result.stdout.split()
    assert word == "survived"
    assert int(epochs) >= 20
    assert int(leftovers) >= 1  # some kills did hit in the middle of a write
    prune_checkpoints(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == [f"epoch-{int(epochs):06d}.safetensors"]
