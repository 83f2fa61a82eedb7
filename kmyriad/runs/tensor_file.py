"""Tensors and JSON facts in one safetensors file, checksummed, written whole or not at all.

The metadata of the safetensors header has a single entry, whose name is the format and whose value is the SHA-256 of
the file (with zeros in place of the digest), a space and the facts as JSON. One entry keeps the bytes reproducible:
safetensors writes several in random order.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from kmyriad.errors import UsageError
from kmyriad.runs.files import os_errors, read_file, write_atomically

FORMAT = "kmyriad-checkpoint-2"

DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float64,
    }
)
"""What may be stored. Safetensors writes a few more that it cannot read again."""

_SIZE_BYTES = 8
"""A safetensors file opens with the length of its header, little-endian."""
_OPENING = f'{{"__metadata__":{{"{FORMAT}":"'.encode()
_DIGEST = slice(_SIZE_BYTES + len(_OPENING), _SIZE_BYTES + len(_OPENING) + 64)
_NO_DIGEST = b"0" * 64
_HEADER_LIMIT = 100_000_000
"""Bytes; safetensors writes longer headers but refuses to read them."""


class CheckpointError(UsageError):
    """A checkpoint that cannot be written, or that is damaged, told in one sentence."""


@dataclass(frozen=True)
class TensorFile:
    tensors: dict[str, torch.Tensor]
    """Any shapes, empty and () included, of any dtype in `DTYPES`."""
    facts: dict[str, Any]
    """What JSON can hold without loss: no tuples, no NaN, no keys but strings."""


def write_tensor_file(path: Path, content: TensorFile) -> None:
    """Write `content` to `path`, replacing what was there only once the new file is safely on disk."""
    data = _encode(path, content)
    advice = "earlier files are untouched, free some space or choose another folder"
    with os_errors(f"write {path} ({len(data)} bytes)", advice, CheckpointError):
        write_atomically(path, data)


def read_tensor_file(path: Path) -> TensorFile:
    """The content of `path`, on the CPU and bit for bit as written; CheckpointError if a single bit has changed."""
    with os_errors(f"read checkpoint {path}", kind=CheckpointError):
        if read_file(path, _DIGEST.start)[_SIZE_BYTES:] != _OPENING:
            raise CheckpointError(
                f"{path} is not a checkpoint of format {FORMAT!r}, or its header is damaged; use another checkpoint"
            )
        data = read_file(path)
    if data[_DIGEST] != _digest(data):
        raise CheckpointError(
            f"{path} ({len(data)} bytes) is damaged: its checksum does not match; use another checkpoint"
        )
    try:
        return _decode(data)
    except Exception as error:
        # Only a file made on purpose has a right checksum and wrong content; what it can raise is anyone's guess.
        raise CheckpointError(f"{path} is malformed ({error}); use another checkpoint") from error


def _encode(path: Path, checkpoint: TensorFile) -> bytes:
    facts = _encode_facts(path, checkpoint.facts)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        if name == "__metadata__" or not name.isprintable():
            raise CheckpointError(f"cannot write {path}: {name!r} cannot be the name of a tensor; choose another")
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in DTYPES or tensor.layout != torch.strided:
            kind = f"{tensor.layout} {tensor.dtype}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise CheckpointError(
                f"cannot write {path}: {name!r} must be a dense torch tensor of integers, floats or bools; got {kind}"
            )
        # Safetensors refuses views and tensors that share memory.
        tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    data = save_tensors(tensors, {FORMAT: f"{_NO_DIGEST.decode()} {facts}"})
    header_size = int.from_bytes(data[:_SIZE_BYTES], "little")
    if header_size > _HEADER_LIMIT:
        raise CheckpointError(
            f"cannot write {path}: facts and tensor names take {header_size} bytes of at most {_HEADER_LIMIT}; "
            "store long lists of numbers as tensors"
        )
    return data[: _DIGEST.start] + _digest(data) + data[_DIGEST.stop :]


def _encode_facts(path: Path, facts: dict[str, Any]) -> str:
    try:
        text = json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot write {path}: the facts are not plain finite JSON ({error})") from error
    read_again = json.loads(text)
    if read_again != facts:
        changed = [key for key in facts if key not in read_again or read_again[key] != facts[key]]
        raise CheckpointError(
            f"cannot write {path}: facts {changed} would come back changed; use lists for tuples and strings for keys"
        )
    return text


def _decode(data: bytes) -> TensorFile:
    tensors = load_tensors(data)
    header_end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "little")
    header = json.loads(data[_SIZE_BYTES:header_end].decode())
    facts = json.loads(header["__metadata__"][FORMAT][len(_NO_DIGEST) :])
    if not isinstance(facts, dict):
        raise TypeError(f"facts must be a JSON object, got {type(facts).__name__}")
    return TensorFile(tensors, facts)


def _digest(data: bytes) -> bytes:
    """SHA-256 of `data` with zeros where the digest goes, as 64 hexadecimal digits."""
    view = memoryview(data)
    sha256 = hashlib.sha256(view[: _DIGEST.start])
    sha256.update(_NO_DIGEST)
    sha256.update(view[_DIGEST.stop :])
    return sha256.hexdigest().encode()
