"""Pretraining without reward: the paper's Algorithm 1."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.config import PretrainConfig, TrainingConfig, config_from, replicas_per_agent
from kmyriad.errors import UsageError
from kmyriad.objective.rewards import Novelty, estimate_entropy, estimate_novelty, slide
from kmyriad.population.distributions import action_spec
from kmyriad.population.frames import Views, directions
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.presets import preset as preset_config
from kmyriad.rollout.collect import ParallelTrajectory, collect
from kmyriad.rollout.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.runs.logger import Journal
from kmyriad.runs.resume import begin, conduct, go_on, run_to_resume
from kmyriad.runs.run import Run
from kmyriad.runs.state import TrainingState
from kmyriad.training.metrics import epoch_metrics, timings
from kmyriad.updates.actor_critic import actor_critic, standardised
from kmyriad.updates.gradient import UpdateReport
from kmyriad.updates.reinforce import reinforce
from kmyriad.updates.trust_region import trust_region


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
    base = config_from(run_to_resume(out, "pretrain").config) if resume else preset_config(preset, env, agents)
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
        if resume:
            run = run_to_resume(out, "pretrain")
            go_on(config, config_from(run.config), run, state, replicas)
        else:
            run = begin(config, out)
        conduct(config, run, replicas, state, lambda journal: algorithm_1(config, replicas, state, journal))
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


def assign_policies_to_processes(config: TrainingConfig, replicas: Replicas, epoch: int) -> None:
    """Put the replicas where the epoch begins. Replica i is agent i // (replicas per agent)'s, always.

    Whole horizons begin with a reset; segments go on, from ages staggered once in the beginning.
    """
    if not config.has_segments or epoch == 1:
        replicas.start(reset_seed(config.seed, epoch))
        if config.has_segments:
            replicas.stagger(replicas_per_agent(config.agents, config.replica_count), config.epoch_steps)


def update(
    config: PretrainConfig, state: TrainingState, trajectory: ParallelTrajectory
) -> tuple[Novelty, UpdateReport]:
    """Estimate the pool's entropy and improve the population by the rule that `config` names."""
    population, optimizer = state.population, state.optimizer
    if state.critic is not None:
        ways = ways_of(config, trajectory.features.shape[-1])
        ahead = None if ways is None else np.float32(config.compass) * ways
        novelty = estimate_novelty(state.pool, config.k, config.diversity, ahead, ways if config.turns else None)
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
    population.see(trajectory.observations, torch.from_numpy(trajectory.sound))
    return novelty, report


def initial_state(config: PretrainConfig, replicas: Replicas) -> TrainingState:
    """A population that has learned nothing yet."""
    check_segments(config, replicas)
    population = fresh_population(config, replicas)
    parameters, critic = [*population.parameters()], None
    if config.update == "actor_critic":
        critic = Critic(
            config.agents,
            replicas.observation_size,
            config.critic,
            config.activation,
            own_rate=config.own_rate,
            own_adapters=config.own_adapters,
            directions=population.directions,
            direction_rate=config.direction_rate,
            seed=config.seed,
        )
        parameters += critic.parameters()
    return TrainingState(population, torch.optim.Adam(parameters, lr=config.learning_rate, fused=True), critic)


def check_segments(config: TrainingConfig, replicas: Replicas) -> None:
    if config.has_segments and not replicas.can_be_saved:
        raise UsageError(
            f"segments need an environment whose state can be saved, which {config.env!r} is not; leave segment out"
        )


def ways_of(config: PretrainConfig, features: int) -> NDArray[np.float32] | None:
    """(m, f), the agents' directions, where they have a compass."""
    has_compass = config.update == "actor_critic" and config.compass > 0 and config.agents > 1
    return directions(config.agents, features) if has_compass else None


def fresh_population(config: PretrainConfig, replicas: Replicas) -> Population:
    """As it is before any learning."""
    actions = action_spec(replicas.action_space)
    ways, views = ways_of(config, replicas.feature_size), None
    mirrors, turning = replicas.mirrors if config.mirrors else (), replicas.turning if config.turns else None
    if ways is not None and (mirrors or turning):
        views = Views.towards(ways, replicas.observation_size, actions.size, mirrors, turning)
        ways = abs(ways) if mirrors else ways
    return Population(
        config.agents,
        replicas.observation_size,
        actions,
        trunk=config.trunk,
        adapter=config.adapter,
        activation=config.activation,
        initial_sigma=config.initial_sigma,
        sigma_range=(config.sigma_min, config.sigma_max),
        normalises=config.normalise_observations,
        own_rate=config.own_rate,
        own_adapters=config.own_adapters,
        directions=None if ways is None else torch.from_numpy(ways),
        direction_rate=config.direction_rate,
        views=views,
        seed=config.seed,
    )
