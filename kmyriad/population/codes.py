"""Agent codes: a short vector per agent, which says how its layers differ and which way of the features is its own."""

import numpy as np
from numpy.typing import NDArray

from kmyriad.config import PopulationConfig

ROUNDS, STEP = 500, 0.1
"""Of pushing codes apart on a sphere."""


def agent_codes(agents: int, size: int) -> NDArray[np.float32]:
    """(m, c), a unit vector per agent, spread evenly; the same whenever asked.

    As many numbers as agents, or more, are one number each: every agent then has a part of the layers of its own. One
    number is a sign, two are a place on the circle.
    """
    if size >= agents:
        return np.eye(agents, dtype=np.float32)
    if size == 1:
        return np.where(np.arange(agents)[:, None] % 2, -1, 1).astype(np.float32)
    if size == 2:
        # From half a step on, so that four agents are each other's mirror images in both axes.
        angles = 2 * np.pi * (np.arange(agents) + 0.5) / agents
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return _pushed_apart(agents, size)


def codes_of(population: PopulationConfig) -> NDArray[np.float32] | None:
    """(m, c), the agents' codes; None where their layers are independent, or there is only one of them."""
    if population.code_size is None or population.agents == 1:
        return None
    return agent_codes(population.agents, population.code_size)


def _pushed_apart(agents: int, size: int) -> NDArray[np.float32]:
    """Points on the sphere that push each other away with the inverse square of their distance (Thomson 1904)."""
    rng = np.random.Generator(np.random.Philox(0))
    points = rng.standard_normal((agents, size))
    for _ in range(ROUNDS):
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        apart = points[:, None] - points
        distances = np.linalg.norm(apart, axis=-1, keepdims=True) + np.eye(agents)[..., None]
        push = (apart / distances**3).sum(axis=1)
        points += STEP * push / np.linalg.norm(push, axis=1).max()
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
