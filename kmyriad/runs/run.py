"""Run folders: what was asked for, with which versions, what came of it epoch by epoch, and where to go on from.

- `config.json`: what was asked for
- `versions.json`: Python, kmyriad, the libraries, the platform
- `metrics.jsonl`: one JSON object per epoch, in order; `epoch` counts from 1
- `selection.json`: of a jump-start, how its head was chosen
- `checkpoints/`: see `kmyriad.runs.tensor_file`
- `last_epoch.safetensors`: arrays of the last epoch, for figures
- `evaluation.safetensors`: fresh episodes of the newest checkpoint and their measures
"""

import json
import math
import os
import platform
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.runs.files import remove_temporaries, write_atomically
from kmyriad.runs.tensor_file import Checkpoint, checkpoint_epochs, read_checkpoint, write_checkpoint
from kmyriad.version import VERSION

LIBRARIES = ("torch", "mujoco", "gymnasium", "numpy")


@dataclass(frozen=True)
class Run:
    path: Path

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @cached_property
    def config(self) -> dict[str, Any]:
        return _read_json(self.config_path)

    @property
    def command(self) -> str:
        """What made it: "pretrain" or "jumpstart"."""
        return str(self.config.get("command", "pretrain"))

    @cached_property
    def versions(self) -> dict[str, Any]:
        return _read_json(self.path / "versions.json")

    def metrics(self) -> list[dict[str, Any]]:
        """One row per epoch, in order. A last line that is still being written, or was torn by a crash, is left out."""
        return [row for _, row in _read_metrics(self)]

    @property
    def epochs_done(self) -> int:
        rows = self.metrics()
        return int(rows[-1]["epoch"]) if rows else 0

    @property
    def is_finished(self) -> bool:
        """Whether the metrics reach the `epochs` of the config; False if the config has none."""
        epochs = self.config.get("epochs")
        return isinstance(epochs, int) and self.epochs_done >= epochs

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last_epoch_path(self) -> Path:
        return self.path / "last_epoch.safetensors"

    @property
    def selection_path(self) -> Path:
        return self.path / "selection.json"

    @property
    def evaluation_path(self) -> Path:
        return self.path / "evaluation.safetensors"


def check_free(path: Path) -> None:
    """Refuse a folder that a run is in."""
    run = Run(path)
    files = (run.config_path, run.metrics_path)
    if any(os.path.exists(file) for file in files) or checkpoint_epochs(run.checkpoints):  # Path.exists may raise
        raise UsageError(f"{path} already holds a run; continue it with --resume or choose another name")


def create_run(path: Path, config: dict[str, Any]) -> Run:
    """Make the folder of a new run that was asked for with `config`."""
    run = Run(path)
    config_json = _encode_json(run.config_path, config)
    try:
        check_free(path)
        # The config comes last: a folder that has one is a complete run.
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(path / "versions.json", _encode_json(path / "versions.json", _current_versions()))
        write_atomically(run.config_path, config_json)
    except OSError as error:
        raise UsageError(
            f"cannot create a run in {path}: {error.strerror or error}; choose another folder or free some space"
        ) from error
    return run


def open_run(path: str | Path) -> Run:
    """The run in folder `path`."""
    if not os.path.isdir(path):  # Path.is_dir raises where a folder above cannot be entered
        raise UsageError(f"there is no run folder {path}; check the name")
    run = Run(Path(path))
    if not os.path.exists(run.config_path):
        raise UsageError(f"{path} is no run folder: it has no config.json; check the name")
    _ = run.config
    return run


def list_runs(root: Path) -> list[Run]:
    """The runs in the folders right below `root`, newest first."""
    try:
        paths = list(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"cannot list the runs in {root}: {error.strerror or error}") from error
    found: list[tuple[int, str, Run]] = []
    for path in paths:
        try:
            run = open_run(path)
            found.append((run.config_path.stat().st_mtime_ns, path.name, run))
        except (UsageError, OSError):
            continue
    return [run for _, _, run in sorted(found, key=lambda entry: entry[:2], reverse=True)]


def append_metrics(run: Run, row: dict[str, Any]) -> None:
    """Add the row of one epoch, with an integer `epoch`. NaN and infinity become null.

    To go on after a crash call `truncate_metrics` first.
    """
    if type(row.get("epoch")) is not int:
        raise UsageError(f"a row of metrics needs an integer 'epoch'; got {row.get('epoch')!r}")
    line = _encode_json(run.metrics_path, _without_nan(row), indent=None)
    try:
        with run.metrics_path.open("ab", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) != len(line):
                    raise OSError("the disk is full")
            except BaseException:
                # Half a row would damage the next one.
                file.truncate(start)
                raise
    except OSError as error:
        raise UsageError(
            f"cannot write the metrics of epoch {row['epoch']} to {run.metrics_path}: {error.strerror or error}; "
            "free some space"
        ) from error


def truncate_metrics(run: Run, epochs: int) -> None:
    """After a crash: keep the rows of the first `epochs` epochs, and drop a torn last line and half-written files."""
    kept = [line for line, row in _read_metrics(run) if row["epoch"] <= epochs]
    try:
        remove_temporaries(run.path)
        write_atomically(run.metrics_path, b"".join(line + b"\n" for line in kept))
    except OSError as error:
        raise UsageError(f"cannot rewrite {run.metrics_path}: {error.strerror or error}; free some space") from error


def save_last_epoch(run: Run, arrays: dict[str, NDArray[Any]]) -> None:
    """Replace the arrays of the last epoch; numbers or bools of any shape."""
    tensors: dict[str, torch.Tensor] = {}
    for name, array in arrays.items():
        try:
            # A copy, as torch shares memory and takes neither negative strides nor foreign byte orders.
            tensors[name] = torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"cannot write {run.last_epoch_path}: array {name!r} must hold numbers or bools, got {array.dtype}"
            ) from error
    write_checkpoint(run.last_epoch_path, Checkpoint(tensors, {}))


def save_selection(run: Run, ranking: dict[str, Any]) -> None:
    """How a jump-start's head was chosen."""
    try:
        write_atomically(run.selection_path, _encode_json(run.selection_path, _without_nan(ranking)))
    except OSError as error:
        raise UsageError(f"cannot write {run.selection_path}: {error.strerror or error}; free some space") from error


def load_last_epoch(run: Run) -> dict[str, NDArray[Any]] | None:
    """The arrays of the last epoch, None if there are none yet."""
    if not run.last_epoch_path.exists():
        return None
    return {name: tensor.numpy() for name, tensor in read_checkpoint(run.last_epoch_path).tensors.items()}


def _current_versions() -> dict[str, str]:
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {
        "python": platform.python_version(),
        "kmyriad": VERSION,
        **libraries,
        "platform": platform.platform(),
    }


def _read_metrics(run: Run) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines, without their newlines, and the rows they hold."""
    try:
        *lines, _torn = run.metrics_path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {run.metrics_path}: {error.strerror or error}") from error
    return [(line, _parse_row(run, number, line)) for number, line in enumerate(lines, start=1)]


def _parse_row(run: Run, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or type(row.get("epoch")) is not int:
        raise UsageError(
            f"line {number} of {run.metrics_path} is damaged: {line[:40]!r} is no JSON object with an 'epoch'; "
            "remove or mend the line"
        )
    return row


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}; restore it or start a new run") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is damaged: it holds no JSON object; restore it or start a new run")
    return content


def _encode_json(path: Path, content: dict[str, Any], indent: int | None = 2) -> bytes:
    try:
        return json.dumps(content, allow_nan=False, indent=indent).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot write {path}: the content is not plain finite JSON ({error})") from error


def _without_nan(value: Any) -> Any:
    """`value` with null for what JSON has no word for, and Python's numbers for numpy's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
