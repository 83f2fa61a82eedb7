"""A sweep: all runs of a plan, trained side by side. Whatever stops it, the same call goes on where it was."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from kmyriad.checks import Between, checked, is_number
from kmyriad.config import JumpstartConfig, PretrainConfig, config_from_json
from kmyriad.errors import TrainingStoppedError, UsageError, nearest_name
from kmyriad.runs.progress import HEADLINES
from kmyriad.runs.resume import check_same
from kmyriad.runs.run import Run, open_run
from kmyriad.sweeps.conduct import State, Task, conduct
from kmyriad.sweeps.executors import Executor, Processes, Ray, Submitit
from kmyriad.sweeps.plan import Job, Plan, make_plan, read_plan
from kmyriad.sweeps.table import Steps, SweepTable
from kmyriad.training.jumpstart import fine_tune
from kmyriad.training.pretrain import train

PLACES = ("processes", "slurm", "ray")
Place = Literal["processes", "slurm", "ray"]
TRAIN_JOB = "kmyriad.sweeps.sweep:train_job"

CONTROL = ".sweep"
"""Folder beside the runs with each run's settings, log and outcome; hidden, so that `runs/x/*` names runs alone."""


def sweep(
    plan: str | Path | Mapping[str, Any] | Plan,
    *,
    folder: str | Path | None = None,
    on: Place = "processes",
    processes: int | None = None,
    retries: int = 1,
) -> list[Run]:
    """Train all runs of a plan and return them in its order; same as `kmyriad sweep`.

    Call it again to go on: runs that are finished are left alone, all others are resumed.

    Args:
        plan: a TOML file, or what such a file holds.
        folder: where the runs go; by default what the plan says, else `runs/<name of the file>`.
        on: "processes" of this machine, "slurm" (through submitit) or "ray".
        processes: runs at a time; by default one per core, and no limit on a cluster.
        retries: how often a run that failed is tried again.
    """
    if not isinstance(plan, Plan):
        plan = plan_of(plan, folder)
    tasks = [_task(job, plan.folder) for job in plan.jobs]
    watched = {job.name: partial(steps_of, job, plan.folder / job.name) for job in plan.jobs}
    perform_all(plan, tasks, watched, on, processes, retries)
    return [open_run(plan.folder / job.name) for job in plan.jobs]


def perform_all(
    plan: Plan,
    tasks: Sequence[Task],
    watched: Mapping[str, Callable[[], Steps]],
    on: Place = "processes",
    processes: int | None = None,
    retries: int = 1,
) -> None:
    """Bring all tasks of a plan's runs to their end, and show how far those `watched` are."""
    _check_arguments(on, processes, retries)
    _check_runs(plan)
    with SweepTable(watched) as table:
        if any(task.state == State.WAITING for task in tasks):
            conduct(tasks, executor_on(on, plan, processes), plan.folder / CONTROL, retries, table.show)
    failed = [task for task in tasks if task.state != State.DONE]
    if failed:
        raise TrainingStoppedError(
            f"{len(failed)} of {len(tasks)} runs failed, the first of them {failed[0].name}: {failed[0].outcome.error};"
            f" logs are in {plan.folder / CONTROL}, and the same command tries again"
        )


def plan_of(plan: str | Path | Mapping[str, Any], folder: str | Path | None = None) -> Plan:
    """A plan from a TOML file, or from what such a file holds."""
    if isinstance(plan, Mapping):
        return make_plan(plan, folder or plan.get("folder") or Path("runs") / "sweep")
    return read_plan(plan, folder)


def executor_on(place: Place, plan: Plan, processes: int | None) -> Executor:
    """Where the runs are trained."""
    if place == "slurm":
        parameters = dict(plan.slurm)
        return Submitit(plan.folder / CONTROL / "slurm", parameters, processes, parameters.pop("cluster", "slurm"))
    return Ray(processes) if place == "ray" else Processes(processes or cores())


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def train_job(out: str, config: dict[str, Any]) -> None:
    """Train one run in the folder `out`, or go on with it. Called by a process of its own."""
    train_config(config_from_json(config), Path(out))


def train_config(asked: PretrainConfig | JumpstartConfig, path: Path) -> None:
    """Train a run in the folder `path`, or go on with it."""
    resume = os.path.exists(Run(path).config_path)
    if isinstance(asked, PretrainConfig):
        train(asked, path, resume)
    else:
        fine_tune(asked, path, resume)


def is_done(job: Job, path: Path) -> bool:
    """Whether the run has made all steps that the plan asks for."""
    steps = steps_of(job, path)
    return steps.done >= steps.total


def _check_runs(plan: Plan) -> None:
    """Refuse a plan that asks for other settings than the runs have that are there."""
    for job in plan.jobs:
        run = Run(plan.folder / job.name)
        if os.path.exists(run.config_path):
            check_same(job.config, run)


def _task(job: Job, folder: Path) -> Task:
    path = folder / job.name
    arguments = {"out": str(path), "config": job.config.as_json()}
    state = State.DONE if is_done(job, path) else State.WAITING
    return Task(job.name, TRAIN_JOB, arguments, job.after, job.config.run.threads or cores(), state)


def steps_of(job: Job, path: Path) -> Steps:
    """How far the run of a job is."""
    try:
        row = Run(path).last_row()
    except UsageError:  # damaged: its own process will say so
        row = {}
    done = row.get("env_steps", 0)
    reached = [f"{name} {row[name]:.2f}" for name in HEADLINES if is_number(row.get(name))]
    return Steps(done if isinstance(done, int) else 0, job.config.run.total_steps, "  ".join(reached))


def _check_arguments(on: str, processes: int | None, retries: int) -> None:
    if on not in PLACES:
        raise UsageError(f"unknown place {on!r}{nearest_name(str(on), PLACES)}")
    checked("processes", processes, Annotated[int, Between(1, 100_000)] | None)
    checked("retries", retries, Annotated[int, Between(0, 100_000)])
