"""How far the agents' state distributions are apart: Kullback-Leibler divergence from nearest neighbours."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.objective.entropy import MIN_RADIUS
from kmyriad.objective.neighbours import Neighbours, nearest_in, nearest_neighbours
from kmyriad.population.moments import column_means

Clouds = Sequence[NDArray[np.floating]] | NDArray[np.floating]
"""The points (n_i, d) that each agent visited: a list, or one array (m, n, d)."""


def kl_divergence(p: NDArray[np.floating], q: NDArray[np.floating], k: int = 5) -> float:
    """D(P || Q) in nats from points `p` (n, d) of P and `q` (m, d) of Q (Wang, Kulkarni & Verdu 2009).

    The two must be drawn independently. The estimate is not floored: near 0 it may come out a little negative.
    """
    return _divergence(nearest_neighbours(p, k), p, q)


def kl_to_others(
    clouds: Clouds, k: int = 5, subsample: int | None = None, rng: np.random.Generator | None = None
) -> NDArray[np.float64]:
    """(m,), the divergence of each agent's points from those of all other agents pooled, as in the paper's Table 1.

    With one agent there is nothing to compare: the result is [nan].

    Args:
        clouds: the points (n_i, d) of each agent.
        k: neighbours.
        subsample: how many points of each cloud to use, drawn by `rng` without replacement; None uses all. Every agent
            searches nearly all points, so the time grows with agents x points.
        rng: what the subsample is drawn with.
    """
    _check_clouds(clouds)
    if len(clouds) == 1:
        return np.array([np.nan])
    if subsample is not None:
        clouds = _draw(clouds, subsample, rng)
    return np.array([kl_of_one(clouds, agent, k) for agent in range(len(clouds))])


def kl_of_one(clouds: Clouds, agent: int, k: int = 5, own: Neighbours | None = None) -> float:
    """The divergence of one agent's points from those of all others pooled, of at least two.

    `own` are the k nearest of its points among themselves, where they are known already.
    """
    own = own or nearest_neighbours(clouds[agent], k)
    return _divergence(own, clouds[agent], np.concatenate([*clouds[:agent], *clouds[agent + 1 :]]))


def pairwise_kl(
    clouds: Clouds, k: int = 5, subsample: int | None = None, rng: np.random.Generator | None = None
) -> NDArray[np.float64]:
    """(m, m), the divergence of agent i's points from agent j's in row i, column j; zero on the diagonal.

    `subsample` and `rng` as in `kl_to_others`.
    """
    _check_clouds(clouds)
    if subsample is not None:
        clouds = _draw(clouds, subsample, rng)
    table = np.zeros((len(clouds), len(clouds)))
    for i, p in enumerate(clouds):
        own = nearest_neighbours(p, k)
        for j, q in enumerate(clouds):
            if i != j:
                table[i, j] = _divergence(own, p, q)
    return table


def _divergence(own: Neighbours, p: NDArray[np.floating], q: NDArray[np.floating]) -> float:
    """D(P || Q), given the neighbours `own` of `p` (n, d) among themselves."""
    n, d = p.shape
    others = nearest_in(q, p, own.indices.shape[1])
    rho, nu = (found.distances[:, -1].double().clamp(min=MIN_RADIUS) for found in (own, others))
    return d * float(column_means((nu / rho).log()[:, None])) + math.log(len(q) / (n - 1))


def _check_clouds(clouds: Clouds) -> None:
    if len(clouds) == 0:
        raise UsageError("clouds is empty; give the points of at least one agent")
    shapes = [cloud.shape for cloud in clouds]
    if any(len(shape) != 2 or shape[1] != shapes[0][-1] for shape in shapes):
        raise UsageError(f"clouds must be arrays (points, dimensions) with the same dimensions; got shapes {shapes}")


def _draw(clouds: Clouds, size: int, rng: np.random.Generator | None) -> list[NDArray[np.floating]]:
    """`size` points of each cloud."""
    if rng is None:
        raise UsageError(f"subsample = {size} needs rng, a numpy Generator to draw with")
    smallest = min(len(cloud) for cloud in clouds)
    if not 1 <= size <= smallest:
        raise UsageError(f"subsample must lie between 1 and the smallest cloud's {smallest} points; got {size}")
    return [cloud[rng.choice(len(cloud), size, replace=False)] for cloud in clouds]
