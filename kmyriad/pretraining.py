"""Pretraining without reward: the paper's Algorithm 1."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from kmyriad.checkpoint import CheckpointError, checkpoint_path, newest_checkpoint, prune_checkpoints, write_checkpoint
from kmyriad.config import PretrainConfig, config_from, replicas_per_agent
from kmyriad.envs.replicas import Replicas, make_replicas
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.metrics import epoch_metrics
from kmyriad.particles import Estimate, Segment, estimate_entropy, slide
from kmyriad.population import Population, action_spec
from kmyriad.presets import preset as preset_config
from kmyriad.progress import EpochProgress
from kmyriad.randomness import reset_seed
from kmyriad.rollout import ParallelTrajectory, collect
from kmyriad.runs import Run, append_metrics, create_run, open_run, save_last_epoch, truncate_metrics
from kmyriad.training_state import TrainingState
from kmyriad.updates.ascent import UpdateReport
from kmyriad.updates.reinforce import reinforce
from kmyriad.updates.trust_region import trust_region

BAD_GRADIENTS_ALLOWED = 3
"""A non-finite gradient is skipped; this many in a row stop the run."""

CHANGEABLE = ("epochs", "threads", "checkpoint_every", "keep_checkpoints")
"""What may differ when a run is resumed; everything else decides what it computes."""


def pretrain(
    env: str = "ant-empty",
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Train a population without reward and return the run's folder; same names and defaults as `kmyriad pretrain`.

    Args:
        env: the world, such as "ant-maze", or any Gymnasium id.
        preset: settings to start from: "paper" or "quick".
        out: the run's folder; by default a new one below `runs/`.
        resume: go on from the newest good checkpoint in `out`.
        settings: any field of `PretrainConfig`, on top of the preset.
    """
    base = PretrainConfig(env=env) if preset is None else preset_config(preset, env, settings.get("agents", 10))
    if resume:
        base = config_from(open_run(_folder(out)).config)
    return train(config_from(settings, base), out, resume)


def train(config: PretrainConfig, out: str | Path | None = None, resume: bool = False) -> Run:
    """Run Algorithm 1 with `config` in the folder `out`."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    replicas = make_replicas(
        config.env,
        config.replicas,
        horizon=config.horizon,
        features=config.features,
        settings=config.env_settings,
        threads=config.threads,
    )
    try:
        state = initial_state(config, replicas)
        run, done = _open(config, out, resume, state, replicas)
        with EpochProgress(config.epochs, done) as progress, _tensorboard(run, done) as board:
            progress.say(f"run {run.path}")
            _loop(config, run, replicas, state, progress, board)
    finally:
        replicas.close()
    return run


def _loop(
    config: PretrainConfig,
    run: Run,
    replicas: Replicas,
    state: TrainingState,
    progress: EpochProgress,
    board: SummaryWriter,
) -> None:
    """Algorithm 1, one epoch a turn."""
    steps = config.segment or config.horizon
    per_agent = replicas_per_agent(config.agents, config.replicas)  # policies to processes: replica i is agent i // p's
    unsaved: CheckpointError | None = None
    for epoch in range(state.epoch + 1, config.epochs + 1):
        started = time.perf_counter()
        if config.segment is None or epoch == 1:
            replicas.start(reset_seed(config.seed, epoch))
            if config.segment is not None:
                replicas.stagger(per_agent)

        trajectory = collect(replicas, state.population, steps, config.seed, epoch)
        state.pool = slide(state.pool, trajectory, config.horizon // steps)
        estimate = estimate_entropy(state.pool, config.k)
        rate = state.set_learning_rate(config, epoch)
        report = _update(config, state, trajectory, estimate)

        state.epoch = epoch
        state.env_steps += trajectory.steps
        state.bad_gradients = 0 if report.steps else state.bad_gradients + 1
        state.skipped_updates += report.steps == 0
        row = epoch_metrics(
            epoch=epoch,
            seed=config.seed,
            k=config.k,
            cell=replicas.cell,
            pool=state.pool,
            estimate=estimate,
            trajectory=trajectory,
            population=state.population,
            report=report,
            env_steps=state.env_steps,
            learning_rate=rate,
            skipped_updates=state.skipped_updates,
        )
        row["seconds"] = time.perf_counter() - started
        row["steps_per_second"] = trajectory.steps / row["seconds"]
        _log(run, board, progress, row)
        stopping = state.bad_gradients >= BAD_GRADIENTS_ALLOWED
        if epoch % config.checkpoint_every == 0 or epoch == config.epochs or stopping:
            unsaved = _save(config, run, replicas, state, progress)
        if stopping:
            raise TrainingStoppedError(
                f"the gradient was not finite in {BAD_GRADIENTS_ALLOWED} epochs in a row, up to epoch {epoch};"
                f" the weights in {run.checkpoints} are from before, try a lower learning_rate"
            )
    if unsaved is not None:
        raise unsaved


def _update(
    config: PretrainConfig, state: TrainingState, trajectory: ParallelTrajectory, estimate: Estimate
) -> UpdateReport:
    if config.update == "reinforce":
        return reinforce(state.population, state.optimizer, trajectory, estimate, config.chunk)
    return trust_region(
        state.population,
        state.optimizer,
        trajectory,
        estimate,
        config.chunk,
        kl_bound=config.kl_bound,
        max_steps=config.trust_region_steps,
    )


def initial_state(config: PretrainConfig, replicas: Replicas) -> TrainingState:
    """A population that has learned nothing yet."""
    population = Population(
        config.agents,
        replicas.observation_size,
        action_spec(replicas.action_space),
        trunk=config.trunk,
        adapter=config.adapter,
        initial_sigma=config.initial_sigma,
        sigma_range=(config.sigma_min, config.sigma_max),
        seed=config.seed,
    )
    if config.segment is not None and not replicas.can_be_saved:
        raise UsageError(
            f"segments need an environment whose state can be saved, which {config.env!r} is not; leave segment out"
        )
    return TrainingState(population, torch.optim.Adam(population.parameters(), lr=config.learning_rate))


def _open(
    config: PretrainConfig, out: str | Path | None, resume: bool, state: TrainingState, replicas: Replicas
) -> tuple[Run, int]:
    """A new run's folder, or an old one with `state` and `replicas` put to where its newest good checkpoint was."""
    if not resume:
        return create_run(_folder(out, config), config.as_json()), 0
    run = open_run(_folder(out))
    _check_same(config, config_from(run.config), run)
    newest = newest_checkpoint(run.checkpoints)
    if newest is not None:
        for sentence in newest.skipped:
            EpochProgress(1, 0).say(f"[yellow]skipped:[/] {sentence}")
        state.restore(newest.checkpoint, replicas if config.segment is not None else None)
    truncate_metrics(run, state.epoch)
    return run, state.epoch


def _save(
    config: PretrainConfig,
    run: Run,
    replicas: Replicas,
    state: TrainingState,
    progress: EpochProgress,
) -> CheckpointError | None:
    """Write a checkpoint. A full disk does not end the run: the old checkpoint stays, the user is told, we go on."""
    try:
        checkpoint = state.checkpoint(replicas if config.segment is not None else None)
        write_checkpoint(checkpoint_path(run.checkpoints, state.epoch), checkpoint)
        prune_checkpoints(run.checkpoints, config.keep_checkpoints)
        save_last_epoch(run, _visited(state.pool))
    except CheckpointError as error:
        progress.say(f"[yellow]checkpoint of epoch {state.epoch} not saved:[/] {error}")
        return error
    return None


def _visited(pool: list[Segment]) -> dict[str, NDArray[Any]]:
    """What figures need of the last horizon: features, positions and soundness of every step, (m, p, T, ...)."""
    names = ["features", "sound"] + ["xy"] * (pool[-1].xy is not None)
    return {name: np.concatenate([getattr(segment, name) for segment in pool], axis=2) for name in names}


def _log(run: Run, board: SummaryWriter, progress: EpochProgress, row: dict[str, Any]) -> None:
    try:
        append_metrics(run, row)
    except UsageError as error:  # a full disk: training goes on
        progress.say(f"[yellow]metrics of epoch {row['epoch']} not saved:[/] {error}")
    for name, value in row.items():
        if isinstance(value, int | float):
            board.add_scalar(name, value, row["epoch"])
    for head in row["still_heads"]:
        board.add_text("still_heads", f"head {head} stands still", row["epoch"])
    if row["still_heads"] and row["epoch"] % 10 == 0:
        heads = ", ".join(map(str, row["still_heads"]))
        progress.say(f"[yellow]epoch {row['epoch']}: standing still:[/] head {heads}")
    progress.update(row)


def _tensorboard(run: Run, done: int) -> SummaryWriter:
    return SummaryWriter(str(run.path / "tensorboard"), purge_step=done + 1)


def _folder(out: str | Path | None, config: PretrainConfig | None = None) -> Path:
    """The folder asked for, or the first free `runs/<world>-<agents>-agents-seed-<seed>[-<n>]`."""
    if out is not None:
        return Path(out)
    if config is None:
        raise UsageError("resume needs the run's folder; give it with out")
    name = f"{config.env.replace('/', '-')}-{config.agents}-agents-seed-{config.seed}"
    candidates = (Path("runs") / (name if index == 1 else f"{name}-{index}") for index in range(1, 10**6))
    return next(path for path in candidates if not path.exists())


def _check_same(asked: PretrainConfig, stored: PretrainConfig, run: Run) -> None:
    """Refuse to resume under settings that would make it another run."""
    for name, value in stored.as_json().items():
        if name not in CHANGEABLE and asked.as_json()[name] != value:
            raise UsageError(
                f"{run.path} was started with {name} = {value!r} and cannot go on with {asked.as_json()[name]!r};"
                " leave it out, or start a new run"
            )
