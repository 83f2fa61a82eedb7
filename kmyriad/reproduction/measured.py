"""What a finished run told, in one small file: all that figures and verdicts take from it, so that the run may go."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmyriad.config import config_from_json, settings_of
from kmyriad.errors import UsageError
from kmyriad.reproduction.plan import Method, Size
from kmyriad.runs.files import os_errors, read_json, without_nan, write_atomically
from kmyriad.sweeps.plan import Job

FORMAT = 1
"""Of the file, and of what is measured and how: a number that is measured in another way is another format."""
FREE = ("source", "threads", "device", "checkpoint_every", "keep_checkpoints", "wandb")
"""Settings that may differ between campaigns: they change no number."""


@dataclass(frozen=True)
class Measured:
    """What one run told."""

    measures: dict[str, float | None]
    """Numbers of fresh episodes, and of training as a whole."""
    curve: dict[str, list[float]]
    """"iteration", "env_steps" and "entropy" or "success", as long as each other."""
    maps: list[dict[str, Any]] = field(default_factory=list)
    """Where it went, as `Grid` has it: one for all agents together, or, of two agents, one of each."""
    points: list[list[list[int]]] = field(default_factory=list)
    """Some of the states of each agent, x and y in centimetres."""
    commits: list[str] = field(default_factory=list)
    """That trained it."""

    @property
    def rows(self) -> list[dict[str, float]]:
        """The curve as figures take it."""
        return [dict(zip(self.curve, row, strict=True)) for row in zip(*self.curve.values(), strict=True)]


def measured_path(folder: Path, name: str) -> Path:
    """Beside the `folder` of the runs."""
    return folder.with_name("measured") / f"{name}.json"


def write_measured(folder: Path, job: Job, size: Size, method: Method, told: Measured) -> None:
    """Keep what the run of a job told, a line for each part of it."""
    path = measured_path(folder, job.name)
    about = {"format": FORMAT, "run": job.name, "size": size, "method": method, "settings": job.config.as_json()}
    parts = (f"{json.dumps(name)}: {_compact(part)}" for name, part in (about | vars(told)).items())
    with os_errors(f"write {path}", "free some space"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def read_measured(folder: Path, job: Job, size: Size, method: Method) -> Measured | None:
    """What the run of a job told, None if nothing was kept; UsageError if it is not of the run that is planned."""
    path = measured_path(folder, job.name)
    if not path.exists():
        return None
    content = read_json(path)
    for name, asked in (("format", FORMAT), ("size", size), ("method", method), ("run", job.name)):
        _check(path, name, content.get(name), asked)
    try:
        found = settings_of(config_from_json(content["settings"]))
        told = Measured(**{name: content[name] for name in Measured.__dataclass_fields__})
    except (KeyError, UsageError) as error:
        raise UsageError(f"{path} is damaged: {error}; restore it, or remove it to train the run again") from error
    for name, value in settings_of(job.config).items():
        if name not in FREE:
            _check(path, name, found.get(name), value)
    return told


def read_all(folder: Path, jobs: Iterable[Job], size: Size, method: Method) -> dict[str, Measured]:
    """By name, what those runs told that have ended."""
    found = {job.name: read_measured(folder, job, size, method) for job in jobs}
    return {name: told for name, told in found.items() if told is not None}


def _check(path: Path, name: str, found: Any, asked: Any) -> None:
    if found != asked:
        raise UsageError(
            f"{path} was measured with {name} = {found!r}, and {asked!r} is asked for; choose another --out, or remove"
            " the file to train the run again"
        )


def _compact(content: Any) -> str:
    return json.dumps(without_nan(content), separators=(",", ":"), allow_nan=False)
