"""Train and measure what a plan asks for. A run that was measured need not be there any more."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from kmyriad.config import JumpstartConfig, config_from_json
from kmyriad.exporters.pack import pack
from kmyriad.reproduction.commits import note_commit
from kmyriad.reproduction.measured import Measured, measured_path, read_all, write_measured
from kmyriad.reproduction.measures import measure
from kmyriad.reproduction.plan import SIZES, Method, Size, mapped, pack_of, sources_of
from kmyriad.runs.files import os_errors
from kmyriad.runs.progress import say
from kmyriad.runs.run import open_run
from kmyriad.sweeps.conduct import State, Task
from kmyriad.sweeps.plan import Job, Plan
from kmyriad.sweeps.sweep import Place, cores, is_done, perform_all, steps_of, train_config
from kmyriad.sweeps.table import Steps

TRAIN_AND_MEASURE = f"{__name__}:train_and_measure"


def train_all(plan: Plan, size: Size, method: Method, on: Place = "processes", processes: int | None = None) -> None:
    """Train, measure and pack what is left of a plan."""
    done = read_all(plan.folder, plan.jobs, size, method)
    tasks = [_task(job, plan, done, size, method) for job in plan.jobs]
    watched = {job.name: partial(steps_made, job, plan.folder, job.name in done) for job in plan.jobs}
    perform_all(plan, tasks, watched, on, processes)


def steps_made(job: Job, folder: Path, is_measured: bool) -> Steps:
    """How far a job is; what was measured has made all of its steps, whether the run is there or not."""
    made = steps_of(job, folder / job.name)
    return made._replace(done=made.total) if is_measured else made


def _task(job: Job, plan: Plan, done: dict[str, Measured], size: Size, method: Method) -> Task:
    waiting = [other for other in plan.jobs if other.after == job.name and other.name not in done]
    needs_pack = not pack_of(plan.folder, job.name).exists() and any(map(_is_jump_start, waiting))
    if job.name in done and needs_pack and not is_done(job, plan.folder / job.name):
        say(
            f"{job.name} is trained again: {len(waiting)} runs start from it, and its pack is not in"
            f" {pack_of(plan.folder, job.name).parent}; bring it there to save that",
            style="yellow",
        )
    arguments = {
        "folder": str(plan.folder),
        "name": job.name,
        "config": job.config.as_json(),
        "after": job.after,
        "size": size,
        "method": method,
    }
    state = State.DONE if job.name in done and not needs_pack else State.WAITING
    return Task(job.name, TRAIN_AND_MEASURE, arguments, job.after, job.config.run.threads or cores(), state)


def _is_jump_start(job: Job) -> bool:
    return isinstance(job.config, JumpstartConfig)


def train_and_measure(
    folder: str, name: str, config: dict[str, Any], after: str | None, size: Size, method: Method
) -> None:
    """Train one run in `folder`, or go on with it; then measure it, and pack it if others start from it.

    Called by a process of its own, on whatever machine.
    """
    job, runs, scale = Job(name, config_from_json(config), after), Path(folder), SIZES[size]
    path = runs / name
    if not is_done(job, path):
        if after is not None and not _is_jump_start(job):
            _begin_as(runs / after, path)
        note_commit(path)
        train_config(job.config, path)
    run = open_run(path)
    if not measured_path(runs, name).exists():
        say(f"measuring {name}")
        write_measured(runs, job, size, method, measure(run, scale, shows_where=name in mapped(size)))
    if name in sources_of(size) and not pack_of(runs, name).exists():
        pack(run, pack_of(runs, name), page=False, episodes=scale.episodes, threads=1)


def _begin_as(shorter: Path, path: Path) -> None:
    """Put a copy of a shorter run at `path`, to be gone on with; not if there is one already, or nothing to copy."""
    if path.exists() or not (shorter / "config.json").exists():
        return
    partly = path.with_name(f".{path.name}.partly")
    with os_errors(f"copy {shorter} to {path}", "free some space"):
        shutil.rmtree(partly, ignore_errors=True)  # of a copy that was killed
        shutil.copytree(shorter, partly)
        partly.rename(path)
