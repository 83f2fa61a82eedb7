"""A frozen population, looked at on fresh rollouts: how much it covers together, and how different its agents are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.objective.divergence import kl_to_others, pairwise_kl
from kmyriad.objective.entropy import knn_entropy
from kmyriad.objective.information import distance_from, information, own_trajectory_share
from kmyriad.objective.scale import scaled_visits
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Segment, Visits, collect
from kmyriad.rollout.randomness import generator
from kmyriad.rollout.replicas import Replicas

K = 5
"""Neighbours of all estimates here, whatever a run was trained with, so that runs compare."""

KL_POINTS = 40_000
"""Particles, of all agents together, that the KL between agents is estimated on."""

INFORMATION_POINTS = 40_000
"""States, of all agents together, that the information of state and agent is estimated on."""

PAIR_POINTS, PAIRED_AGENTS = 20_000, 64
"""Particles of all agents together for the KL of every pair, and the most agents that are paired: it takes seconds."""


def visit(population: Population, replicas: Replicas, horizon: int, seed: int = 0) -> Visits:
    """One episode in each of the replicas, which are split evenly over the agents; what follows it is not valid."""
    replicas.start(seed)
    trajectory = collect(replicas, population, horizon, seed, iteration=0)
    counts = trajectory.valid & trajectory.in_first_episode
    return Segment(trajectory.features, trajectory.xy, counts).visits


def measure(visits: Visits, cell: tuple[float, float], seed: int = 0, scale: Sequence[float] = ()) -> dict[str, Any]:
    """Entropies in nats, KL between agents with its floor, covered cells and `decomposition`, as plain JSON.

    `scale` is the length that counts as one in each feature (`objective.scale`); entropies are in the features' own
    units whatever it is.

    The floor is the same estimate after the episodes were dealt to the agents at random: what agents that all behave
    alike would show with as many episodes. An estimate means something only above it.
    """
    rng = generator(seed, 0)
    visits, unit = scaled_visits(visits, scale)
    agents = _by_agent(visits.features, visits.valid)
    row: dict[str, Any] = {
        "entropy": knn_entropy(np.concatenate(agents), K) + unit,
        "entropy_per_agent": [knn_entropy(points, K) + unit if len(points) > K else None for points in agents],
        "particles": int(visits.valid.sum()),
    }
    if len(agents) > 1 and min(map(len, agents)) > K:
        row["kl_between_agents"] = between_agents(visits, rng).tolist()
        row["kl_floor"] = float(between_agents(_dealt(visits, rng), rng).mean())
    places = _by_agent(visits.xy, visits.valid)
    row["covered_cells"] = covered_cells(np.concatenate(places), cell)
    row["covered_cells_per_agent"] = [covered_cells(points, cell) for points in places]
    if np.ptp(np.concatenate(places), axis=0).all():
        in_cells = np.divide(np.concatenate(places), cell, dtype=np.float32)
        row["entropy_xy"] = knn_entropy(in_cells, K) + float(np.log(cell).sum())
    start = visits.features[:, :, 0][visits.valid[:, :, 0]]
    parts = decomposition(visits, K, row["entropy"], start, generator(seed, 2))
    return row | {name: value for name, value in parts.items() if value is not None}


def decomposition(
    visits: Visits,
    k: int,
    entropy: float,
    starts: NDArray[np.float32],
    rng: np.random.Generator,
    points: int = INFORMATION_POINTS,
) -> dict[str, float | None]:
    """What the entropy H(s) is made of, and what its neighbours are; `starts` (n, f) are states that episodes begin in.

    `information` is I(s; agent), at least, and `entropy_within_agents` H(s | agent), at most: the two make the entropy.
    """
    told = information(visits.features, visits.valid, points, rng)
    start = starts.mean(axis=0) if len(starts) else None
    return {
        "information": told,
        "entropy_within_agents": None if told is None else entropy - told,
        "own_trajectory_share": own_trajectory_share(visits.features, visits.valid, k, rng),
        "distance_from_start": None if start is None else distance_from(start, visits.features, visits.valid),
    }


def between_agents(visits: Visits, rng: np.random.Generator) -> NDArray[np.float64]:
    """(m,), the KL of each agent's states from those of all others (the paper's Table 1), on an even sample."""
    agents = _by_agent(visits.features, visits.valid)
    size = min(KL_POINTS // len(agents), *(len(points) for points in agents))
    return kl_to_others(agents, K, size, rng)


def pairs_of_agents(visits: Visits, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """(m, m), the KL of the agent in each row from the agent in each column, on an even sample.

    None with a single agent, with too many, or where one has next to no valid states.
    """
    agents = _by_agent(visits.features, visits.valid)
    size = min(PAIR_POINTS // len(agents), *(len(points) for points in agents))
    if not 1 < len(agents) <= PAIRED_AGENTS or size <= K:
        return None
    return pairwise_kl(agents, K, size, rng)


def covered_cells(points: NDArray[np.float32], cell: tuple[float, float]) -> int:
    """How many rectangles with sides `cell` hold at least one of `points` (n, 2)."""
    rows = np.floor(points / np.asarray(cell, np.float32)).astype(np.int64)
    return len(np.unique(rows[:, 0] * 2**32 + rows[:, 1]))


def _by_agent(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> list[NDArray[np.float32]]:
    return [values[agent][valid[agent]] for agent in range(len(valid))]


def _dealt(visits: Visits, rng: np.random.Generator) -> Visits:
    """The same episodes, dealt to the agents at random."""
    agents, per_agent = visits.valid.shape[:2]
    order = rng.permutation(agents * per_agent)
    features = visits.features.reshape(-1, *visits.features.shape[2:])[order]
    valid = visits.valid.reshape(-1, visits.valid.shape[2])[order]
    return Visits(features.reshape(visits.features.shape), visits.xy, valid.reshape(visits.valid.shape))
