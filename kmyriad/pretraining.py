"""Pretraining without reward: the paper's Algorithm 1."""

import math
import time
from pathlib import Path
from typing import Any

import torch

from kmyriad.checkpoint import newest_checkpoint
from kmyriad.config import PretrainConfig, config_from, replicas_per_agent
from kmyriad.critic import Critic
from kmyriad.envs.replicas import Replicas, make_replicas
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.journal import Journal, Schedule
from kmyriad.metrics import epoch_metrics, timings
from kmyriad.normaliser import Normaliser
from kmyriad.particles import Novelty, estimate_entropy, estimate_novelty, slide
from kmyriad.population import Population, action_spec
from kmyriad.presets import preset as preset_config
from kmyriad.progress import say
from kmyriad.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout import ParallelTrajectory, collect
from kmyriad.runs import Run, create_run, open_run, truncate_metrics
from kmyriad.training_state import TrainingState
from kmyriad.updates.actor_critic import actor_critic, standardised
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
    preset: str = "quick",
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Train a population without reward and return the run's folder; same names and defaults as `kmyriad pretrain`.

    Args:
        env: the world, such as "ant-maze", or any Gymnasium id.
        preset: settings to start from: "quick", "desk" or "paper".
        out: the run's folder; by default a new one below `runs/`.
        resume: go on from the newest good checkpoint in `out`; the run's own settings hold.
        settings: any field of `PretrainConfig`, on top of the preset.
    """
    agents = settings.get("agents", 10)
    base = config_from(open_run(_folder(out)).config) if resume else preset_config(preset, env, agents)
    settings["env_settings"] = base.env_settings | settings.get("env_settings", {})
    return train(config_from(settings, base), out, resume)


def train(config: PretrainConfig, out: str | Path | None = None, resume: bool = False) -> Run:
    """Run Algorithm 1 with `config` in the folder `out`."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    replicas = make_replicas(
        config.env,
        config.replica_count,
        horizon=config.horizon,
        features=config.features,
        settings=config.env_settings,
        threads=config.threads,
    )
    try:
        state = initial_state(config, replicas)
        run = _resume(config, _folder(out), state, replicas) if resume else _create(config, out)
        schedule = Schedule(
            config.epochs,
            config.checkpoint_every or config.epochs_per_horizon,
            config.keep_checkpoints,
            saves_replicas=config.has_segments,
        )
        with Journal(run, schedule, replicas, state.epoch) as journal:
            algorithm_1(config, replicas, state, journal)
    finally:
        replicas.close()
    return run


def algorithm_1(config: PretrainConfig, replicas: Replicas, state: TrainingState, journal: Journal) -> None:
    """The paper's loop, from the epoch after `state`'s to the last."""
    while state.epoch < config.epochs:
        started = time.perf_counter()
        state.epoch += 1
        assign_policies_to_processes(config, replicas, state.epoch)
        trajectory = collect(
            replicas,
            state.population,
            config.epoch_steps,
            config.seed,
            state.epoch,
            keep_arrivals=state.critic is not None,
        )
        state.pool = slide(state.pool, trajectory, config.epochs_per_horizon)
        novelty, report = update(config, state, trajectory)

        state.count(trajectory.steps, good_gradient=math.isfinite(report.gradient_norm))
        row = epoch_metrics(config, replicas.cell, state, trajectory, novelty, report)
        journal.record(state, row | timings(trajectory.steps, time.perf_counter() - started))
        if state.bad_gradients >= BAD_GRADIENTS_ALLOWED:
            journal.save(state)
            raise TrainingStoppedError(
                f"the gradient was not finite in {BAD_GRADIENTS_ALLOWED} epochs in a row, up to epoch {state.epoch};"
                " the last checkpoint has the weights from before, try a lower learning_rate"
            )


def assign_policies_to_processes(config: PretrainConfig, replicas: Replicas, epoch: int) -> None:
    """Put the replicas where the epoch begins. Replica i is agent i // (replicas per agent)'s, always.

    Whole horizons begin with a reset; segments go on, from ages staggered once in the beginning.
    """
    if not config.has_segments or epoch == 1:
        replicas.start(reset_seed(config.seed, epoch))
        if config.has_segments:
            replicas.stagger(replicas_per_agent(config.agents, config.replica_count))


def update(
    config: PretrainConfig, state: TrainingState, trajectory: ParallelTrajectory
) -> tuple[Novelty, UpdateReport]:
    """Estimate the pool's entropy and improve the population by the rule that `config` names."""
    population, optimizer = state.population, state.optimizer
    if state.critic is not None:
        novelty = estimate_novelty(state.pool, config.k)
        settings = config.actor_critic
        # (1 - gamma) makes returns as large as rewards, so that the critic learns them at any gamma.
        rewards = (1 - config.gamma) * standardised(novelty.rewards, trajectory.sound)
        rng = generator(config.seed, state.epoch, SHUFFLING)
        report = actor_critic(population, state.critic, optimizer, trajectory, rewards, settings, rng)
    else:
        state.set_learning_rate(config)
        novelty = estimate = estimate_entropy(state.pool, config.k)
        if config.update == "reinforce":
            report = reinforce(population, optimizer, trajectory, estimate, config.chunk)
        else:
            report = trust_region(
                population,
                optimizer,
                trajectory,
                estimate,
                config.chunk,
                kl_bound=config.kl_bound,
                max_steps=config.trust_region_steps,
            )
    if isinstance(population.normaliser, Normaliser):
        population.normaliser.see(trajectory.observations[torch.from_numpy(trajectory.sound)])
    return novelty, report


def initial_state(config: PretrainConfig, replicas: Replicas) -> TrainingState:
    """A population that has learned nothing yet."""
    if config.has_segments and not replicas.can_be_saved:
        raise UsageError(
            f"segments need an environment whose state can be saved, which {config.env!r} is not; leave segment out"
        )
    population = Population(
        config.agents,
        replicas.observation_size,
        action_spec(replicas.action_space),
        trunk=config.trunk,
        adapter=config.adapter,
        activation=config.activation,
        initial_sigma=config.initial_sigma,
        sigma_range=(config.sigma_min, config.sigma_max),
        normalises=config.normalise_observations,
        seed=config.seed,
    )
    parameters, critic = [*population.parameters()], None
    if config.update == "actor_critic":
        critic = Critic(config.agents, replicas.observation_size, config.critic, config.activation, config.seed)
        parameters += critic.parameters()
    return TrainingState(population, torch.optim.Adam(parameters, lr=config.learning_rate, fused=True), critic)


def _create(config: PretrainConfig, out: str | Path | None) -> Run:
    """A new run in the folder asked for, or in the first free `runs/<world>-<agents>-agents-seed-<seed>[-<n>]`."""
    if out is not None:
        return create_run(Path(out), config.as_json())
    name = f"{config.env.replace('/', '-')}-{config.agents}-agents-seed-{config.seed}"
    candidates = (Path("runs") / (name if index == 1 else f"{name}-{index}") for index in range(1, 10**6))
    return create_run(next(path for path in candidates if not path.exists()), config.as_json())


def _resume(config: PretrainConfig, folder: Path, state: TrainingState, replicas: Replicas) -> Run:
    """The run in `folder`, with `state` and `replicas` put to where its newest good checkpoint was."""
    run = open_run(folder)
    _check_same(config, config_from(run.config), run)
    newest = newest_checkpoint(run.checkpoints)
    if newest is not None:
        for sentence in newest.skipped:
            say(f"[yellow]skipped:[/] {sentence}")
        state.restore(newest.checkpoint, replicas if config.has_segments else None)
    truncate_metrics(run, state.epoch)
    return run


def _folder(out: str | Path | None) -> Path:
    if out is None:
        raise UsageError("resume needs the run's folder; give it with out")
    return Path(out)


def _check_same(asked: PretrainConfig, stored: PretrainConfig, run: Run) -> None:
    """Refuse to resume under settings that would make it another run."""
    wanted = asked.as_json()
    for name, value in stored.as_json().items():
        if name not in CHANGEABLE and wanted[name] != value:
            raise UsageError(
                f"{run.path} was started with {name} = {value!r} and cannot go on with {wanted[name]!r};"
                " leave it out, or start a new run"
            )
