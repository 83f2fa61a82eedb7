import errno
import hashlib
import json
import os
import random
import resource
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from kmyriad.runs import tensor_file as module
from kmyriad.runs.tensor_file import DTYPES, FORMAT, CheckpointError, TensorFile, read_tensor_file, write_tensor_file


def example(iteration: int = 0) -> TensorFile:
    generator = torch.Generator().manual_seed(iteration)
    tensors = {
        "weights": torch.randn(5, 7, generator=generator),
        "step": torch.tensor(iteration),
        "none": torch.zeros(0, 3, dtype=torch.float64),
        "rng": torch.from_numpy(np.array([2**64 - 1, iteration], np.uint64)),
        "alive": torch.tensor([True, False]),
    }
    return TensorFile(
        tensors, {"iteration": iteration, "rate": 0.1 + iteration / 3, "agents": ["a", "b"], "note": 'quote " é \n'}
    )


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(actual: TensorFile, expected: TensorFile) -> None:
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
    written = TensorFile({"tensor": tensor}, {})
    write_tensor_file(tmp_path / "file", written)
    assert_same(read_tensor_file(tmp_path / "file"), written)


def test_views_parameters_and_shared_memory_are_stored(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "transposed": base.T, "row": base[1], "parameter": torch.nn.Parameter(base)}
    write_tensor_file(tmp_path / "file", TensorFile(tensors, {}))
    read = read_tensor_file(tmp_path / "file").tensors
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor)
        read[name].add_(1)  # writable, and nobody else's memory
        assert torch.equal(read[name], tensor + 1)


def test_nothing_at_all_round_trips(tmp_path):
    write_tensor_file(tmp_path / "file", TensorFile({}, {}))
    assert read_tensor_file(tmp_path / "file") == TensorFile({}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None, database=None)
@given(facts=st.dictionaries(st.text(), JSON))
def test_facts_round_trip_exactly(tmp_path_factory, facts):
    path = tmp_path_factory.getbasetemp() / "facts.safetensors"
    write_tensor_file(path, TensorFile({}, facts))
    assert repr(read_tensor_file(path).facts) == repr(facts)


def test_the_same_content_makes_the_same_file(tmp_path):
    contents = set()
    for number in range(10):
        write_tensor_file(tmp_path / str(number), example())
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1


def test_plain_safetensors_can_read_it(tmp_path):
    write_tensor_file(tmp_path / "file", example())
    with safe_open(tmp_path / "file", "pt") as file:
        assert_same(TensorFile({name: file.get_tensor(name) for name in example().tensors}, example().facts), example())
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
        {"agents": {1: "a"}},
        {1: "a"},
        {"array": np.zeros(2)},
        {"set": {1}},
    ],
    ids=str,
)
def test_facts_that_would_not_come_back_are_refused(tmp_path, facts):
    with pytest.raises(CheckpointError, match=r"file: .*facts"):
        write_tensor_file(tmp_path / "file", TensorFile({}, facts))
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
        write_tensor_file(tmp_path / "file", TensorFile({name: tensor}, {}))
    assert repr(name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_header_too_long_to_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_HEADER_LIMIT", 1000)
    with pytest.raises(CheckpointError, match="of at most 1000"):
        write_tensor_file(tmp_path / "file", TensorFile({}, {"long": "x" * 1000}))


def test_every_header_bit_and_hundreds_of_others_are_guarded(tmp_path):
    path = tmp_path / "file"
    write_tensor_file(path, example())
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
            read_tensor_file(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_every_truncation_and_any_tail_is_noticed(tmp_path):
    path = tmp_path / "file"
    write_tensor_file(path, example())
    data = path.read_bytes()
    for damaged in [*(data[:size] for size in range(len(data))), data + b"\0", data + data, bytes(len(data))]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            read_tensor_file(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"F32"', b'"X32"'),
        (b'"F32"', b'"F64"'),
        (b"[5,7]", b"[5,8]"),
        (b'\\"iteration\\"', b'\\"iteration]"'),
        (b' {\\"iteration', b' \xff\\"iteration'),
        (b'"data_offsets":[', b'"data_offsets":{'),
    ],
    ids=str,
)
def test_wrong_content_with_a_right_checksum_is_one_clear_error(tmp_path, old, new):
    path = tmp_path / "file"
    write_tensor_file(path, example())
    data = path.read_bytes()
    assert old in data
    start = data.index(FORMAT.encode()) + len(FORMAT) + 3
    zeros = b"0" * 64
    data = data[:start] + zeros + data[start + 64 :].replace(old, new)
    path.write_bytes(data[:start] + hashlib.sha256(data).hexdigest().encode() + data[start + 64 :])
    with pytest.raises(CheckpointError, match="malformed"):
        read_tensor_file(path)


def test_other_files_and_missing_ones_are_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        read_tensor_file(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="directory"):
        read_tensor_file(tmp_path)
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="foreign is not a checkpoint"):
        read_tensor_file(tmp_path / "foreign")


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
    write_tensor_file(tmp_path / "file", example())
    assert events == [("file", (tmp_path / "file").stat().st_size), "rename", "folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path, other = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    write_tensor_file(path, example(1))
    big = TensorFile({"big": torch.ones(1_000_000)}, {})
    for target in (path, other):
        with full_disk(100_000), pytest.raises(CheckpointError) as caught:
            write_tensor_file(target, big)
        assert str(target) in str(caught.value)
        assert "File too large" in str(caught.value)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert_same(read_tensor_file(path), example(1))
    write_tensor_file(other, big)
    assert_same(read_tensor_file(other), big)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_late_failures_leave_no_temporary_file(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(CheckpointError, match="No space left on device"):
        write_tensor_file(tmp_path / "file", example())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot write .*missing.*No such file"):
        write_tensor_file(tmp_path / "missing" / "file", example())
