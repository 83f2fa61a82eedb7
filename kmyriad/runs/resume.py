"""Begin a run in a new folder, or go on with one: what pretraining and jump-starts have in common."""

from collections.abc import Callable
from pathlib import Path

from kmyriad.config import TrainingConfig
from kmyriad.errors import UsageError
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.logger import Journal, Schedule
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, create_run, open_run, truncate_metrics
from kmyriad.runs.state import TrainingState
from kmyriad.runs.tensor_file import newest_checkpoint

CHANGEABLE = ("epochs", "threads", "checkpoint_every", "keep_checkpoints")
"""What may differ when a run is resumed; everything else decides what it computes."""


def conduct(
    config: TrainingConfig, run: Run, replicas: Replicas, state: TrainingState, loop: Callable[[Journal], None]
) -> None:
    """Let `loop` train, from `state` to the last epoch, with a journal in the run's folder."""
    schedule = Schedule(
        config.epochs,
        config.checkpoint_every or config.epochs_per_horizon,
        config.keep_checkpoints,
        saves_replicas=config.has_segments,
    )
    with Journal(run, schedule, replicas, state.epoch) as journal:
        loop(journal)


def begin(config: TrainingConfig, out: str | Path | None) -> Run:
    """A new run in the folder asked for, or in the first free `runs/<name>[-<n>]`."""
    if out is not None:
        return create_run(Path(out), config.as_json())
    candidates = (Path("runs") / (config.name if index == 1 else f"{config.name}-{index}") for index in range(1, 10**6))
    return create_run(next(path for path in candidates if not path.exists()), config.as_json())


def go_on(config: TrainingConfig, stored: TrainingConfig, run: Run, state: TrainingState, replicas: Replicas) -> None:
    """Put `state` and `replicas` to where the run's newest good checkpoint was; `stored` are the run's own settings."""
    _check_same(config, stored, run)
    newest = newest_checkpoint(run.checkpoints)
    if newest is not None:
        for sentence in newest.skipped:
            say(f"[yellow]skipped:[/] {sentence}")
        state.restore(newest.checkpoint, replicas if config.has_segments else None)
    truncate_metrics(run, state.epoch)


def run_to_resume(out: str | Path | None, command: str) -> Run:
    """The run in `out`, which `command` must have made."""
    if out is None:
        raise UsageError("resume needs the run's folder; give it with out")
    run = open_run(out)
    if run.command != command:
        raise UsageError(f"{run.path} is a {run.command} run; resume it with: kmyriad {run.command}")
    return run


def _check_same(asked: TrainingConfig, stored: TrainingConfig, run: Run) -> None:
    """Refuse to resume under settings that would make it another run."""
    wanted = asked.as_json()
    for name, value in stored.as_json().items():
        if name not in CHANGEABLE and wanted[name] != value:
            raise UsageError(
                f"{run.path} was started with {name} = {value!r} and cannot go on with {wanted[name]!r};"
                " leave it out, or start a new run"
            )
