"""What is written down about an iteration."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.config import PretrainConfig, Rollouts
from kmyriad.evaluation.measures import covered_cells, decomposition
from kmyriad.objective.divergence import kl_of_one
from kmyriad.objective.entropy import entropy_of_radii, knn_entropy, radii_of
from kmyriad.objective.neighbours import Neighbours, nearest_neighbours
from kmyriad.objective.rewards import Rewards
from kmyriad.objective.scale import scale_of, scaled_visits, unit_of
from kmyriad.population.distributions import Gaussian
from kmyriad.population.moments import column_means
from kmyriad.population.population import Population
from kmyriad.processes import shared_out
from kmyriad.rollout.collect import Outcomes, Trajectory, Visits
from kmyriad.rollout.randomness import METRICS, generator
from kmyriad.runs.state import TrainingState
from kmyriad.updates.gradient import UpdateReport

POINTS_OF_AGENTS = 20_000
"""Per-agent entropy and the KL between agents are estimated on this many particles of all agents together, so that the
numbers of different iterations compare and cost little. Both depend on the number of points: compare like with like."""

POINTS_IN_XY = 100_000
"""The entropy in x and y is estimated on at most this many particles: it is only looked at, never maximised."""

INFORMATION_POINTS = 5_000
"""What a state tells about its agent is estimated on this many particles: it is only looked at."""

LOOK_EVERY = 4
"""Horizons between what needs neighbours of its own, unless a horizon has so many states that looking at
`POINTS_OF_AGENTS` of them costs little beside it."""

STILL = 0.01
"""An agent counts as standing still when its replicas roam less than this part of what the median agent's do."""


def iteration_metrics(
    config: PretrainConfig,
    cell: tuple[float, float],
    state: TrainingState,
    trajectory: Trajectory,
    outcomes: Outcomes,
    rewards: Rewards,
    report: UpdateReport,
) -> dict[str, Any]:
    """One row of metrics.jsonl, all of it a function of the run's settings and the iteration (timings are added later).

    `outcomes` are those of all processes. What needs neighbours of its own (per agent, between agents, in x and y) is
    there after some horizons (`is_look`). All processes come by, as they share out the search.
    """
    k = config.objective.neighbours
    rng = generator(config.run.seed, state.iteration, METRICS)
    row = {
        **update_metrics(state, trajectory, outcomes, report),
        "entropy": rewards.entropy,
        "particles": rewards.particles,
        "still_agents": still_agents(outcomes),
    }
    if is_look(config.rollouts, state.iteration):
        pool = [segment.visits for segment in state.pool]
        clouds, unit = _particles_per_agent(pool, rng, config.world.feature_scale)
        own = cache(lambda agent: nearest_neighbours(clouds[agent], k))
        row["entropy_per_agent"] = _entropies(clouds, k, unit, own)
        row["kl_between_agents"] = _kl_between_agents(clouds, k, own)
        whole, _ = scaled_visits(_whole(pool), config.world.feature_scale)
        newest = whole.features[:, :, -outcomes.valid.shape[2] :]
        starts = newest[((outcomes.episode_steps == 0) & outcomes.valid).cpu().numpy()]
        row |= decomposition(whole, k, rewards.entropy, starts, rng, INFORMATION_POINTS)
        row |= _position_metrics(pool, k, cell, rng)
    return row


def is_look(rollouts: Rollouts, iteration: int) -> bool:
    """Whether the pool is looked at: after the first horizon, and every fourth, or more often where horizons are large.

    With segments most of the pool is the same from iteration to iteration.
    """
    horizon, steps = divmod(iteration, rollouts.per_horizon)
    states = rollouts.per_horizon * rollouts.steps_per_iteration
    every = min(math.ceil(LOOK_EVERY * POINTS_OF_AGENTS / states), LOOK_EVERY)
    return steps == 0 and horizon % every == 1 % every


def update_metrics(
    state: TrainingState, trajectory: Trajectory, outcomes: Outcomes, report: UpdateReport
) -> dict[str, Any]:
    """What is there to say about any update."""
    return {
        "iteration": state.iteration,
        "env_steps": state.env_steps,
        "std": _std(state.population, trajectory),
        "gradient_norm": report.gradient_norm,
        "update_kl": report.kl,
        "effective_sample_size": report.effective_sample_size,
        "update_steps": report.steps,
        "learning_rate": state.learning_rate,
        "skipped_updates": state.skipped_updates,
        "diverged_replicas": int((~outcomes.valid).any(dim=-1).sum()),
    }


def success_metrics(outcomes: Outcomes, horizon: int, counts: bool, *, has_goal: bool) -> dict[str, Any]:
    """Success rate of the episodes that ended, unless not `counts` (they did not begin at their start), and the return.

    Success is there where it is told, the return where the task is the environment's own reward: the mean reward of a
    step times the steps of an episode, as segments see only parts of episodes.
    """
    told = [None] * len(outcomes.dones) if outcomes.success is None else outcomes.success
    per_agent = [
        float(success[dones].double().mean()) if success is not None and counts and dones.any() else None
        for success, dones in zip(told, outcomes.dones, strict=True)
    ]
    known = [rate for rate in per_agent if rate is not None]
    steps_per_episode = outcomes.steps / int(outcomes.dones.sum()) if outcomes.terminated.any() else horizon
    return {
        "success": float(np.mean(known)) if known else None,
        "success_per_agent": per_agent,
        "episodes": int(outcomes.dones.sum()) if counts else 0,
        "return": None if has_goal else float(column_means(outcomes.rewards.view(-1, 1))) * steps_per_episode,
    }


def timings(steps: int, seconds: float) -> dict[str, float]:
    """What differs from run to run."""
    return {"seconds": seconds, "steps_per_second": steps / seconds}


def still_agents(outcomes: Outcomes) -> list[int]:
    """Agents whose replicas hardly leave the spot while others do (or all of them, if none moves at all)."""
    roamed = np.ptp(outcomes.features.cpu().numpy(), axis=2).max(axis=-1)  # (m, p): widest extent over the features
    per_agent = np.median(roamed, axis=1)
    return np.flatnonzero(per_agent <= max(STILL * float(np.median(per_agent)), 1e-6)).tolist()


def _position_metrics(
    pool: Sequence[Visits], k: int, cell: tuple[float, float], rng: np.random.Generator
) -> dict[str, Any]:
    """Entropy on the map's two axes, and how many of its cells were visited, by all and by each agent."""
    agents = [np.concatenate([s.xy[agent][s.valid[agent]] for s in pool]) for agent in range(len(pool[-1].valid))]
    everyone = np.concatenate(agents)
    few = rng.permutation(everyone)[:POINTS_IN_XY] / np.asarray(cell, np.float32)
    is_flat = not np.ptp(few, axis=0).all()
    return {
        "entropy_xy": None if is_flat else _entropy(torch.from_numpy(few), k) + float(np.log(cell).sum()),
        "covered_cells": covered_cells(everyone, cell),
        "covered_cells_per_agent": [covered_cells(points, cell) for points in agents],
    }


def _particles_per_agent(
    pool: Sequence[Visits], rng: np.random.Generator, scale: Sequence[float]
) -> tuple[list[NDArray[np.float32]], float]:
    """(up to an even share of POINTS_OF_AGENTS particles of each agent on one scale, what that takes off entropies)."""
    clouds = []
    agents = len(pool[-1].valid)
    for agent in range(agents):
        points = np.concatenate([segment.features[agent][segment.valid[agent]] for segment in pool])
        chosen = rng.permutation(len(points))[: POINTS_OF_AGENTS // agents]
        clouds.append(points[chosen])
    lengths = scale_of(np.concatenate(clouds), scale)
    clouds = clouds if lengths is None else [np.divide(cloud, lengths.numpy(), dtype=np.float32) for cloud in clouds]
    return clouds, unit_of(lengths)


def _whole(pool: Sequence[Visits]) -> Visits:
    """The pool's segments one after the other, (m, p, T, ...)."""
    parts = ([getattr(segment, name) for segment in pool] for name in ("features", "xy", "valid"))
    return Visits(*(np.concatenate(part, axis=2) for part in parts))


def _entropy(points: Tensor, k: int) -> float:
    """Eq. 1 of `points` (n, d) that all processes have."""
    return entropy_of_radii(radii_of(points, points, k), points.shape[1], k, len(points))


OwnNeighbours = Callable[[int], Neighbours]
"""The neighbours of an agent's points among themselves; searched once, by the process that needs them."""


def _entropies(clouds: list[NDArray[np.float32]], k: int, unit: float, own: OwnNeighbours) -> list[float | None]:
    """Eq. 1 of each of the `clouds`, `unit` added; None of too few points."""
    found = shared_out(
        lambda agent: knn_entropy(clouds[agent], k, own(agent)) if len(clouds[agent]) > k else math.nan, len(clouds)
    )
    return [None if math.isnan(entropy) else entropy + unit for entropy in found]


def _kl_between_agents(clouds: list[NDArray[np.float32]], k: int, own: OwnNeighbours) -> float | None:
    """The paper's Table 1: each agent against all others, averaged; None for a single agent."""
    if len(clouds) < 2 or min(len(cloud) for cloud in clouds) <= k:
        return None
    return float(np.mean(shared_out(lambda agent: kl_of_one(clouds, agent, k, own(agent)), len(clouds))))


@torch.no_grad()
def _std(population: Population, trajectory: Trajectory) -> float | None:
    """Mean standard deviation of the raw actions over a few of the iteration's observations; None where discrete."""
    policy = population(trajectory.observations[:, 0])
    return float(policy.log_std.exp().mean()) if isinstance(policy, Gaussian) else None
