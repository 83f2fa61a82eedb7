"""The particles of an epoch: which visited states the entropy is estimated on, and what each of them is worth.

With whole horizons the pool is the epoch's own particles. With segments it is a window over the last horizon of all
replicas, so that it always is the parallel state distribution; only the newest segment's particles can be updated on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.entropy.estimators import knn_entropy, particle_rewards
from kmyriad.entropy.neighbours import Neighbours, nearest_neighbours
from kmyriad.errors import UsageError
from kmyriad.rollout import ParallelTrajectory


@dataclass(frozen=True)
class Segment:
    """What the pool keeps of one epoch."""

    features: NDArray[np.float32]
    """(m, p, L, f)."""
    xy: NDArray[np.float32] | None
    """(m, p, L, 2)."""
    sound: NDArray[np.bool_]
    """(m, p, L)."""


@dataclass(frozen=True)
class Estimate:
    """The k-NN entropy of the pool and what follows from it for the newest segment."""

    entropy: float
    """Eq. 1, nats, in the training features."""
    rewards: NDArray[np.float32]
    """(m, p, L), the particle rewards of the newest segment, minus their mean over the pool; 0 where not sound."""
    neighbours: Neighbours
    """Of all N particles of the pool."""
    newest: NDArray[np.int64]
    """(m, p, L), the row of each of the newest segment's steps among the N particles; -1 where not sound."""
    dimension: int

    @property
    def particles(self) -> int:
        return len(self.neighbours.indices)


def slide(pool: Sequence[Segment], trajectory: ParallelTrajectory, segments: int) -> list[Segment]:
    """The pool after an epoch: the newest segment joins, and what is older than one horizon leaves."""
    return [*pool, Segment(trajectory.features, trajectory.xy, trajectory.sound)][-segments:]


def estimate_entropy(pool: Sequence[Segment], k: int) -> Estimate:
    """The paper's Eq. 1 over the whole pool, and its gradient in closed form as rewards of the newest segment."""
    newest = pool[-1]
    particles = np.concatenate([segment.features[segment.sound] for segment in pool])
    if len(particles) <= k:
        raise UsageError(
            f"the entropy of k = {k} neighbours needs more than {k} sound particles; there are {len(particles)}: use"
            " more replicas or steps, or a smaller k"
        )
    neighbours = nearest_neighbours(particles, k)
    rewards = particle_rewards(neighbours, particles.shape[1])
    rewards -= rewards.mean()
    count = int(newest.sound.sum())
    rows = np.full(newest.sound.shape, -1, np.int64)
    rows[newest.sound] = np.arange(len(particles) - count, len(particles))
    of_newest = np.zeros(newest.sound.shape, np.float32)
    of_newest[newest.sound] = rewards[len(particles) - count :]
    entropy = knn_entropy(particles, k, neighbours)
    return Estimate(entropy, of_newest, neighbours, rows, particles.shape[1])
