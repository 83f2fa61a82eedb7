"""The particles of an iteration: which visited states the entropy is estimated on, and what each of them is worth.

With whole horizons the pool is the iteration's own particles. With segments it is a window over the last horizon of all
replicas, so that it always is the parallel state distribution; only the newest segment's particles can be updated on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.config import ActorCritic, PretrainConfig
from kmyriad.envs.symmetry import SignedOrder
from kmyriad.errors import UsageError
from kmyriad.objective.entropy import entropy_of_radii, knn_entropy, log_ball_volume, particle_rewards, radii_of
from kmyriad.objective.neighbours import Neighbours, nearest_neighbours
from kmyriad.objective.scale import scale_of, unit_of
from kmyriad.objective.spread import along_own_way, ways_of
from kmyriad.population.codes import codes_of
from kmyriad.population.moments import column_means
from kmyriad.rollout.collect import Segment

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
    rewards: Tensor
    """(m, p, L), float32, 0 where not valid: of all processes' replicas."""
    along: Tensor | None = None
    """(m, p, 1 + L), float32: the place along its agent's own way, weighted, of the state before each replica's newest
    segment and of each of its states; NaN where that is not known. What counts is the way gone from one to the next."""


@dataclass(frozen=True, kw_only=True)
class Estimate(Rewards):
    """With the exact gradient: `rewards` are the particle rewards, minus their mean over the pool."""

    neighbours: Neighbours
    """Of all N particles of the pool."""
    newest: Tensor
    """(m, p, L), int64: the row of each of the newest segment's steps among the N particles; -1 where not valid."""
    dimension: int


Objective = Callable[[Sequence[Segment], PretrainConfig], Rewards]
"""What turns the pool, the newest segment last, into rewards. `kmyriad.pretrain(objective=...)` takes anyone's."""


def rewards_of(pool: Sequence[Segment], config: PretrainConfig, views: Sequence[SignedOrder] = ()) -> Rewards:
    """The objective that the settings ask for: what a critic can learn from, or the exact gradient of Eq. 1.

    `views` are the symmetries of the features that the environment declares, where they are made use of.
    """
    objective = config.objective
    if not isinstance(config.update, ActorCritic):
        return exact_rewards(pool, objective.neighbours, config.world.feature_scale)
    codes, scale = codes_of(config.population), config.world.feature_scale
    return novelty_rewards(pool, objective.neighbours, objective.diversity_weight, codes, views, scale)


def slide(pool: Sequence[Segment], newest: Segment, segments: int) -> list[Segment]:
    """The pool after an iteration: the newest segment joins, and what is older than one horizon leaves."""
    return [*pool, newest][-segments:]


def exact_rewards(pool: Sequence[Segment], k: int, scale: Sequence[float] = ()) -> Estimate:
    """The paper's Eq. 1 over the whole pool, and its gradient in closed form as rewards of the newest segment."""
    newest = pool[-1]
    particles, lengths = _particles(pool, k, scale)
    neighbours = nearest_neighbours(particles, k)
    rewards = particle_rewards(neighbours, particles.shape[1])
    rewards = (rewards - column_means(rewards[:, None])).float()
    older = len(particles) - int(newest.valid.sum())
    rows = torch.full(newest.valid.shape, -1, device=particles.device)
    rows[newest.valid] = torch.arange(older, len(particles), device=particles.device)
    entropy = knn_entropy(particles, k, neighbours) + unit_of(lengths)
    return Estimate(
        entropy,
        len(particles),
        _at(newest.valid, rewards[older:]),
        neighbours=neighbours,
        newest=rows,
        dimension=particles.shape[1],
    )


def novelty_rewards(
    pool: Sequence[Segment],
    k: int,
    diversity: float = 0.0,
    codes: NDArray[np.float32] | None = None,
    views: Sequence[SignedOrder] = (),
    scale: Sequence[float] = (),
) -> Rewards:
    """What a critic can learn from: the log-volume of the ball around each new particle that holds k others.

    That is -ln(density) up to a constant, the reward whose policy gradient is that of the entropy H(s). Only the newest
    segment's neighbours are searched, and Eq. 1 is averaged over its particles. With `diversity` b, and agents that
    have `codes` (m, c), b times the dependency of state and agent is maximised beside it (`spread`): `along` has it.
    """
    newest = pool[-1]
    particles, lengths = _particles(pool, k, scale)
    asked = particles[len(particles) - int(newest.valid.sum()) :]
    if not len(asked):
        return Rewards(math.nan, len(particles), torch.zeros_like(newest.valid, dtype=torch.float32))
    radii = radii_of(asked, particles, k)
    entropy = entropy_of_radii(radii, particles.shape[1], k, len(particles)) + unit_of(lengths)
    floored = radii.maximum(SMALLEST_RADIUS * radii.median())
    rewards = _at(newest.valid, log_ball_volume(floored, particles.shape[1]).float())
    if not diversity or codes is None:
        return Rewards(entropy, len(particles), rewards)
    owners = torch.cat([segment.valid.nonzero()[:, 0] for segment in pool])
    ways = ways_of(particles, owners, codes, views)
    states, known = _with_one_before(pool, lengths)
    along = _at(known, along_own_way(particles, states[known], known.nonzero()[:, 0], ways), elsewhere=math.nan)
    return Rewards(entropy, len(particles), rewards, diversity * along)


def _with_one_before(pool: Sequence[Segment], lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """(the newest segment's states after those that the one before ended with, which of them count).

    (m, p, 1 + L, f), on one scale, and (m, p, 1 + L).
    """
    newest, older = pool[-1], pool[:-1]
    features, valid = newest.features, newest.valid
    before = older[-1].features[:, :, -1:] if older else features[:, :, :1]
    counts = older[-1].valid[:, :, -1:] if older else torch.zeros_like(valid[:, :, :1])
    states = torch.cat([before, features], dim=2)
    return (states if lengths is None else states / lengths), torch.cat([counts, valid], dim=2)


def _particles(pool: Sequence[Segment], k: int, scale: Sequence[float]) -> tuple[Tensor, Tensor | None]:
    """((N, f), the valid ones of the pool on one scale, oldest first; the lengths that they were divided by)."""
    particles = torch.cat([segment.features[segment.valid] for segment in pool])
    if len(particles) <= k:
        raise UsageError(
            f"the entropy of k = {k} neighbours needs more than {k} valid particles; there are {len(particles)}: use"
            " more replicas or steps, or fewer neighbours"
        )
    lengths = scale_of(particles, scale)
    return (particles if lengths is None else particles / lengths), lengths


def _at(valid: Tensor, values: Tensor, elsewhere: float = 0.0) -> Tensor:
    """`values` of the valid steps in their places."""
    placed = torch.full_like(valid, elsewhere, dtype=torch.float32)
    placed[valid] = values
    return placed
