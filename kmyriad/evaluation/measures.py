"""A frozen population, looked at on fresh rollouts: how much it covers together, and how different its heads are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.objective.divergence import kl_to_others, pairwise_kl
from kmyriad.objective.entropy import knn_entropy
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Visits, collect
from kmyriad.rollout.randomness import generator
from kmyriad.rollout.replicas import Replicas

K = 5
"""Neighbours of all estimates here, whatever a run was trained with, so that runs compare."""

KL_POINTS = 40_000
"""Particles, of all heads together, that the KL between heads is estimated on."""

PAIR_POINTS, PAIRED_HEADS = 20_000, 64
"""Particles of all heads together for the KL of every pair, and the most heads that are paired: it takes seconds."""


def visit(population: Population, replicas: Replicas, horizon: int, seed: int = 0) -> Visits:
    """One episode in each of the replicas, which are split evenly over the heads."""
    replicas.start(seed)
    return collect(replicas, population, horizon, seed, epoch=0).visits


def measure(visits: Visits, cell: float, seed: int = 0) -> dict[str, Any]:
    """Entropies in nats, KL between heads with its floor, and covered cells, as plain JSON.

    The floor is the same estimate after the episodes were dealt to the heads at random: what heads that all behave
    alike would show with as many episodes. An estimate means something only above it.
    """
    rng = generator(seed, 0)
    heads = _by_head(visits.features, visits.sound)
    row: dict[str, Any] = {
        "entropy": knn_entropy(np.concatenate(heads), K),
        "entropy_per_head": [knn_entropy(points, K) if len(points) > K else None for points in heads],
        "particles": int(visits.sound.sum()),
    }
    if len(heads) > 1 and min(map(len, heads)) > K:
        row["kl_between_heads"] = between_heads(visits, rng).tolist()
        row["kl_floor"] = float(between_heads(_dealt(visits, rng), rng).mean())
    if visits.xy is not None:
        places = _by_head(visits.xy, visits.sound)
        row["entropy_xy"] = knn_entropy(np.concatenate(places), K)
        row["covered_cells"] = covered_cells(np.concatenate(places), cell)
        row["covered_cells_per_head"] = [covered_cells(points, cell) for points in places]
    return row


def between_heads(visits: Visits, rng: np.random.Generator) -> NDArray[np.float64]:
    """(m,), the KL of each head's states from those of all others (the paper's Table 1), on an even sample."""
    heads = _by_head(visits.features, visits.sound)
    size = min(KL_POINTS // len(heads), *(len(points) for points in heads))
    return kl_to_others(heads, K, size, rng)


def pairs_of_heads(visits: Visits, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """(m, m), the KL of the head in each row from the head in each column, on an even sample.

    None with a single head, with too many, or where one has next to no sound states.
    """
    heads = _by_head(visits.features, visits.sound)
    size = min(PAIR_POINTS // len(heads), *(len(points) for points in heads))
    if not 1 < len(heads) <= PAIRED_HEADS or size <= K:
        return None
    return pairwise_kl(heads, K, size, rng)


def covered_cells(points: NDArray[np.float32], cell: float) -> int:
    """How many squares of side `cell` hold at least one of `points` (n, 2)."""
    rows = np.floor(points / cell).astype(np.int64)
    return len(np.unique(rows[:, 0] * 2**32 + rows[:, 1]))


def _by_head(values: NDArray[np.float32], sound: NDArray[np.bool_]) -> list[NDArray[np.float32]]:
    return [values[head][sound[head]] for head in range(len(sound))]


def _dealt(visits: Visits, rng: np.random.Generator) -> Visits:
    """The same episodes, dealt to the heads at random."""
    agents, per_agent = visits.sound.shape[:2]
    order = rng.permutation(agents * per_agent)
    features = visits.features.reshape(-1, *visits.features.shape[2:])[order]
    sound = visits.sound.reshape(-1, visits.sound.shape[2])[order]
    return Visits(features.reshape(visits.features.shape), None, sound.reshape(visits.sound.shape))
