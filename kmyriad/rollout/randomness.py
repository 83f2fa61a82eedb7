"""Random numbers as a function of (seed, iteration, replica), never of what was drawn before.

So a shard of the replicas sees the same noise on any number of threads or processes, and a run resumes exactly without
saving a generator.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.population.distributions import ActionSpec

METRICS, SHUFFLING, SELECTION = 1, 2, 3
"""Purposes of an iteration's generators, apart from resets."""


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """A generator for one purpose, such as (iteration,) or (iteration, replica)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *purpose])))


def action_noise(seed: int, iteration: int, replicas: NDArray[np.int64], steps: int, actions: ActionSpec) -> Tensor:
    """(steps, n, a), for each of the `replicas` (n,) by number from a stream of its own.

    Drawn on the CPU, wherever the policies are: a run's noise is the same on every device.
    """
    noise = np.empty((steps, len(replicas), actions.size), np.float32)
    for index, replica in enumerate(replicas.tolist()):
        # Counter-based: the key is the run's, the place in the stream is (iteration, replica).
        bits = np.random.Philox(key=seed, counter=[0, 0, replica, iteration + 1])
        noise[:, index] = actions.noise(np.random.Generator(bits), (steps, actions.size))
    return torch.from_numpy(noise)


def reset_seed(seed: int, iteration: int) -> int:
    """The seed that an iteration's episodes are reset with."""
    return int(generator(seed, iteration).integers(2**62))
