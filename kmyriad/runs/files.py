"""Files that are there whole or not at all, and the one place where OSError becomes a sentence."""

import errno
import json
import math
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kmyriad.errors import UsageError

LONGEST_NAME = 200
"""Bytes of a file's name: most file systems take 255, and temporary names are longer than the file's own."""


@contextmanager
def os_errors(what: str, advice: str = "", kind: type[UsageError] = UsageError) -> Iterator[None]:
    """Whatever the system refuses within is told as `cannot <what>: <why>; <advice>`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        told = kind(f"cannot {what}: {why}" + (f"; {advice}" if advice else ""))
        told.is_full_disk = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise told from error


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step: after a crash or a full disk (OSError) the old content is still there."""
    with new_file(path) as temporary, temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block ends well, and is removed else."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        if temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Remove what killed processes left half-written in `folder`. What a living process is writing stays."""
    for temporary in folder.glob(".*.tmp"):
        process = temporary.name.split(".")[-2]
        if not (process.isdecimal() and int(process) != os.getpid() and os.path.exists(f"/proc/{process}")):
            temporary.unlink(missing_ok=True)


def read_file(path: Path, first: int | None = None) -> bytes:
    """The content of a regular file, or its `first` bytes. A pipe or a device would hang: OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read() if first is None else file.read(first)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    with os_errors(f"read {path}"):
        data = read_file(path)
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}; restore it or start a new run") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is damaged: it holds no JSON object; restore it or start a new run")
    return content


def encode_json(path: Path, content: Any, indent: int | None = 2) -> bytes:
    """Plain finite JSON for `path`, with a newline at its end."""
    try:
        return json.dumps(content, allow_nan=False, indent=indent).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot write {path}: the content is not plain finite JSON ({error})") from error


def write_json(path: Path, content: Any, advice: str = "free some space") -> None:
    """Put plain JSON at `path`, whole or not at all; folders are made."""
    data = encode_json(path, content)
    check_name(path)
    with os_errors(f"write {path}", advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)


def without_nan(value: Any) -> Any:
    """`value` with null for what JSON has no word for, and Python's numbers for numpy's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_name(path: Path) -> None:
    """Refuse a path that no file can have: empty, or with too long a name."""
    if not path.name:
        raise UsageError(f"{str(path)!r} names no file or folder; give a name")
    if len(path.name.encode(errors="surrogateescape")) > LONGEST_NAME:
        raise UsageError(f"the name {path.name[:30]}... is longer than {LONGEST_NAME} bytes; choose a shorter one")


def shell_path(path: Path | str) -> str:
    """As one word for a shell, that no command takes for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _sync_folder(folder: Path) -> None:
    """Without this the new name, though not the content, can be lost with the power."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
