"""What is written down about an epoch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.config import PretrainConfig
from kmyriad.evaluation.measures import covered_cells
from kmyriad.objective.divergence import kl_to_others
from kmyriad.objective.entropy import knn_entropy
from kmyriad.objective.rewards import Novelty
from kmyriad.population.distributions import Gaussian
from kmyriad.population.population import Population
from kmyriad.rollout.collect import ParallelTrajectory, Visits
from kmyriad.rollout.randomness import METRICS, generator
from kmyriad.runs.state import TrainingState
from kmyriad.updates.gradient import UpdateReport

POINTS_OF_HEADS = 20_000
"""Per-head entropy and the KL between heads are estimated on this many particles of all heads together, so that the
numbers of different epochs compare and cost little. Both depend on the number of points: compare like with like."""

POINTS_IN_XY = 100_000
"""The entropy in x and y is estimated on at most this many particles: it is only looked at, never maximised."""

STILL = 0.01
"""A head counts as standing still when its replicas roam less than this part of what the median head's do."""


def epoch_metrics(
    config: PretrainConfig,
    cell: float,
    state: TrainingState,
    trajectory: ParallelTrajectory,
    novelty: Novelty,
    report: UpdateReport,
) -> dict[str, Any]:
    """One row of metrics.jsonl, all of it a function of the run's settings and the epoch (timings are added later).

    What needs neighbours of its own (per head, between heads, in x and y) is there once per horizon: with segments
    most of the pool is the same from epoch to epoch.
    """
    pool, k = state.pool, config.k
    rng = generator(config.seed, state.epoch, METRICS)
    row = {
        **update_metrics(state, trajectory, report),
        "entropy": novelty.entropy,
        "particles": novelty.particles,
        "still_heads": still_heads(trajectory),
    }
    if state.epoch % config.epochs_per_horizon == 0:
        clouds = _particles_per_head(pool, rng)
        row["entropy_per_head"] = [knn_entropy(cloud, k) if len(cloud) > k else None for cloud in clouds]
        row["kl_between_heads"] = _kl_between_heads(clouds, k)
        if pool[-1].xy is not None:
            row |= _position_metrics(pool, k, cell, rng)
    return row


def update_metrics(state: TrainingState, trajectory: ParallelTrajectory, report: UpdateReport) -> dict[str, Any]:
    """What is there to say about any update."""
    return {
        "epoch": state.epoch,
        "env_steps": state.env_steps,
        "sigma": _sigma(state.population, trajectory),
        "gradient_norm": report.gradient_norm,
        "update_kl": report.kl,
        "effective_sample_size": report.effective_sample_size,
        "update_steps": report.steps,
        "learning_rate": state.learning_rate,
        "skipped_updates": state.skipped_updates,
        "diverged_replicas": int((~trajectory.sound).any(axis=-1).sum()),
    }


def success_metrics(trajectory: ParallelTrajectory, horizon: int, counts: bool) -> dict[str, Any]:
    """Success rate of the episodes that ended, unless not `counts` (they did not begin at their start), and the return.

    The return is the mean reward of a step times the steps of an episode, as segments see only parts of episodes.
    """
    per_head = [
        float(success[ends].mean()) if counts and ends.any() else None
        for success, ends in zip(trajectory.success, trajectory.ends, strict=True)
    ]
    known = [rate for rate in per_head if rate is not None]
    steps_per_episode = trajectory.steps / trajectory.ends.sum() if trajectory.terminated.any() else horizon
    return {
        "success": float(np.mean(known)) if known else None,
        "success_per_head": per_head,
        "episodes": int(trajectory.ends.sum()) if counts else 0,
        "return": float(trajectory.rewards.mean()) * steps_per_episode,
    }


def timings(steps: int, seconds: float) -> dict[str, float]:
    """What differs from run to run."""
    return {"seconds": seconds, "steps_per_second": steps / seconds}


def still_heads(trajectory: ParallelTrajectory) -> list[int]:
    """Heads whose replicas hardly leave the spot while others do (or all of them, if none moves at all)."""
    roamed = np.ptp(trajectory.features, axis=2).max(axis=-1)  # (m, p): widest extent over the features
    per_head = np.median(roamed, axis=1)
    return np.flatnonzero(per_head <= max(STILL * float(np.median(per_head)), 1e-6)).tolist()


def _position_metrics(pool: Sequence[Visits], k: int, cell: float, rng: np.random.Generator) -> dict[str, Any]:
    """Entropy in x and y, and how many square cells were visited, by all and by the average head."""
    heads = [
        np.concatenate([s.xy[head][s.sound[head]] for s in pool if s.xy is not None])
        for head in range(len(pool[-1].sound))
    ]
    everyone = np.concatenate(heads)
    return {
        "entropy_xy": knn_entropy(rng.permutation(everyone)[:POINTS_IN_XY], k),
        "covered_cells": covered_cells(everyone, cell),
        "covered_cells_per_head": [covered_cells(points, cell) for points in heads],
    }


def _particles_per_head(pool: Sequence[Visits], rng: np.random.Generator) -> list[NDArray[np.float32]]:
    """Up to an even share of POINTS_OF_HEADS particles of each head, drawn from the pool."""
    clouds = []
    agents = len(pool[-1].sound)
    for head in range(agents):
        points = np.concatenate([segment.features[head][segment.sound[head]] for segment in pool])
        chosen = rng.permutation(len(points))[: POINTS_OF_HEADS // agents]
        clouds.append(points[chosen])
    return clouds


def _kl_between_heads(clouds: list[NDArray[np.float32]], k: int) -> float | None:
    """The paper's Table 1: each head against all others, averaged; None for a single head."""
    if len(clouds) < 2 or min(len(cloud) for cloud in clouds) <= k:
        return None
    return float(kl_to_others(clouds, k).mean())


@torch.no_grad()
def _sigma(population: Population, trajectory: ParallelTrajectory) -> float | None:
    """Mean standard deviation of the raw actions over a few of the epoch's observations; None where discrete."""
    policy = population(trajectory.observations[:, 0])
    return float(policy.log_sigma.exp().mean()) if isinstance(policy, Gaussian) else None
