"""What a sweep consists of: a TOML file with stages of pretraining and jump-starts, each a grid of settings."""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmyriad.checks import shown
from kmyriad.config import JumpstartConfig, PretrainConfig, file_name, settings_of
from kmyriad.engines.source import find_source
from kmyriad.errors import UsageError, nearest_name
from kmyriad.rollout.task import task_of
from kmyriad.runs.files import check_name, os_errors, read_file
from kmyriad.runs.run import open_run
from kmyriad.training.jumpstart import jumpstart_config, with_source
from kmyriad.training.pretrain import pretrain_config

TOP = ("folder", "pretrain", "jumpstart", "slurm")
"""What a file may have at its top level."""

GROUPED = ("env", "update", "agents", "init", "seed", "goal", "source", "total_steps", "preset", "method")
"""Swept settings by which `kmyriad compare` groups, or within which it averages, without being told to."""


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    name: str
    """Of its folder."""
    config: PretrainConfig | JumpstartConfig
    """Of a jump-start with what its source decides."""
    after: str | None = None
    """Name of the job whose run it starts from."""

    @property
    def command(self) -> str:
        return "pretrain" if isinstance(self.config, PretrainConfig) else "jumpstart"


@dataclass(frozen=True)
class Plan:
    folder: Path
    """Where all runs go."""
    jobs: list[Job]
    """Those that others start from come first."""
    by: list[str]
    """Swept settings that tell groups apart in `kmyriad compare --by`."""
    slurm: dict[str, Any] = field(default_factory=dict)
    """Parameters of submitit, such as timeout_min and slurm_partition."""


def read_plan(path: str | Path, folder: str | Path | None = None) -> Plan:
    """The plan in a TOML file; runs go to `folder`, else to where the file says, else to `runs/<name of the file>`."""
    path = Path(path)
    with os_errors(f"read {path}", "check the name"):
        data = read_file(path)
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error}; mend it, or see docs/guides/sweeps.md for an example") from error
    try:
        return make_plan(content, folder or content.get("folder") or Path("runs") / path.stem)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def make_plan(content: Mapping[str, Any], folder: str | Path) -> Plan:
    """The plan that a file's content asks for, with the settings of every run checked."""
    for name in content:
        if name not in TOP:
            raise UsageError(f"unknown {name!r} at the top level{nearest_name(name, TOP)}")
    if not isinstance(folder, str | Path):
        raise UsageError(f"folder must be text; got {shown(folder)}")
    folder = Path(folder)
    stages: dict[str, list[Job]] = {}
    swept: list[str] = []
    for command in ("pretrain", "jumpstart"):
        for stage, told in _table(command, content.get(command, {})).items():
            if stage in stages:
                raise UsageError(f"two stages are called {stage!r}; rename one")
            try:
                settings, grid = _settings_and_grid(told)
                stages[stage] = [*_jobs(command, stage, settings, grid, folder, stages)]
            except UsageError as error:
                raise UsageError(f"{command}.{stage}: {error}") from error
            swept += grid
    jobs = [job for of_stage in stages.values() for job in of_stage]
    if not jobs:
        raise UsageError("there is nothing to train; add a table such as [pretrain.populations] or [jumpstart.best]")
    _check_names(jobs)
    by = [name for name in dict.fromkeys(swept) if name not in GROUPED]
    return Plan(folder, jobs, by, dict(_table("slurm", content.get("slurm", {}))))


def _jobs(
    command: str,
    stage: str,
    settings: dict[str, Any],
    grid: Mapping[str, Sequence[Any]],
    folder: Path,
    stages: Mapping[str, list[Job]],
) -> Iterator[Job]:
    if command == "pretrain":
        for cell in _cells(grid):
            yield Job(_name(stage, cell), _pretraining(settings | cell))
        return
    where = _table("where", settings.get("where", {}))
    plain = {name: value for name, value in settings.items() if name != "where"}
    for cell in _cells(grid):
        asked = plain | cell
        source = asked.get("source")
        if isinstance(source, str) and source in stages:
            sources = _chosen(stages[source], where, source)
            for job in sources:
                start = {"source": str(folder / job.name), "seed": job.config.run.seed}
                told = {name: value for name, value in asked.items() if name != "source"}
                name = _name(f"{stage}{job.name.removeprefix(source)}", {**cell, "source": None})
                yield Job(name, _whole(_jumpstart(start | told), _of_pretraining(job, source)), after=job.name)
        else:
            if where:
                raise UsageError("where chooses among the runs of a stage; name the stage as source, or leave it out")
            yield Job(_name(stage, cell), _whole(_from_elsewhere(_jumpstart(asked), list(stages))))


def _pretraining(settings: Mapping[str, Any]) -> PretrainConfig:
    settings = {"threads": 1} | dict(settings)
    env, size, method = (settings.pop(*one) for one in (("env", "ant-empty"), ("preset", "quick"), ("method", None)))
    config = pretrain_config(env, size, settings, method)
    find_source(config.world.env)
    return config


def _jumpstart(settings: Mapping[str, Any]) -> JumpstartConfig:
    settings = {"threads": 1} | dict(settings)
    return jumpstart_config(settings.pop("source", ""), settings.pop("preset", "quick"), settings)


def _of_pretraining(job: Job, stage: str) -> PretrainConfig:
    if not isinstance(job.config, PretrainConfig):
        raise UsageError(f"source {stage!r} is a stage of jump-starts; name one of pretraining")
    return job.config


def _whole(config: JumpstartConfig, source: PretrainConfig | None = None) -> JumpstartConfig:
    """`config` with its world, if its goal can be reached there: better told now than after hours of pretraining."""
    whole = with_source(config, source)
    if whole.task.goal:
        task_of(whole).replicas(1, threads=1).close()
    return whole


def _from_elsewhere(config: JumpstartConfig, stages: Sequence[str]) -> JumpstartConfig:
    """`config`, if its source is a run outside the sweep, or a world for a random start."""
    source = config.start.source
    if not source:
        raise UsageError("source is missing: name a stage of pretraining, the folder of a run, or a world")
    try:
        if config.start.init == "random" and not Path(source).is_dir():
            find_source(source)
        else:
            open_run(source)
    except UsageError as error:
        raise UsageError(
            f"source {source!r} is no stage ({', '.join(stages) or 'there is none'}), and {error}"
        ) from error
    return config


def _chosen(jobs: Sequence[Job], where: Mapping[str, Any], stage: str) -> list[Job]:
    """Those jobs whose settings are as `where` says; a list stands for any of its values."""
    known = settings_of(jobs[0].config)
    for name in where:
        if name not in known:
            raise UsageError(f"unknown setting {name!r} in where{nearest_name(name, sorted(known))}")
    chosen = [
        job for job in jobs if all(_is_among(settings_of(job.config).get(name), asked) for name, asked in where.items())
    ]
    if not chosen:
        raise UsageError(
            f"no run of stage {stage!r} has {', '.join(f'{key} = {value!r}' for key, value in where.items())}"
        )
    return chosen


def _is_among(value: Any, asked: Any) -> bool:
    plain = list(value) if isinstance(value, tuple) else value
    return bool(plain == asked or (isinstance(asked, list) and plain in asked))


def _settings_and_grid(told: Any) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    settings = dict(_table("the stage", told))
    grid = dict(_table("grid", settings.pop("grid", {})))
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{name} in grid must be a list of values, one at least; got {shown(values)}")
        if name in settings:
            raise UsageError(f"{name} is set both in the stage and in its grid; leave one out")
        if name == "where":
            raise UsageError("where belongs beside grid, not into it")
    return settings, grid


def _cells(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _name(stage: str, cell: Mapping[str, Any]) -> str:
    """`populations-ant-maze-agents-10-seed-0`."""
    parts = [
        _text(value) if name == "env" else f"{name}-{_text(value)}" for name, value in cell.items() if value is not None
    ]
    return file_name("-".join([stage, *parts]))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_names(jobs: Sequence[Job]) -> None:
    names: set[str] = set()
    for job in jobs:
        check_name(Path(job.name))
        if job.name in names:
            raise UsageError(f"two runs would be called {job.name}; give every value of a grid once")
        names.add(job.name)


def _table(name: str, told: Any) -> Mapping[str, Any]:
    if not isinstance(told, Mapping):
        raise UsageError(f"{name} must be a table of names and values; got {shown(told)}")
    return told
