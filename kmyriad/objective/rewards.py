"""The particles of an epoch: which visited states the entropy is estimated on, and what each of them is worth.

With whole horizons the pool is the epoch's own particles. With segments it is a window over the last horizon of all
replicas, so that it always is the parallel state distribution; only the newest segment's particles can be updated on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.objective.discriminant import log_probability_of_owner
from kmyriad.objective.entropy import entropy_of_radii, knn_entropy, log_ball_volume, particle_rewards
from kmyriad.objective.neighbours import Neighbours, nearest_in, nearest_neighbours
from kmyriad.rollout.collect import ParallelTrajectory, Visits


@dataclass(frozen=True)
class Novelty:
    """The k-NN entropy of the pool and what the newest segment's particles are worth."""

    entropy: float
    """Eq. 1, nats, in the training features."""
    particles: int
    """In the pool."""
    rewards: NDArray[np.float32]
    """(m, p, L), 0 where not sound."""


@dataclass(frozen=True)
class Estimate(Novelty):
    """With the exact gradient: `rewards` are the particle rewards, minus their mean over the pool."""

    neighbours: Neighbours
    """Of all N particles of the pool."""
    newest: NDArray[np.int64]
    """(m, p, L), the row of each of the newest segment's steps among the N particles; -1 where not sound."""
    dimension: int


def slide(pool: Sequence[Visits], trajectory: ParallelTrajectory, segments: int) -> list[Visits]:
    """The pool after an epoch: the newest segment joins, and what is older than one horizon leaves."""
    return [*pool, trajectory.visits][-segments:]


def estimate_entropy(pool: Sequence[Visits], k: int) -> Estimate:
    """The paper's Eq. 1 over the whole pool, and its gradient in closed form as rewards of the newest segment."""
    newest, particles = pool[-1], _particles(pool, k)
    neighbours = nearest_neighbours(particles, k)
    rewards = particle_rewards(neighbours, particles.shape[1])
    rewards -= rewards.mean()
    count = int(newest.sound.sum())
    rows = np.full(newest.sound.shape, -1, np.int64)
    rows[newest.sound] = np.arange(len(particles) - count, len(particles))
    entropy = knn_entropy(particles, k, neighbours)
    of_newest = _at(newest.sound, rewards[len(particles) - count :])
    return Estimate(entropy, len(particles), of_newest, neighbours, rows, particles.shape[1])


def estimate_novelty(
    pool: Sequence[Visits],
    k: int,
    diversity: float = 0.0,
    ahead: NDArray[np.float32] | None = None,
    ways: NDArray[np.float32] | None = None,
) -> Novelty:
    """What a critic can learn from: the log-volume of the ball around each new particle that holds k others.

    That is -ln(density) up to a constant, the reward whose policy gradient is that of the entropy H(s). Only the newest
    segment's neighbours are searched, and Eq. 1 is averaged over its particles. With `diversity` b the reward is that
    of H(s) + b I(s; head), the mutual information bounded from below by a classifier (`discriminant`), which expects
    heads `ahead` (m, f) of where they are, and to differ by their `ways` (m, f) only where these are given.
    """
    newest, particles = pool[-1], _particles(pool, k)
    asked = newest.features[newest.sound]
    if not len(asked):
        return Novelty(math.nan, len(particles), np.zeros(newest.sound.shape, np.float32))
    radii = nearest_in(particles, asked, k + 1).distances[:, -1]  # the nearest is the particle itself
    entropy = entropy_of_radii(radii, particles.shape[1], k, len(particles))
    rewards = _at(newest.sound, log_ball_volume(radii, particles.shape[1]).astype(np.float32))
    if diversity and len(rewards) > 1:
        owners = np.concatenate([np.nonzero(segment.sound)[0] for segment in pool])
        of_asked = owners[len(owners) - len(asked) :]
        told_apart = log_probability_of_owner(particles, owners, len(rewards), asked, of_asked, ahead, ways)
        rewards += np.float32(diversity) * _at(newest.sound, told_apart)
    return Novelty(entropy, len(particles), rewards)


def _particles(pool: Sequence[Visits], k: int) -> NDArray[np.float32]:
    """(N, f), the sound ones of the pool, oldest first."""
    particles = np.concatenate([segment.features[segment.sound] for segment in pool])
    if len(particles) <= k:
        raise UsageError(
            f"the entropy of k = {k} neighbours needs more than {k} sound particles; there are {len(particles)}: use"
            " more replicas or steps, or a smaller k"
        )
    return particles


def _at(sound: NDArray[np.bool_], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` of the sound steps in their places, 0 elsewhere."""
    placed = np.zeros(sound.shape, np.float32)
    placed[sound] = values
    return placed
