"""Sets of goals to test jump-starts with: points around the start that can be reached, drawn from a seed."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.goal import is_reachable
from kmyriad.envs.terrains import Terrain
from kmyriad.errors import UsageError, nearest_name
from kmyriad.randomness import generator

AFFORDABLE = 4.5
"""Metres: the paper's radius within which PPO finds goals without pretraining."""

TRIES = 10_000
"""Points drawn before it is said that there are no goals."""


@dataclass(frozen=True)
class Annulus:
    """The ring around the start that goals are drawn in, metres."""

    inner: float
    outer: float

    def __post_init__(self) -> None:
        if not 0 <= self.inner < self.outer < math.inf:
            raise UsageError(f"an annulus needs 0 <= inner < outer, metres; got {self.inner:g} and {self.outer:g}")


def named_annulus(name: str, terrain: Terrain) -> Annulus:
    """`affordable`: within 4.5 m of the start; `far`: from there to the edge of the terrain.

    In worlds smaller than that (PointMaze) the border lies halfway to the edge.
    """
    border = min(AFFORDABLE, terrain.half_size / 2)
    sets = {"affordable": Annulus(0.0, border), "far": Annulus(border, terrain.half_size)}
    if name not in sets:
        raise UsageError(f"unknown set of goals {name!r}{nearest_name(name, sets)}")
    return sets[name]


def draw_goals(terrain: Terrain, annulus: Annulus, count: int, radius: float, seed: int = 0) -> NDArray[np.float64]:
    """(count, 2), reachable goals, even over the area of `annulus` around the start.

    `radius` is that of the goals: none is drawn that the robot would already stand in at the start.
    """
    if count < 1:
        raise UsageError(f"the number of goals must be at least 1; got {count}")
    rng = generator(seed, count)
    start = np.array(terrain.start)
    inner = min(max(annulus.inner, radius), annulus.outer)
    distance = np.sqrt(rng.uniform(inner**2, annulus.outer**2, TRIES))
    angle = rng.uniform(0, 2 * np.pi, TRIES)
    points = start + distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    goals = points[is_reachable(points, terrain, radius)][:count]
    if annulus.outer <= radius or len(goals) < count:
        raise UsageError(
            f"no {count} goals can be reached between {annulus.inner:g} and {annulus.outer:g} m from the start of"
            f" terrain {terrain.name!r}; widen the annulus"
        )
    return goals
