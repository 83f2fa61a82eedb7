"""Jump-start: the agent that already does most of a task becomes a policy of its own and is fine-tuned with PPO."""

import dataclasses
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kmyriad.config import JumpstartConfig, PretrainConfig, even_split, with_settings
from kmyriad.engines.source import find_source
from kmyriad.envs import short_name
from kmyriad.errors import UsageError
from kmyriad.evaluation.selection import Ranking, named_goal, rank_agents, ranking_as_json
from kmyriad.population.distributions import action_spec
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.presets import jumpstart_preset
from kmyriad.presets import preset as pretrain_preset
from kmyriad.processes import CPU, Share, find_device, joined, leads, ranks
from kmyriad.rollout.collect import Outcomes, Trajectory, collect
from kmyriad.rollout.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout.replicas import Replicas
from kmyriad.rollout.task import task_of
from kmyriad.runs.checkpoints import newest_checkpoint
from kmyriad.runs.foreign import read_policy
from kmyriad.runs.logger import Logger
from kmyriad.runs.progress import say
from kmyriad.runs.resume import begin, go_on, goes_on_by_itself, run_to_resume
from kmyriad.runs.run import Run, check_free, locked, open_run, save_selection
from kmyriad.runs.state import TrainingState, adam, load_population
from kmyriad.torchrun import threads
from kmyriad.training.memory import check_memory
from kmyriad.training.metrics import success_metrics, timings, update_metrics
from kmyriad.training.pretrain import fresh_population
from kmyriad.updates.actor_critic import actor_critic, per_step

RANDOM_AGENTS = 10
"""Fresh agents that the random start chooses from, as in the paper."""
PRACTICE = 0.2
"""Of all steps, what these have together to learn in before the best of them is chosen."""

SLOW, PATIENCE = 0.9, 1.5
"""Training's episodes may take this many times what this part of successes take at most, where nothing else is asked
for. A quantile, as a mean of successes that the limit lets through would draw the limit after it, down and down."""
REMEMBERED = 200
"""Successes that this is judged by."""


def jumpstart(
    source: str | Path | Run = "",
    *,
    preset: str = "quick",
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Fine-tune the best agent of a pretraining run on a task; same names and defaults as `kmyriad jumpstart`.

    Args:
        source: the pretraining run, or its folder; for init="random" or "policy" a world's name will do.
        preset: settings to start from: "quick" or "paper".
        out: the new run's folder; by default a new one below `runs/`.
        resume: go on from the newest good checkpoint in `out`; the run's own settings hold.
        settings: any setting of `JumpstartConfig` by its own name, such as goal=(6, 3), on top of the preset.
    """
    if resume:
        config = with_settings(run_to_resume(out, "jumpstart").jumpstart, settings)
    else:
        config = jumpstart_config(source, preset, settings)
    return fine_tune(config, out, resume)


def jumpstart_config(source: str | Path | Run, preset: str, settings: Mapping[str, Any]) -> JumpstartConfig:
    """The preset for an initial policy, with `settings` by their own names on top."""
    base = jumpstart_preset(preset, settings.get("init", "best"))
    told: dict[str, Any] = {"source": str(source.given if isinstance(source, Run) else source)}
    if isinstance(settings.get("goal"), Mapping):
        told |= named_goal(settings["goal"])
    return with_settings(base, {**settings, **told})


def fine_tune(config: JumpstartConfig, out: str | Path | None = None, resume: bool = False) -> Run:
    """Select, then train with `config` in the folder `out`."""
    device = find_device(config.run.device)
    resume = resume or goes_on_by_itself(out)
    with joined(device):
        return _fine_tune(config, device, out, resume)


def _fine_tune(config: JumpstartConfig, device: torch.device, out: str | Path | None, resume: bool) -> Run:
    """`fine_tune`, in each of the processes."""
    cores = threads(config.run.threads)
    if cores is not None:
        torch.set_num_threads(cores)
    if resume:
        run = run_to_resume(out, "jumpstart")
    else:
        config = with_source(config)
        hidden = config.update.critic_hidden
        check_memory(config.rollouts, hidden, hidden[-1], device, config.task.engine)
        if out is not None and leads():
            check_free(Path(out))  # before selecting, which takes a while
    newest = newest_checkpoint(run.checkpoints) if resume else None
    if newest is None:
        population, ranking, practised = select_start(config)
        state = initial_state(config, population, ranking, device)
        state.env_steps += practised
        if state.env_steps >= config.run.total_steps:
            raise UsageError(
                f"selecting took {state.env_steps:,} environment steps, and total_steps are {config.run.total_steps:,}:"
                " none are left to train; raise total_steps, or lower selection_steps"
            )
    else:
        state = initial_state(config, load_population(run), device=device)
    if leads():
        tell_choices(config, state)
    replicas = training_replicas(config)
    try:
        if not resume:
            run = begin(config, out)
            if leads():
                save_selection(run, ranking_as_json(ranking, config.rollouts.horizon))
        with locked(run) if leads() else nullcontext():
            if resume:
                go_on(config, run, state, replicas if config.rollouts.are_segments else None)
            with Logger(run, config, replicas, state) as logger:
                ppo(config, replicas, state, logger)
    finally:
        replicas.close()
    return run


def tell_choices(config: JumpstartConfig, state: TrainingState) -> None:
    """Say what was decided by the environment and its horizon."""
    rule, horizon = config.paced_update, config.rollouts.horizon
    if rule != config.update:
        kl = "" if rule.desired_kl is None else f", KL {rule.desired_kl:.3g}"
        say(f"pace: gamma {rule.gamma:.5g}{kl}, as episodes are {horizon:,} steps long; --pace decides it")
    if state.critic is not None and state.critic.hidden is not None:
        say("critic: it is shown what was explored, which policies do not observe; --asymmetric-critic decides it")


def training_replicas(config: JumpstartConfig) -> Replicas:
    """Those of this process, with the task in them."""
    rollouts = config.rollouts
    return task_of(config).replicas(
        rollouts.replicas,
        threads(config.run.threads),
        ends_at_goal=config.stops_at_goal,
        share=Share.here(rollouts.agents, rollouts.per_agent),
    )


def ppo(config: JumpstartConfig, replicas: Replicas, state: TrainingState, logger: Logger | None = None) -> None:
    """Collect and improve, from the iteration after `state`'s until all environment steps are made."""
    assert state.critic is not None
    seed, rollouts, rule = config.run.seed, config.rollouts, config.paced_update
    while state.env_steps < config.run.total_steps:
        started = time.perf_counter()
        state.iteration += 1

        # Act, in episodes that are given up once they take much longer than successes do.
        replicas.episode_limit = episode_limit(config, state)
        replicas.begin(rollouts, reset_seed(seed, state.iteration))
        trajectory = collect(
            replicas, state.population, rollouts.steps, seed, state.iteration, keep_next_observations=True
        )

        # Improve the policy by the task's reward; for a while only the critic learns.
        rewards, outcomes = trajectory.rewards, trajectory.of_all()
        report = actor_critic(
            state.population,
            state.critic,
            state.optimizer,
            failed_in_time(trajectory) if config.stops_at_goal else trajectory,
            rewards if config.stops_at_goal else per_step(rewards, rule.gamma),
            rule,
            generator(seed, state.iteration, SHUFFLING),
            critic_only=state.iteration <= config.start.critic_warm_up,
        )
        if config.start.init == "random":  # what was trained before would become another policy under its own feet
            state.population.see(trajectory.observations, trajectory.valid)
        if state.critic.hidden is not None:
            state.critic.hidden.see(trajectory.features[trajectory.valid])
        state.average_in(rule.averaged_iterations)

        # Write it down.
        state.count(outcomes.steps, good_gradient=math.isfinite(report.gradient_norm))
        counts = episodes_count(config, state, replicas.episode_limit)
        if counts and config.stops_at_goal:  # elsewhere the end of an episode does not tell when it succeeded
            remember_successes(state, outcomes)
        if logger is None:
            continue
        row = update_metrics(state, trajectory, outcomes, report)
        row |= success_metrics(outcomes, replicas.episode_limit, counts, has_goal=bool(config.task.goal))
        row["longest_episode"] = replicas.episode_limit
        logger.record(state, row | timings(outcomes.steps, time.perf_counter() - started))


def episodes_count(config: JumpstartConfig, state: TrainingState, limit: int) -> bool:
    """Whether the episodes that end now say how often the policy succeeds.

    Staggered replicas begin in the middle of episodes, which says nothing. And where success is the end, it takes as
    long again until those who fail, and so take long, end as often as they begin.
    """
    settled = limit * (2 if config.stops_at_goal else 1)
    return not config.rollouts.are_segments or state.iteration * config.rollouts.steps > settled


def episode_limit(config: JumpstartConfig, state: TrainingState) -> int:
    """Control steps after which training's episodes end.

    Where they stop at the goal, most that go on for much longer than successes do have passed it for good, and what
    they do then teaches nothing.
    """
    longest = config.rollouts.horizon
    if not config.stops_at_goal:
        return longest
    if config.task.episode_limit is not None:
        return min(longest, config.task.episode_limit)
    if not state.success_steps:
        return longest
    return min(longest, math.ceil(PATIENCE * float(np.quantile(state.success_steps, SLOW))))


def remember_successes(state: TrainingState, outcomes: Outcomes) -> None:
    """Keep how many steps the last successes took."""
    assert outcomes.success is not None
    taken = outcomes.episode_steps[outcomes.dones & outcomes.success] + 1
    state.success_steps = [*state.success_steps, *taken.cpu().tolist()][-REMEMBERED:]


def failed_in_time(trajectory: Trajectory) -> Trajectory:
    """`trajectory` with nothing more to come for episodes that ran out of time."""
    return dataclasses.replace(trajectory, terminated=trajectory.dones)


def initial_state(
    config: JumpstartConfig,
    population: Population,
    ranking: Ranking | None = None,
    device: torch.device = CPU,
) -> TrainingState:
    """The chosen agents beside a critic that knows nothing; the steps that selecting took count from the start."""
    rule, population = config.update, population.to(device)
    critic = Critic(
        population.agents,
        population.observation_size,
        rule.critic_hidden,
        population.activation_name,
        hidden=hidden_features(config),
        seed=config.run.seed,
    ).to(device)
    critic_rate = rule.learning_rate if rule.critic_learning_rate is None else rule.critic_learning_rate
    groups: list[dict[str, Any]] = [
        {"params": [*population.parameters()], "lr": rule.learning_rate},
        {"params": [*critic.parameters()], "lr": critic_rate},
    ]
    state = TrainingState(population, adam(groups, device), critic)
    if ranking is not None:
        state.env_steps = ranking.episodes * config.rollouts.horizon
        chosen = ranking.standings[: config.start.top]
        state.success_steps = [steps for standing in chosen for steps in standing.success_steps][-REMEMBERED:]
    return state


def hidden_features(config: JumpstartConfig) -> int:
    """How many features the critic is shown beside observations: all of them, where policies do not observe them."""
    asked = config.start.asymmetric_critic
    if asked is False or not config.task.goal:
        return 0
    replicas = task_of(config).replicas(1, threads=1)
    replicas.close()
    return replicas.feature_size if asked or replicas.engine.columns is None else 0


def with_source(config: JumpstartConfig, source: PretrainConfig | None = None) -> JumpstartConfig:
    """`config` with what the source decides: the world, its settings, and the horizon unless one was asked for.

    `source` are the source's settings; None reads them from its folder.
    """
    if bool(config.start.policy) != (config.start.init == "policy"):
        raise UsageError("init policy and the file of a policy go together; give both (--init policy --policy FILE)")
    source, task = source or _source_config(config), config.task
    if task.env and short_name(task.env) != short_name(source.world.env):
        raise UsageError(
            f"{config.start.source} was trained in {source.world.env}, not in {task.env}; leave env out or choose"
            " another run"
        )
    if config.start.init == "single" and source.population.agents != 1:
        raise UsageError(
            f"init single takes a run of one agent, and {config.start.source} has {source.population.agents}; use init"
            " best, or pretrain one with --agents 1"
        )
    return with_settings(
        config,
        {
            "env": source.world.env,
            "env_settings": source.world.env_settings | task.env_settings,
            "features": source.world.features,
            "engine": source.world.engine if task.engine == "auto" else task.engine,
            "horizon": task.horizon or source.world.horizon,
        },
    )


def select_start(config: JumpstartConfig) -> tuple[Population, Ranking, int]:
    """The agents to fine-tune, as a population of their own, how they were chosen, and the steps they had practised."""
    task, start, practised = task_of(config), config.start, 0
    replicas = task.replicas(1, threads=1)  # refuses what cannot be trained, and knows the sizes
    replicas.close()
    if start.init == "random":
        fresh = {"agents": RANDOM_AGENTS, "code_size": None, "replicas": None, "seed": config.run.seed}
        population = fresh_population(with_settings(_source_config(config), fresh), replicas)
        practised = practise(config, population) if start.agent is None else 0
    elif start.init == "policy":
        actions = action_spec(replicas.action_space, _source_config(config).world.action_range)
        population = read_policy(Path(start.policy), replicas.observation_size, actions, start.policy_activation)
    else:
        population = load_population(start.source)
    if start.top > population.agents:
        raise UsageError(f"top {start.top} is more than the {population.agents} agents of {start.source}; lower it")
    agents = range(population.agents) if start.agent is None else [start.agent]
    ranking = rank_agents(task, population, start.selection_steps, config.run.seed, config.run.threads, agents)
    chosen = ranking.standings[: start.top]
    for standing in chosen:
        say(f"agent {standing.agent}: {standing.described}")
    return population.select([standing.agent for standing in chosen]), ranking, practised


def practise(config: JumpstartConfig, population: Population) -> int:
    """Let fresh agents learn the task side by side, as in the paper; returns the steps that took, of all together."""
    steps = int(PRACTICE * config.run.total_steps)
    replicas_of_all = even_split(config.rollouts.replicas, population.agents * ranks())
    side_by_side = {"top": population.agents, "agent": None, "replicas": replicas_of_all, "total_steps": steps}
    practice = with_settings(config, side_by_side)
    say(f"{population.agents} random agents practise for {steps:,} steps before the best is chosen")
    device = find_device(config.run.device)
    state = initial_state(practice, population, device=device)
    replicas = training_replicas(practice)
    try:
        ppo(practice, replicas, state)
    finally:
        replicas.close()
    population.to("cpu")  # where they are selected
    return state.env_steps


def _source_config(config: JumpstartConfig) -> PretrainConfig:
    """The settings of the run that policies come from, or the default ones of a world for fresh policies."""
    source = config.start.source
    if not source:
        raise UsageError("a jump-start needs the folder of a pretraining run; start one with: kmyriad pretrain")
    if config.start.init in ("random", "policy") and not Path(source).exists():
        find_source(source)
        return pretrain_preset("quick", source, RANDOM_AGENTS)
    return open_run(source).pretraining
