"""Begin a run in a new folder, or go on with one: what pretraining and jump-starts have in common."""

from pathlib import Path

from kmyriad.config import JumpstartConfig, PretrainConfig, settings_of
from kmyriad.errors import UsageError
from kmyriad.processes import agreed, leads
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.checkpoints import newest_checkpoint
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, create_run, open_run, replace_config, truncate_metrics
from kmyriad.runs.state import TrainingState
from kmyriad.torchrun import restarts

CHANGEABLE = ("total_steps", "threads", "device", "checkpoint_every", "keep_checkpoints", "wandb")
"""What may differ when a run is resumed; everything else decides what it computes."""

LEFT_OPEN = ("features", "feature_scale")
"""What the environment fills in where nothing was asked for."""


def begin(config: PretrainConfig | JumpstartConfig, out: str | Path | None) -> Run:
    """A new run in the folder asked for, or in the first free `runs/<name>[-<n>]`."""
    made = _new_run(config, out) if leads() else None
    path = agreed("" if made is None else str(made.path))
    return made or open_run(path)


def _new_run(config: PretrainConfig | JumpstartConfig, out: str | Path | None) -> Run:
    if out is not None:
        return create_run(Path(out), config)
    candidates = (Path("runs") / (config.name if index == 1 else f"{config.name}-{index}") for index in range(1, 10**6))
    return create_run(next(path for path in candidates if not path.exists()), config)


def goes_on_by_itself(out: str | Path | None) -> bool:
    """Whether torchrun has started a run again that had begun: it goes on, whatever the command said."""
    if restarts() and out is None:
        raise UsageError(
            "torchrun has started the processes again, and which run they were at is not known; give --out"
        )
    return restarts() > 0 and out is not None and (Path(out) / "config.json").exists()


def run_to_resume(out: str | Path | None, command: str) -> Run:
    """The run in `out`, which `command` must have made."""
    if out is None:
        raise UsageError("resume needs the run's folder; give it with out")
    run = open_run(out)
    if run.file is not None:
        raise UsageError(f"{out} is a packed run, which cannot be resumed; jump-start from it, or resume its folder")
    if run.command != command:
        raise UsageError(f"{run.path} is a {run.command} run; resume it with: kmyriad {run.command}")
    if not run.checkpoints.is_dir():
        raise UsageError(
            f"{run.checkpoints} is gone, and with it what {run.path} could go on from; restore it or start a new run"
        )
    return run


def go_on(config: PretrainConfig | JumpstartConfig, run: Run, state: TrainingState, replicas: Replicas | None) -> None:
    """Put `state`, and `replicas` where iterations end in mid-episode, to where the newest good checkpoint was."""
    check_same(config, run)
    if config != run.config and leads():  # a larger budget, other threads
        replace_config(run, config)
    newest = newest_checkpoint(run.checkpoints)
    if newest is not None:
        state.restore(newest.content, replicas)
        if replicas is not None and not replicas.are_running:
            why = "does not repeat itself" if replicas.can_be_saved else "cannot be put back into an episode"
            say(f"this environment {why}: its episodes begin anew, all else goes on", style="yellow")
    dropped = truncate_metrics(run, state.iteration) if leads() else 0
    if newest is None and dropped:
        say(f"{run.path} has no checkpoint yet: it begins anew, its {dropped} rows are in metrics-dropped.jsonl")


def check_same(asked: PretrainConfig | JumpstartConfig, run: Run) -> None:
    """Refuse to resume under settings that would make it another run."""
    wanted = settings_of(asked)
    for name, value in settings_of(run.config).items():
        is_open = name in LEFT_OPEN and not wanted.get(name)
        if name not in CHANGEABLE and not is_open and wanted.get(name) != value:
            raise UsageError(
                f"{run.path} was started with {name} = {value!r} and cannot go on with {wanted.get(name)!r};"
                " leave it out, or start a new run"
            )
