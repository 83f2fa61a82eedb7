"""Jump-start: the head that already does most of a task becomes a policy of its own and is fine-tuned with PPO."""

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kmyriad.config import PretrainConfig, changed, config_from
from kmyriad.envs import find_id
from kmyriad.errors import UsageError
from kmyriad.evaluation.evaluate import stored_evaluation
from kmyriad.evaluation.selection import (
    EPISODES_PER_ROUND,
    Ranking,
    Trials,
    distances,
    first_steps,
    race,
    rank_episodes,
    trials,
)
from kmyriad.jumpstart_config import JumpstartConfig
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.presets import jumpstart_preset
from kmyriad.presets import preset as pretrain_preset
from kmyriad.rollout.collect import ParallelTrajectory, collect
from kmyriad.rollout.randomness import SHUFFLING, generator
from kmyriad.rollout.replicas import Replicas
from kmyriad.rollout.task import Task
from kmyriad.runs.logger import Journal
from kmyriad.runs.progress import say
from kmyriad.runs.resume import begin, conduct, go_on, run_to_resume
from kmyriad.runs.run import Run, check_free, load_last_epoch, open_run, save_selection
from kmyriad.runs.state import TrainingState, load_population
from kmyriad.runs.tensor_file import newest_checkpoint
from kmyriad.training.metrics import success_metrics, timings, update_metrics
from kmyriad.training.pretrain import assign_policies_to_processes, check_segments, fresh_population
from kmyriad.updates.actor_critic import actor_critic

RANDOM_HEADS = 10
"""Fresh heads that the random start chooses from, as in the paper."""

EPISODES_OF_ONE = 30
"""That a head plays where there is none to race with."""

PATIENCE = 1.5
"""Training's episodes may take this many times what successes take on average, where nothing else is asked for."""
FORGETTING = 0.02
"""How much of that average every further success replaces."""


def jumpstart(
    source: str | Path = "",
    *,
    preset: str = "quick",
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Fine-tune the best head of a pretraining run on a task; same names and defaults as `kmyriad jumpstart`.

    Args:
        source: folder of the pretraining run; for init="random" a world's name will do.
        preset: settings to start from: "quick" or "paper".
        out: the new run's folder; by default a new one below `runs/`.
        resume: go on from the newest good checkpoint in `out`; the run's own settings hold.
        settings: any field of `JumpstartConfig`, such as goal=(6, 3), on top of the preset.
    """
    if resume:
        base = config_of(run_to_resume(out, "jumpstart"))
    else:
        base = jumpstart_preset(preset, settings.get("init", "best"))
        settings["source"] = str(source)
    return fine_tune(changed(base, settings), out, resume)


def config_of(run: Run) -> JumpstartConfig:
    """The settings of a jump-start run."""
    return changed(JumpstartConfig(), {name: value for name, value in run.config.items() if name != "command"})


def fine_tune(config: JumpstartConfig, out: str | Path | None = None, resume: bool = False) -> Run:
    """Select, then train with `config` in the folder `out`."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if not resume:
        config = with_source(config)
        if out is not None:
            check_free(Path(out))  # before selecting, which takes a while
    run, state = _resumed(config, out) if resume else (None, None)
    if state is None:
        population, ranking = _select(config)
        state = initial_state(config, population, ranking)
    replicas = task_of(config).replicas(config.replica_count, config.threads, ends_at_goal=config.stops_at_goal)
    try:
        if run is not None:
            go_on(config, config_of(run), run, state, replicas)
        else:
            run = begin(config, out)
            save_selection(run, ranking_as_json(ranking, config.steps_per_episode))
        conduct(config, run, replicas, state, lambda journal: ppo(config, replicas, state, journal))
    finally:
        replicas.close()
    return run


def _resumed(config: JumpstartConfig, out: str | Path | None) -> tuple[Run, TrainingState | None]:
    """The run to go on with, and a state of its shape; None where it was stopped before its first checkpoint."""
    run = run_to_resume(out, "jumpstart")
    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        return run, None
    return run, initial_state(config, Population.build(newest.checkpoint.facts["architecture"]))


def ppo(config: JumpstartConfig, replicas: Replicas, state: TrainingState, journal: Journal) -> None:
    """Collect and improve, from the epoch after `state`'s to the last. For a while only the critic learns."""
    assert state.critic is not None
    while state.epoch < config.epochs:
        started = time.perf_counter()
        state.epoch += 1
        longest = replicas.patience = longest_episode(config, state)
        assign_policies_to_processes(config, replicas, state.epoch)
        trajectory = collect(
            replicas, state.population, config.epoch_steps, config.seed, state.epoch, keep_arrivals=True
        )
        report = actor_critic(
            state.population,
            state.critic,
            state.optimizer,
            failed_in_time(trajectory) if config.stops_at_goal else trajectory,
            # (1 - gamma) makes returns as large as rewards, so that the critic learns them at any gamma.
            (1.0 if config.stops_at_goal else 1 - config.gamma) * torch.from_numpy(trajectory.rewards),
            config.actor_critic,
            generator(config.seed, state.epoch, SHUFFLING),
            critic_only=state.epoch <= config.warm_up,
        )
        state.population.see(trajectory.observations, torch.from_numpy(trajectory.sound))

        state.count(trajectory.steps, good_gradient=math.isfinite(report.gradient_norm))
        # Staggered replicas begin in the middle of episodes, which says nothing about success. And where success is the
        # end, it takes as long again until those who fail, and so take long, end as often as they begin.
        settled = longest * (2 if config.stops_at_goal else 1)
        counts = not config.has_segments or state.epoch * config.epoch_steps > settled
        if counts and config.stops_at_goal:  # elsewhere the end of an episode does not tell when it succeeded
            learn_how_long_success_takes(state, trajectory)
        row = update_metrics(state, trajectory, report) | success_metrics(trajectory, longest, counts)
        row["longest_episode"] = longest
        journal.record(state, row | timings(trajectory.steps, time.perf_counter() - started))


def longest_episode(config: JumpstartConfig, state: TrainingState) -> int:
    """Control steps after which training's episodes end.

    Where they stop at the goal, most that go on for much longer than successes do have passed it for good, and what
    they do then teaches nothing.
    """
    longest = config.steps_per_episode
    if not config.stops_at_goal:
        return longest
    patience = config.patience or math.ceil(PATIENCE * state.steps_to_success)
    return min(longest, patience or longest)


def learn_how_long_success_takes(state: TrainingState, trajectory: ParallelTrajectory) -> None:
    """A moving average over successes, most of its weight on the last fifty."""
    taken = trajectory.ages[trajectory.ends & trajectory.success] + 1
    if taken.size:
        old = (1 - FORGETTING) ** taken.size if state.steps_to_success else 0.0
        state.steps_to_success = old * state.steps_to_success + (1 - old) * float(taken.mean())


def failed_in_time(trajectory: ParallelTrajectory) -> ParallelTrajectory:
    """`trajectory` with nothing more to come for episodes that ran out of time."""
    return dataclasses.replace(trajectory, terminated=trajectory.ends)


def initial_state(config: JumpstartConfig, population: Population, ranking: Ranking | None = None) -> TrainingState:
    """The chosen heads beside a critic that knows nothing; the steps that selecting took count from the start."""
    critic = Critic(
        population.agents, population.observation_size, config.critic, population.activation_name, seed=config.seed
    )
    optimizer = torch.optim.Adam(
        [
            {"params": [*population.parameters()], "lr": config.learning_rate},
            {"params": [*critic.parameters()], "lr": config.critic_learning_rate},
        ],
        fused=True,
    )
    state = TrainingState(population, optimizer, critic)
    if ranking is not None:
        state.env_steps = ranking.episodes * config.steps_per_episode
        state.steps_to_success = max(standing.steps or 0.0 for standing in ranking.standings[: config.top])
    return state


def with_source(config: JumpstartConfig) -> JumpstartConfig:
    """`config` with what the source decides: the world, its settings, and the horizon unless one was asked for."""
    source = _source_config(config)
    if config.env and find_id(config.env) != find_id(source.env):
        raise UsageError(
            f"{config.source} was trained in {source.env}, not in {config.env}; leave env out or choose another run"
        )
    if config.init == "single" and source.agents != 1:
        raise UsageError(
            f"init single takes a run of one agent, and {config.source} has {source.agents}; use init best, or pretrain"
            " one with --agents 1"
        )
    return dataclasses.replace(
        config,
        env=source.env,
        env_settings=source.env_settings | config.env_settings,
        horizon=config.horizon or source.horizon,
    )


def task_of(config: JumpstartConfig) -> Task:
    return Task(config.env, config.env_settings, config.steps_per_episode, config.goal, config.goal_radius)


def rank_heads(
    task: Task,
    population: Population,
    budget_steps: int,
    seed: int = 0,
    threads: int | None = None,
    heads: Sequence[int] | None = None,
) -> Ranking:
    """`heads` (all, if None) of `population` race on `task`, for at most `budget_steps` environment steps."""
    heads = range(population.agents) if heads is None else heads
    per_round = EPISODES_OF_ONE if len(heads) == 1 else EPISODES_PER_ROUND
    play = trials(task, population, seed, threads)
    return race(play, heads, budget=budget_steps // task.horizon, per_round=per_round)


def rank_stored(task: Task, run: Run) -> Ranking:
    """The heads of `run` by the episodes stored with it, without simulating any: its evaluation's, or training's last.

    With segments a row of training's last horizon is the end of one episode and the beginning of the next.
    """
    evaluation = stored_evaluation(run)
    stored = vars(evaluation.visits) if evaluation is not None else load_last_epoch(run)
    if not task.goal or stored is None or stored.get("xy") is None:
        raise UsageError(f"{run.path} has no stored positions to rank heads for a goal by; leave --stored out")
    replicas = task.replicas(1, threads=1)  # refuses a goal that cannot be reached, and knows the radius
    distance = distances(stored["xy"], stored["sound"], task.goal)
    there = distance <= replicas.cell
    ranking = rank_episodes(Trials(np.asarray(there.any(axis=-1)), distance.min(axis=-1), first_steps(there)))
    replicas.close()
    return ranking


def ranking_as_json(ranking: Ranking, horizon: int) -> dict[str, Any]:
    """Plain JSON, with the environment steps that it took."""
    standings = [
        {**dataclasses.asdict(standing), "success": standing.success, "interval": list(standing.interval)}
        for standing in ranking.standings
    ]
    return {"env_steps": ranking.episodes * horizon, "is_certain": ranking.is_certain, "standings": standings}


def _select(config: JumpstartConfig) -> tuple[Population, Ranking]:
    """The heads to fine-tune, as a population of their own, and how they were chosen."""
    task = task_of(config)
    replicas = task.replicas(1, threads=1)  # refuses what cannot be trained, and knows the sizes
    replicas.close()
    check_segments(config, replicas)
    if config.init == "random":
        source = _source_config(config)
        fresh = dataclasses.replace(source, agents=RANDOM_HEADS, own_rate=None, replicas=None, seed=config.seed)
        population = fresh_population(fresh, replicas)
    else:
        population = load_population(open_run(config.source))
    if config.top > population.agents:
        raise UsageError(f"top {config.top} is more than the {population.agents} heads of {config.source}; lower it")
    heads = range(population.agents) if config.head is None else [config.head]
    say(f"trying heads: {len(heads)}; {config.selection_steps:,} environment steps at most")
    ranking = rank_heads(task, population, config.selection_steps, config.seed, config.threads, heads)
    chosen = ranking.standings[: config.top]
    for standing in chosen:
        say(f"head {standing.head}: {standing.described}")
    return population.select([standing.head for standing in chosen]), ranking


def _source_config(config: JumpstartConfig) -> PretrainConfig:
    """The settings of the run that policies come from, or the default ones of a world for fresh policies."""
    if not config.source:
        raise UsageError("a jump-start needs the folder of a pretraining run; start one with: kmyriad pretrain")
    if config.init == "random" and not Path(config.source).is_dir():
        find_id(config.source)
        return pretrain_preset("quick", config.source, RANDOM_HEADS)
    run = open_run(config.source)
    if run.command != "pretrain":
        raise UsageError(f"{run.path} is a {run.command} run; give the pretraining run that it started from")
    return config_from(run.config)
