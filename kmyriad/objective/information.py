"""What the entropy of all agents' states is made of: what agents visit each, and how far they differ.

H(s) = H(s | agent) + I(s; agent). For any classifier q(agent | state) the information I is at least E ln q + ln m
(Barber and Agakov 2003). Here q asks the nearest states of *other* replicas whose they are: states of one trajectory
are near each other whatever its agent does. How many are asked, and how far they are trusted, is what makes the bound
highest.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.objective.neighbours import nearest_in
from kmyriad.processes import divided

VOTERS = (10, 30, 100)
"""Neighbours that are asked whose state it is."""
TRUST = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])
"""Weight of what they say; the rest is shared out evenly over all agents, so that none is out of the question."""

QUERIES = 2_000
"""States whose neighbours are looked up for the share of the own trajectory."""


def information(
    features: NDArray[np.float32], valid: NDArray[np.bool_], points: int, rng: np.random.Generator
) -> float | None:
    """I(s; agent) in nats, at least: between 0 and ln m; None with one agent, or fewer than two replicas of each.

    Of states `features` (m, p, L, f), those that are `valid` (m, p, L); about `points` of them are looked at.
    """
    agents, replicas = valid.shape[:2]
    if agents < 2 or replicas < 2:
        return None
    halves = [_even_sample(features[:, half::2], valid[:, half::2], points // (2 * agents), rng) for half in range(2)]
    size = min(len(cloud) for half in halves for cloud in half)
    if size == 0:
        return None
    owners = np.repeat(np.arange(agents), size)
    asked, known = (np.concatenate([cloud[:size] for cloud in half]) for half in halves)
    found = np.concatenate([_votes(known, asked, owners), _votes(asked, known, owners)])
    return max(_bound(found[:, :voters].mean(axis=1), agents) for voters in VOTERS)


def own_trajectory_share(
    features: NDArray[np.float32], valid: NDArray[np.bool_], k: int, rng: np.random.Generator
) -> float | None:
    """Of the k nearest neighbours of a state, the share that its own replica visited; None with too few states."""
    agents, replicas = valid.shape[:2]
    trajectory = np.broadcast_to(np.arange(agents * replicas).reshape(agents, replicas, 1), valid.shape)[valid]
    particles = features[valid]
    if len(particles) <= k:
        return None
    asked = rng.permutation(len(particles))[:QUERIES]
    found = nearest_in(particles, particles[asked], k + 1).indices.numpy()  # the state itself among them
    same = (trajectory[found] == trajectory[asked, None]).sum(axis=1)
    return float((same - 1).mean() / k)


def distance_from(start: NDArray[np.float32], features: NDArray[np.float32], valid: NDArray[np.bool_]) -> float | None:
    """How far from `start` (f,) visited states are on average, in units of the features."""
    return float(np.linalg.norm(features[valid] - start, axis=-1).mean()) if valid.any() else None


def _even_sample(
    features: NDArray[np.float32], valid: NDArray[np.bool_], most: int, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """Per agent, up to `most` of its valid states, in random order."""
    clouds = [of_agent[counts] for of_agent, counts in zip(features, valid, strict=True)]
    return [cloud[rng.permutation(len(cloud))[:most]] for cloud in clouds]


def _votes(known: NDArray[np.float32], asked: NDArray[np.float32], owners: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, voters), which neighbours among `known` (n, f) of the states `asked` (n, f) are their owners' (n,)."""
    voters = min(VOTERS[-1], len(known))
    nearest = divided(lambda some: nearest_in(known, some, voters).indices, torch.from_numpy(asked)).numpy()
    found: NDArray[np.bool_] = owners[nearest] == owners[:, None]
    return found


def _bound(shares: NDArray[np.floating], agents: int) -> float:
    """E ln q + ln m at the best trust, for `shares` (n,) of the votes that are right; at least 0, with no trust."""
    trusted = 1 - TRUST[:, None] + agents * TRUST[:, None] * shares
    return float(np.log(trusted).mean(axis=1).max())
