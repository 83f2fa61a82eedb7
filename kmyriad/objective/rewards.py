"""The particles of an iteration: which visited states the entropy is estimated on, and what each of them is worth.

With whole horizons the pool is the iteration's own particles. With segments it is a window over the last horizon of all
replicas, so that it always is the parallel state distribution; only the newest segment's particles can be updated on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.config import ActorCritic, PretrainConfig
from kmyriad.envs.symmetry import SignedOrder
from kmyriad.errors import UsageError
from kmyriad.objective.entropy import entropy_of_radii, knn_entropy, log_ball_volume, particle_rewards
from kmyriad.objective.neighbours import Neighbours, nearest_in, nearest_neighbours
from kmyriad.objective.scale import scale_of, unit_of
from kmyriad.objective.spread import along_own_way, ways_of
from kmyriad.population.codes import codes_of
from kmyriad.rollout.collect import Visits

SMALLEST_RADIUS = 0.01
"""Of the median radius: nearer neighbours earn no less. Copies of one state (a robot stuck in a corner) would otherwise
stand so far below all others that they alone set the scale of the rewards."""


@dataclass(frozen=True)
class Rewards:
    """The k-NN entropy of the pool and what the newest segment's particles are worth."""

    entropy: float
    """Eq. 1, nats, in the training features."""
    particles: int
    """In the pool."""
    rewards: NDArray[np.float32]
    """(m, p, L), 0 where not valid."""


@dataclass(frozen=True)
class Estimate(Rewards):
    """With the exact gradient: `rewards` are the particle rewards, minus their mean over the pool."""

    neighbours: Neighbours
    """Of all N particles of the pool."""
    newest: NDArray[np.int64]
    """(m, p, L), the row of each of the newest segment's steps among the N particles; -1 where not valid."""
    dimension: int


Objective = Callable[[Sequence[Visits], PretrainConfig], Rewards]
"""What turns the pool, the newest segment last, into rewards. `kmyriad.pretrain(objective=...)` takes anyone's."""


def rewards_of(pool: Sequence[Visits], config: PretrainConfig, views: Sequence[SignedOrder] = ()) -> Rewards:
    """The objective that the settings ask for: what a critic can learn from, or the exact gradient of Eq. 1.

    `views` are the symmetries of the features that the environment declares, where they are made use of.
    """
    objective = config.objective
    if not isinstance(config.update, ActorCritic):
        return exact_rewards(pool, objective.neighbours, config.world.feature_scale)
    codes, scale = codes_of(config.population), config.world.feature_scale
    return novelty_rewards(pool, objective.neighbours, objective.diversity_weight, codes, views, scale)


def slide(pool: Sequence[Visits], newest: Visits, segments: int) -> list[Visits]:
    """The pool after an iteration: the newest segment joins, and what is older than one horizon leaves."""
    return [*pool, newest][-segments:]


def exact_rewards(pool: Sequence[Visits], k: int, scale: Sequence[float] = ()) -> Estimate:
    """The paper's Eq. 1 over the whole pool, and its gradient in closed form as rewards of the newest segment."""
    newest = pool[-1]
    particles, unit = _particles(pool, k, scale)
    neighbours = nearest_neighbours(particles, k)
    rewards = particle_rewards(neighbours, particles.shape[1])
    rewards -= rewards.mean()
    count = int(newest.valid.sum())
    rows = np.full(newest.valid.shape, -1, np.int64)
    rows[newest.valid] = np.arange(len(particles) - count, len(particles))
    entropy = knn_entropy(particles, k, neighbours) + unit
    of_newest = _at(newest.valid, rewards[len(particles) - count :])
    return Estimate(entropy, len(particles), of_newest, neighbours, rows, particles.shape[1])


def novelty_rewards(
    pool: Sequence[Visits],
    k: int,
    diversity: float = 0.0,
    codes: NDArray[np.float32] | None = None,
    views: Sequence[SignedOrder] = (),
    scale: Sequence[float] = (),
) -> Rewards:
    """What a critic can learn from: the log-volume of the ball around each new particle that holds k others.

    That is -ln(density) up to a constant, the reward whose policy gradient is that of the entropy H(s). Only the newest
    segment's neighbours are searched, and Eq. 1 is averaged over its particles. With `diversity` b, and agents that
    have `codes` (m, c), b times the dependency of state and agent is maximised beside it (`spread`).
    """
    newest = pool[-1]
    particles, unit = _particles(pool, k, scale)
    asked = particles[len(particles) - int(newest.valid.sum()) :]
    if not len(asked):
        return Rewards(math.nan, len(particles), np.zeros(newest.valid.shape, np.float32))
    radii = nearest_in(particles, asked, k + 1).distances[:, -1]  # the nearest is the particle itself
    entropy = entropy_of_radii(radii, particles.shape[1], k, len(particles)) + unit
    floored = np.maximum(radii, SMALLEST_RADIUS * np.median(radii))
    rewards = _at(newest.valid, log_ball_volume(floored, particles.shape[1]).astype(np.float32))
    if diversity and codes is not None:
        owners = np.concatenate([np.nonzero(segment.valid)[0] for segment in pool])
        ways = ways_of(particles, owners, codes, views)
        own = along_own_way(particles, asked, owners[len(owners) - len(asked) :], ways)
        rewards += np.float32(diversity) * _at(newest.valid, own)
    return Rewards(entropy, len(particles), rewards)


def _particles(pool: Sequence[Visits], k: int, scale: Sequence[float]) -> tuple[NDArray[np.float32], float]:
    """((N, f), the valid ones of the pool on one scale, oldest first; what that takes off their entropy)."""
    particles = np.concatenate([segment.features[segment.valid] for segment in pool])
    if len(particles) <= k:
        raise UsageError(
            f"the entropy of k = {k} neighbours needs more than {k} valid particles; there are {len(particles)}: use"
            " more replicas or steps, or fewer neighbours"
        )
    lengths = scale_of(particles, scale)
    return (particles if lengths is None else np.divide(particles, lengths, dtype=np.float32)), unit_of(lengths)


def _at(valid: NDArray[np.bool_], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` of the valid steps in their places, 0 elsewhere."""
    placed = np.zeros(valid.shape, np.float32)
    placed[valid] = values
    return placed
