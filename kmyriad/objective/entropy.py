"""State entropy from nearest neighbours: its value, its importance-weighted form, and its gradient as rewards."""

import math

import numpy as np
import torch
from torch import Tensor

from kmyriad.errors import UsageError
from kmyriad.objective.neighbours import Neighbours, Points, nearest_in, nearest_neighbours
from kmyriad.population.moments import column_means
from kmyriad.processes import divided

MIN_RADIUS = 1e-6
"""Smaller distances count as this much. Duplicates happen (a robot stuck in a corner), and ln 0 would make the whole
estimate infinite; a micrometre is about what float32 can tell apart at 10 m."""

LOG_ZERO = -1e4
"""Stands for the logarithm of a weight of 0: its exponential is 0, its products with 0 are 0."""


def log_ball_volume(radius: Tensor, dimension: int) -> Tensor:
    """The logarithm of the volume of balls of `radius` (any shape) in `dimension` dimensions; same shape, float64."""
    if dimension < 1:
        raise UsageError(f"dimension must be at least 1; got {dimension}")
    log_unit_ball = dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2 + 1)
    return log_unit_ball + dimension * radius.double().clamp(min=MIN_RADIUS).log()


def knn_entropy(points: Points, k: int, neighbours: Neighbours | None = None) -> float:
    """Entropy in nats of the distribution that `points` (N, d) were drawn from: the paper's Eq. 1 (Singh 2003).

    `neighbours` are the points' own k nearest, where they are known already.
    """
    if neighbours is None:
        neighbours = nearest_neighbours(points, k)
    if neighbours.indices.shape != (len(points), k):
        raise UsageError(
            f"neighbours are {tuple(neighbours.indices.shape)} but points and k ask for {(len(points), k)}; "
            "pass those of the same points and k"
        )
    return entropy_of_radii(neighbours.distances[:, -1], points.shape[1], k, len(points))


def entropy_of_radii(radii: Tensor, dimension: int, k: int, points: int) -> float:
    """Eq. 1 from the distances to the k-th nearest of `points` points, those of all of them or of a fair sample."""
    return math.log(points) - _digamma(k) + float(column_means(log_ball_volume(radii, dimension)[:, None]))


def radii_of(asked: Tensor, points: Tensor, k: int) -> Tensor:
    """(n,), how far the k-th other of `points` (N, d) is from each of those `asked` (n, d), which are among them.

    All processes have them, and each looks up a part.
    """
    return divided(lambda some: nearest_in(points, some, k + 1).distances[:, -1], asked)  # the nearest is itself


def weighted_knn_entropy(log_weights: Tensor, neighbours: Neighbours, dimension: int) -> Tensor:
    """Entropy of the distribution that `log_weights` (N,) turn the points into, differentiable in them; a scalar.

    Importance-weighted k-NN (Ajgl & Simandl 2011) in MEPOL's form: weights are normalised over the batch. At equal
    weights it is `knn_entropy`; the formula as printed in the paper is not.
    """
    k = neighbours.indices.shape[1]
    log_shares = _log_neighbourhood_weights(log_weights, neighbours)
    log_volumes = log_ball_volume(neighbours.distances[:, -1], dimension).to(log_weights)
    return -(log_shares.exp() * (log_shares - log_volumes)).sum() / k + math.log(k) - _digamma(k)


def particle_rewards(neighbours: Neighbours, dimension: int, centred: bool = False) -> Tensor:
    """(N,), what each point adds to the entropy: policy gradient on these rewards is the gradient of Eq. 1.

    The gradient of `weighted_knn_entropy` at equal weights with respect to log weight j is (r_j - mean r) / N, with
    r_j = (1/k) sum of [ln V_i + ln(N/k) - 1] over the points i whose neighbourhood holds j. A point's neighbourhood is
    itself and its first k - 1 neighbours; V_i is the ball that reaches its k-th.

    The constant, and the mean of ln V, only multiply how many neighbourhoods a point happens to be in, which is noise.
    `centred` leaves the constant out and subtracts the mean: no longer the exact derivative, but less variance.
    """
    n, k = neighbours.indices.shape
    values = log_ball_volume(neighbours.distances[:, -1], dimension)
    values += -column_means(values[:, None]) if centred else math.log(n / k) - 1
    sums = torch.bincount(_neighbourhoods(neighbours).flatten(), values.repeat_interleave(k), minlength=n)
    return (sums / k).float()


def neighbourhood_kl(log_weights: Tensor, neighbours: Neighbours) -> Tensor:
    """How far `log_weights` (N,) move the state distribution: MEPOL's trust-region KL in nats, at least 0; a scalar."""
    n, k = neighbours.indices.shape
    return (math.log(k / n) - _log_neighbourhood_weights(log_weights, neighbours).mean()).clamp(min=0)


def effective_sample_size(log_weights: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 for `log_weights` (N,), as a fraction of N: 1 at equal weights, 1/N at worst; a scalar."""
    log_w = torch.log_softmax(log_weights, 0)
    return (-torch.logsumexp(2 * log_w, 0)).exp() / len(log_w)


def _log_neighbourhood_weights(log_weights: Tensor, neighbours: Neighbours) -> Tensor:
    """(N,), ln W_i: the normalised weight of each point's neighbourhood."""
    n = len(neighbours.indices)
    if log_weights.shape != (n,):
        raise UsageError(f"log_weights must have shape ({n},), one per point; got {tuple(log_weights.shape)}")
    log_w = torch.log_softmax(log_weights, 0).clamp(min=LOG_ZERO)
    return torch.logsumexp(log_w[_neighbourhoods(neighbours)], 1)


def _neighbourhoods(neighbours: Neighbours) -> Tensor:
    """(N, k): each point and its first k - 1 neighbours."""
    indices = neighbours.indices
    return torch.cat([torch.arange(len(indices), device=indices.device)[:, None], indices[:, :-1]], dim=1)


def _digamma(k: int) -> float:
    return -float(np.euler_gamma) + sum(1 / i for i in range(1, k))
