"""A run in one file, to share: a zip of what its folder holds, read without pickle and with a limit on every size.

Only members of known names are read, and they are written to a temporary folder that lasts as long as the process. So
whatever takes a run's folder takes such a file, and nothing that it is asked for changes the file.
"""

import atexit
import io
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kmyriad.errors import UsageError
from kmyriad.runs.files import os_errors, write_atomically

SUFFIX = ".kmyriad"
LARGEST = 20_000_000
"""Bytes of a file that is easily shared."""
LARGEST_UNPACKED = 500_000_000
"""Bytes of all members together, beyond which a file is refused: a small zip can hold terabytes of zeros."""

CONFIG = "config.json"
OTHERS = ("versions.json", "metrics.jsonl", "selection.json", "evaluation.safetensors", "README.md", "report.html")
CHECKPOINT = re.compile(r"checkpoints/iteration-[0-9]{6,18}\.safetensors")
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that the same run gives the same bytes."""


def encode_pack(members: Mapping[str, bytes]) -> bytes:
    """The file that holds `members`, by their names in the run's folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            assert _is_known(name), name
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def write_pack(path: Path, data: bytes) -> None:
    """Put what `encode_pack` gave at `path`, whole or not at all; folders are made."""
    with os_errors(f"write {path}", "choose another name or free some space"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)


def unpacked(path: Path) -> Path:
    """A folder with what the file holds, the same one as long as the file stays as it is."""
    with os_errors(f"read {path}"):
        status = os.stat(path)
        return _unpack(os.path.realpath(path), status.st_mtime_ns, status.st_size)


@cache
def _unpack(path: str, changed: int, size: int) -> Path:
    members = read_pack(Path(path))
    above = tempfile.mkdtemp(prefix="kmyriad-")
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    folder = Path(above) / (Path(path).name.removesuffix(SUFFIX) or "run")
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read_pack(path: Path) -> dict[str, bytes]:
    """The members by name; UsageError if the file is damaged, no packed run, or holds what none does."""
    with os_errors(f"read {path}"), path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise UsageError(f"{path} is neither a run's folder nor a packed run; make one with: kmyriad pack RUN")
        try:
            with zipfile.ZipFile(file) as archive:
                return _read_members(path, archive)
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # what a file made on purpose can raise is anyone's guess
            raise UsageError(f"{path} is damaged ({type(error).__name__}); fetch it again") from error


def _read_members(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    left = LARGEST_UNPACKED
    for entry in archive.infolist():
        plainly_packed = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if not plainly_packed or not _is_known(entry.filename) or entry.filename in members:
            raise UsageError(
                f"{path} is no packed run: it holds {entry.filename[:80]!r}; make one with: kmyriad pack RUN"
            )
        with archive.open(entry) as stream:
            data = stream.read(left + 1)
        left -= len(data)
        if left < 0:
            raise UsageError(
                f"{path} holds more than {LARGEST_UNPACKED:,} bytes, which no packed run does; do not use it"
            )
        members[entry.filename] = data
    if CONFIG not in members or not any(map(CHECKPOINT.fullmatch, members)):
        raise UsageError(f"{path} is no packed run: it has no settings or no policies; make one with: kmyriad pack RUN")
    return members


def _is_known(name: str) -> bool:
    return name == CONFIG or name in OTHERS or CHECKPOINT.fullmatch(name) is not None
