"""Pretraining without reward: the paper's Algorithm 1."""

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kmyriad.config import ActorCritic, PretrainConfig, UpdateRule, WorldConfig, rule_name, with_settings
from kmyriad.engines.source import GIVEN, name_of
from kmyriad.errors import UsageError
from kmyriad.objective.rewards import Objective, rewards_of, slide
from kmyriad.population.codes import codes_of
from kmyriad.population.distributions import action_spec
from kmyriad.population.frames import Frames, seen_alike
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.presets import preset as preset_config
from kmyriad.processes import CPU, Share, find_device, joined, leads
from kmyriad.rollout.collect import collect
from kmyriad.rollout.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.runs.logger import Logger
from kmyriad.runs.progress import say
from kmyriad.runs.resume import begin, go_on, goes_on_by_itself, run_to_resume
from kmyriad.runs.run import Run, locked
from kmyriad.runs.state import TrainingState, adam
from kmyriad.torchrun import threads
from kmyriad.training.memory import check_memory
from kmyriad.training.metrics import iteration_metrics, timings
from kmyriad.updates import update


def pretrain(
    env: Any = "ant-empty",
    *,
    preset: str = "quick",
    method: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    objective: Objective = rewards_of,
    **settings: Any,
) -> Run:
    """Train a population without reward and return the run's folder; same names and defaults as `kmyriad pretrain`.

    Args:
        env: the world, such as "ant-maze", any Gymnasium id, "package.module:function", or a function that makes an
            environment (with `num_envs` among its parameters: a vector environment), or a ready vector environment.
        preset: how large a run: "quick", "desk" or "paper" (Table 2).
        method: "ours", or "paper", which has nothing of ours in it; by default ours, and the paper's with its preset.
        out: the run's folder; by default a new one below `runs/`.
        resume: go on from the newest good checkpoint in `out`; the run's own settings hold.
        objective: what turns visited states into rewards; by default what the settings ask for.
        settings: any setting of `PretrainConfig` by its own name, such as agents=50, on top of the preset.
    """
    env = name_of(env)
    if callable(settings.get("features")):
        settings["features"] = (name_of(settings["features"]),)
    if resume:
        config = _on_top(run_to_resume(out, "pretrain").pretraining, settings)
    else:
        config = pretrain_config(env, preset, settings, method)
    return train(config, out, resume, objective)


def pretrain_config(env: str, preset: str, settings: Mapping[str, Any], method: str | None = None) -> PretrainConfig:
    """The preset for a world, a number of agents and a method, with `settings` by their own names on top."""
    asked_rule = settings.get("update")
    rule = rule_name(asked_rule) if isinstance(asked_rule, UpdateRule) else asked_rule
    return _on_top(preset_config(preset, env, settings.get("agents", 10), rule, method), settings)


def _on_top(base: PretrainConfig, settings: Mapping[str, Any]) -> PretrainConfig:
    """`base` with other settings; those of the environment are added to its own."""
    asked = WorldConfig(env_settings=settings.get("env_settings", {}))
    return with_settings(base, {**settings, "env_settings": base.world.env_settings | asked.env_settings})


def train(
    config: PretrainConfig, out: str | Path | None = None, resume: bool = False, objective: Objective = rewards_of
) -> Run:
    """Run Algorithm 1 with `config` in the folder `out`."""
    is_given = objective is not rewards_of
    name = "" if not is_given else f"{objective.__module__}.{getattr(objective, '__qualname__', 'object')}"
    config = with_settings(config, {"objective_function": name})
    device = find_device(config.run.device)
    resume = resume or goes_on_by_itself(out)
    with joined(device):
        return _train(config, device, out, resume, objective, is_given)


def _train(
    config: PretrainConfig,
    device: torch.device,
    out: str | Path | None,
    resume: bool,
    objective: Objective,
    is_given: bool,
) -> Run:
    """`train`, in each of the processes."""
    world, rollouts, cores = config.world, config.rollouts, threads(config.run.threads)
    if cores is not None:
        torch.set_num_threads(cores)
    check_memory(rollouts, config.population.trunk_hidden, config.population.agent_hidden, device, world.engine)
    replicas = make_replicas(
        world.env,
        rollouts.replicas,
        horizon=world.horizon,
        features=world.features,
        settings=world.env_settings,
        threads=cores,
        engine=world.engine,
        device=str(device),
        share=Share.here(rollouts.agents, rollouts.per_agent),
    )
    config = with_features(config, replicas)
    try:
        if not is_given and config.population.priors:
            objective = partial(rewards_of, views=replicas.views()[1])
        state = initial_state(config, replicas, device)
        if not resume:
            rehearse(config, replicas, state.population)
        run = run_to_resume(out, "pretrain") if resume else begin(config, out)
        with locked(run) if leads() else nullcontext():
            if resume:
                go_on(config, run, state, replicas if rollouts.are_segments else None)
            if state.population.frames is not None:
                names = ", ".join(replicas.symmetry_names)
                say(f"priors: agents see the world in its symmetries ({names}); --no-priors leaves them out")
            with Logger(run, config, replicas, state) as logger:
                algorithm_1(config, objective, replicas, state, logger)
    finally:
        replicas.close()
    return run


def algorithm_1(
    config: PretrainConfig, objective: Objective, replicas: Replicas, state: TrainingState, logger: Logger
) -> None:
    """The paper's loop, from the iteration after `state`'s until all environment steps are made."""
    seed, rollouts = config.run.seed, config.rollouts
    while state.env_steps < config.run.total_steps:
        started = time.perf_counter()
        state.iteration += 1

        # Assign every agent its replicas: from a reset, or where the last segment ended.
        replicas.begin(rollouts, reset_seed(seed, state.iteration))

        # Let all agents act at once.
        trajectory = collect(
            replicas,
            state.population,
            rollouts.steps,
            seed,
            state.iteration,
            keep_next_observations=state.critic is not None,
        )

        # Estimate the entropy of what all of them visited in the last horizon, and what each new state adds to it.
        outcomes = trajectory.of_all()
        state.pool = slide(state.pool, outcomes.segment, rollouts.per_horizon)
        rewards = objective(state.pool, config)

        # Make what was worth more likelier, for every agent.
        rng = generator(seed, state.iteration, SHUFFLING)
        report = update(
            config.update, state.population, state.critic, state.optimizer, trajectory, rewards, state.iteration, rng
        )
        state.population.see(trajectory.observations, trajectory.valid)
        if isinstance(config.update, ActorCritic):
            state.average_in(config.update.averaged_iterations)

        # Write it down.
        state.count(outcomes.steps, good_gradient=math.isfinite(report.gradient_norm))
        row = iteration_metrics(config, replicas.cell, state, trajectory, outcomes, rewards, report)
        logger.record(state, row | timings(outcomes.steps, time.perf_counter() - started))


def with_features(config: PretrainConfig, replicas: Replicas) -> PretrainConfig:
    """`config` with the features, and their scale, that the environment brings where nothing else was asked for."""
    features, scale = config.world.features or replicas.features, config.world.feature_scale
    if scale and len(scale) != replicas.feature_size:
        names = ", ".join(replicas.features)
        raise UsageError(
            f"feature_scale must have {replicas.feature_size} numbers, one per feature ({names}); got {len(scale)}"
        )
    return with_settings(config, {"features": features, "feature_scale": scale or replicas.feature_scale})


def rehearse(config: PretrainConfig, replicas: Replicas, population: Population) -> None:
    """Take one step and throw it away, so that what cannot work is told before a folder is made for it."""
    if config.world.env.startswith(GIVEN):
        say(f"{config.world.env} is an object: its run can be resumed and opened only where it is given again")
    rollouts, neighbours = config.rollouts, config.objective.neighbours
    if rollouts.steps_per_iteration <= neighbours:
        raise UsageError(
            f"{neighbours} neighbours need more than {neighbours} states, and an iteration has"
            f" {rollouts.steps_per_iteration}; use more replicas or rollout_steps, or fewer neighbours"
        )
    replicas.start(config.run.seed)
    collect(replicas, population, 1, config.run.seed, iteration=0)
    replicas.are_running = False


def initial_state(config: PretrainConfig, replicas: Replicas, device: torch.device = CPU) -> TrainingState:
    """A population that has learned nothing yet, on `device`."""
    population, rule = fresh_population(config, replicas).to(device), config.update
    groups: list[dict[str, Any]] = [{"params": [*population.parameters()]}]
    critic = None
    if isinstance(rule, ActorCritic):
        settings = config.population
        critic = Critic(
            settings.agents,
            replicas.observation_size,
            rule.critic_hidden,
            settings.activation,
            codes=population.codes,
            code_rate=settings.code_rate,
            seed=config.run.seed,
        ).to(device)
        if rule.critic_learning_rate is None:
            groups[0]["params"] += critic.parameters()
        else:
            groups.append({"params": [*critic.parameters()], "lr": rule.critic_learning_rate})
    return TrainingState(population, adam(groups, device, rule.learning_rate), critic)


def fresh_population(config: PretrainConfig, replicas: Replicas) -> Population:
    """As it is before any learning."""
    settings, actions = config.population, action_spec(replicas.action_space, config.world.action_range)
    codes, frames = codes_of(settings), None
    group, of_features = replicas.views() if settings.priors else ([], [])
    if codes is not None and group:
        chosen, codes = seen_alike(codes, of_features)
        frames = Frames([group[view] for view in chosen])
    return Population(
        settings.agents,
        replicas.observation_size,
        actions,
        trunk_hidden=settings.trunk_hidden,
        agent_hidden=settings.agent_hidden,
        activation=settings.activation,
        initial_std=settings.initial_std,
        std_range=settings.std_range,
        normalises=settings.normalise_observations,
        codes=None if codes is None else torch.from_numpy(codes),
        code_rate=settings.code_rate,
        frames=frames,
        seed=config.run.seed,
    )
