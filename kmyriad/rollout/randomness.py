"""Random numbers as a function of (seed, iteration, replica), never of what was drawn before.

So a shard of the replicas sees the same noise on any number of threads or processes, and a run resumes exactly without
saving a generator.
"""

import numpy as np
from numpy.typing import NDArray

from kmyriad.population.distributions import ActionSpec

METRICS, SHUFFLING, SELECTION = 1, 2, 3
"""Purposes of an iteration's generators, apart from resets."""


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """A generator for one purpose, such as (iteration,) or (iteration, replica)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *purpose])))


def action_noise(seed: int, iteration: int, replicas: int, steps: int, actions: ActionSpec) -> NDArray[np.float32]:
    """(steps, replicas, a), each replica's from a stream of its own."""
    noise = np.empty((steps, replicas, actions.size), np.float32)
    for replica in range(replicas):
        # Counter-based: the key is the run's, the place in the stream is (iteration, replica).
        bits = np.random.Philox(key=seed, counter=[0, 0, replica, iteration + 1])
        noise[:, replica] = actions.noise(np.random.Generator(bits), (steps, actions.size))
    return noise


def reset_seed(seed: int, iteration: int) -> int:
    """The seed that an iteration's episodes are reset with."""
    return int(generator(seed, iteration).integers(2**62))
