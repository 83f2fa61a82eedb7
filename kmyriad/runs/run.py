"""Run folders: what was asked for, with which versions, what came of it, and where to go on from.

- `config.json`: what was asked for
- `versions.json`: Python, kmyriad, the libraries, the platform
- `metrics.jsonl`: one JSON object per iteration, in order; `iteration` counts from 1
- `metrics-dropped.jsonl`: rows that a resume computed again, from the newest checkpoint on
- `selection.json`: of a jump-start, how its agent was chosen
- `checkpoints/`: see `kmyriad.runs.checkpoints`
- `last_horizon.safetensors`: where all agents were in the last horizon, for figures
- `evaluation.safetensors`: fresh episodes of the newest checkpoint and their measures
- `wandb.json`: the id under which Weights & Biases knows it, where it is asked to
- `lock`: held by the process that trains
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from kmyriad.config import JumpstartConfig, PretrainConfig, config_from_json
from kmyriad.errors import UsageError
from kmyriad.runs.files import (
    check_name,
    encode_json,
    os_errors,
    read_file,
    read_json,
    remove_temporaries,
    without_nan,
    write_atomically,
    write_json,
)
from kmyriad.runs.pack import unpacked

LIBRARIES = ("torch", "mujoco", "gymnasium", "numpy")


@dataclass(frozen=True)
class Run:
    """A run's folder, and what can be asked about it without loading a policy."""

    path: Path
    file: Path | None = None
    """Where it came packed in a file: that file; `path` is then a temporary folder."""

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def given(self) -> Path:
        """By what commands name it: its folder, or the file that it came packed in."""
        return self.file or self.path

    @property
    def outputs(self) -> Path:
        """Where numbers and videos of it go: into its folder; of a packed run into a new one where one works."""
        return self.path if self.file is None else Path(self.name)

    @cached_property
    def config(self) -> PretrainConfig | JumpstartConfig:
        """The settings, all of them checked."""
        try:
            return config_from_json(read_json(self.config_path))
        except UsageError as error:
            raise UsageError(f"{self.given} cannot be opened: {error}") from error

    @property
    def command(self) -> str:
        """What made it: "pretrain" or "jumpstart"."""
        return "pretrain" if isinstance(self.config, PretrainConfig) else "jumpstart"

    @property
    def env(self) -> str:
        """The world, by its short name or Gymnasium id."""
        config = self.config
        return config.world.env if isinstance(config, PretrainConfig) else config.task.env

    @property
    def env_settings(self) -> dict[str, Any]:
        """Settings of the environment itself."""
        config = self.config
        return config.world.env_settings if isinstance(config, PretrainConfig) else config.task.env_settings

    @property
    def pretraining(self) -> PretrainConfig:
        """The settings of a pretraining run; UsageError for another."""
        if not isinstance(self.config, PretrainConfig):
            raise UsageError(f"{self.given} is a jumpstart run; name the pretraining run that it started from")
        return self.config

    @property
    def jumpstart(self) -> JumpstartConfig:
        """The settings of a jump-start; UsageError for another run."""
        if not isinstance(self.config, JumpstartConfig):
            raise UsageError(f"{self.path} is a pretrain run; name a jump-start")
        return self.config

    @cached_property
    def versions(self) -> dict[str, Any]:
        return read_json(self.path / "versions.json")

    def metrics(self) -> list[dict[str, Any]]:
        """One row per iteration, in order. A last line still being written, or torn by a crash, is left out."""
        return [row for _, row in _read_metrics(self)]

    def last_row(self) -> dict[str, Any]:
        """The row of the last iteration, empty before the first."""
        with os_errors(f"read {self.metrics_path}"):
            try:
                *lines, _torn = read_file(self.metrics_path).rsplit(b"\n", 2)
            except FileNotFoundError:
                return {}
        return _parse_row(self, "the last line", lines[-1]) if lines else {}

    @property
    def is_finished(self) -> bool:
        """Whether it has made all of its environment steps."""
        steps = self.last_row().get("env_steps")
        return isinstance(steps, int) and steps >= self.config.run.total_steps

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
    def last_horizon_path(self) -> Path:
        return self.path / "last_horizon.safetensors"

    @property
    def selection_path(self) -> Path:
        return self.path / "selection.json"

    @property
    def evaluation_path(self) -> Path:
        return self.path / "evaluation.safetensors"


def check_free(path: Path) -> None:
    """Refuse a folder that a run is in, or whose name no folder can have."""
    run = Run(path)
    check_name(path)
    # os.path's functions, as Path's raise where a folder above cannot be entered
    has_checkpoints = os.path.isdir(run.checkpoints) and any(run.checkpoints.glob("*.safetensors"))
    if os.path.exists(run.config_path) or os.path.exists(run.metrics_path) or has_checkpoints:
        raise UsageError(f"{path} already holds a run; continue it with --resume or choose another name")


def create_run(path: Path, config: PretrainConfig | JumpstartConfig) -> Run:
    """Make the folder of a new run that was asked for with `config`."""
    run = Run(path)
    with os_errors(f"create a run in {path}", "choose another folder or free some space"):
        check_free(path)
        # The config comes last: a folder that has one is a complete run.
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(path / "versions.json", encode_json(path / "versions.json", _current_versions()))
        write_atomically(run.config_path, encode_json(run.config_path, config.as_json()))
    return run


def replace_config(run: Run, config: PretrainConfig | JumpstartConfig) -> None:
    """Write down other settings, such as a larger budget."""
    with os_errors(f"write {run.config_path}", "free some space"):
        write_atomically(run.config_path, encode_json(run.config_path, config.as_json()))
    run.__dict__.pop("config", None)


def open_run(path: "str | Path | Run", *, trusted: bool = False) -> Run:
    """The run in folder `path`, or packed in the file `path`.

    A packed run is somebody else's. If its environment is a function or in a module, to make it is to run what its
    settings name, whatever that is: only where it is `trusted` does such a file open.
    """
    if isinstance(path, Run):
        return path
    if os.path.isfile(path):
        run = Run(unpacked(Path(path)), Path(path))
        if ":" in run.env and not trusted:
            raise UsageError(
                f"{path} has the environment {run.env[:80]!r}, which is code that its settings choose; if you trust the"
                " file, unzip it and name the folder, or use km.open_run(file, trusted=True)"
            )
        return run
    if not os.path.isdir(path):  # Path.is_dir raises where a folder above cannot be entered
        raise UsageError(f"there is no run folder {path}; check the name")
    run = Run(Path(path))
    if not os.path.exists(run.config_path):
        raise UsageError(f"{path} is no run folder: it has no config.json; check the name")
    _ = run.config
    return run


def list_runs(root: str | Path = "runs") -> list[Run]:
    """The runs in the folders right below `root`, newest first; those that cannot be opened are among them."""
    with os_errors(f"list the runs in {root}"):
        try:
            paths = list(Path(root).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
    found: list[tuple[int, str, Run]] = []
    for path in paths:
        try:
            changed = Run(path).config_path.stat().st_mtime_ns
        except OSError:
            continue
        found.append((changed, path.name, Run(path)))
    return [run for _, _, run in sorted(found, key=lambda entry: entry[:2], reverse=True)]


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Keep the run's folder to this process; whoever else trains in it gets a UsageError. A kill lets go of it."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    with os_errors(f"lock {run.path}", "check that the folder can be written to"):
        file = (run.path / "lock").open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{run.path} is being trained by another process; wait until it ends, or stop it first"
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        yield


def is_training(run: Run) -> bool:
    """Whether a process trains in the run's folder at the moment."""
    try:
        with locked(run):
            return False
    except UsageError:
        return True


def append_metrics(run: Run, row: dict[str, Any]) -> None:
    """Add the row of one iteration, with an integer `iteration`. NaN and infinity become null.

    To go on after a crash call `truncate_metrics` first.
    """
    if type(row.get("iteration")) is not int:
        raise UsageError(f"a row of metrics needs an integer 'iteration'; got {row.get('iteration')!r}")
    line = encode_json(run.metrics_path, without_nan(row), indent=None)
    with (
        os_errors(f"write the metrics of iteration {row['iteration']} to {run.metrics_path}", "free some space"),
        run.metrics_path.open("ab", buffering=0) as file,
    ):
        start = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError("the disk is full")
        except BaseException:
            file.truncate(start)  # half a row would damage the next one
            raise


def truncate_metrics(run: Run, iterations: int) -> int:
    """After a crash: keep the rows of the first `iterations`, and drop a torn last line and half-written files.

    Later rows, which are about to be computed again, go to `metrics-dropped.jsonl`; returns how many.
    """
    rows = _read_metrics(run)
    kept = [line for line, row in rows if row["iteration"] <= iterations]
    dropped = [line for line, row in rows if row["iteration"] > iterations]
    with os_errors(f"rewrite {run.metrics_path}", "free some space"):
        for folder in (run.path, run.path / "videos", run.checkpoints):
            remove_temporaries(folder)
        if dropped:
            with (run.path / "metrics-dropped.jsonl").open("ab") as file:
                file.write(b"".join(line + b"\n" for line in dropped))
        write_atomically(run.metrics_path, b"".join(line + b"\n" for line in kept))
    return len(dropped)


def save_selection(run: Run, ranking: dict[str, Any]) -> None:
    """How a jump-start's agent was chosen."""
    write_json(run.selection_path, without_nan(ranking))


def version() -> str:
    """Of kmyriad, as it was installed."""
    return metadata.version("kmyriad")


def _current_versions() -> dict[str, str]:
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {
        "python": platform.python_version(),
        "kmyriad": version(),
        **libraries,
        "platform": platform.platform(),
    }


def _read_metrics(run: Run) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines, without their newlines, and the rows they hold."""
    with os_errors(f"read {run.metrics_path}"):
        try:
            *lines, _torn = read_file(run.metrics_path).split(b"\n")
        except FileNotFoundError:
            return []
    return [(line, _parse_row(run, f"line {number}", line)) for number, line in enumerate(lines, start=1)]


def _parse_row(run: Run, place: str, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or type(row.get("iteration")) is not int:
        raise UsageError(
            f"{place} of {run.metrics_path} is damaged: {line[:40]!r} is no JSON object with an 'iteration'; "
            "remove or mend the line"
        )
    return row
