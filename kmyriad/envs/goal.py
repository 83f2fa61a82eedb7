"""The sparse goal task: where the goal is, whether it can be reached, whether a robot is there; sets of goals."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kmyriad.envs.arrays import Array, namespace_of
from kmyriad.envs.terrain import Terrain
from kmyriad.errors import UsageError

AFFORDABLE = 4.5
"""Metres: the paper's radius within which PPO finds goals without pretraining."""

TRIES = 10_000
"""Points drawn before it is said that there are no goals."""


def parse_goals(goal: ArrayLike | None, num_envs: int, terrain: Terrain, radius: float) -> NDArray[np.float64] | None:
    """(num_envs, 2 or 3), a goal per replica, from one goal (x, y), (x, y, z) or an array of one per replica."""
    if goal is None:
        return None
    try:
        goals = np.asarray(goal, np.float64)
    except (TypeError, ValueError):
        goals = np.empty(0)
    if goals.shape in ((2,), (3,)):
        goals = np.broadcast_to(goals, (num_envs, goals.size))
    if goals.ndim != 2 or goals.shape[0] != num_envs or goals.shape[1] not in (2, 3):
        raise UsageError(
            f"goal must be (x, y), (x, y, z) or an array of one per replica (num_envs = {num_envs}); got {goal!r}"
        )
    for index in np.flatnonzero(~is_reachable(goals, terrain, radius))[:1]:
        point = ", ".join(f"{number:g}" for number in goals[index])
        raise UsageError(
            f"goal ({point}) cannot be reached in terrain {terrain.name!r}: {_why_not(goals[index], terrain)}"
        )
    return goals.copy()


def is_reachable(goals: NDArray[np.float64], terrain: Terrain, radius: float) -> NDArray[np.bool_]:
    """(n,), whether goals (n, 2 or 3) are finite, in a free cell joined to the start, and not buried in the ground."""
    reachable = np.atleast_1d(np.isfinite(goals).all(axis=1))
    x, y = np.where(reachable[:, None], goals[:, :2], 0.0).T
    if terrain.walls is not None:
        reachable &= terrain.walls.is_reachable(x, y)
    if goals.shape[1] == 3:
        reachable &= goals[:, 2] + radius > terrain.height(x, y)
    return reachable


def _why_not(goal: NDArray[np.float64], terrain: Terrain) -> str:
    if not np.isfinite(goal).all():
        return "its coordinates must be finite numbers"
    x, y = goal[:2]
    if terrain.walls is not None and not terrain.walls.is_reachable(x, y):
        half_width, half_height = terrain.walls.extent
        if abs(x) > half_width or abs(y) > half_height:
            return f"it lies outside the world (|x| <= {half_width:g}, |y| <= {half_height:g}); choose a point inside"
        if terrain.walls.is_wall(x, y):
            return "it lies inside a wall; choose a free cell of the wall map"
        return "no free way leads there from the start; choose a cell joined to the start"
    return f"it lies below the ground, which is at z = {terrain.height(x, y):g} there; raise z or give only (x, y)"


def distance_to_goals(positions: Array, goals: Array) -> Array:
    """(n,), metres from positions (n, 3) to goals: in the plane for goals (x, y), in space for (x, y, z)."""
    return namespace_of(goals).linalg.norm(positions[:, : goals.shape[1]] - goals, axis=1)


@dataclass(frozen=True)
class Annulus:
    """The ring around the start that goals are drawn in, metres."""

    inner: float
    outer: float

    def __post_init__(self) -> None:
        if not 0 <= self.inner < self.outer < math.inf:
            raise UsageError(f"an annulus needs 0 <= inner < outer, metres; got {self.inner:g} and {self.outer:g}")


def draw_goals(terrain: Terrain, annulus: Annulus, count: int, radius: float, seed: int = 0) -> NDArray[np.float64]:
    """(count, 2), reachable goals, even over the area of `annulus` around the start.

    `radius` is that of the goals: none is drawn that the robot would already stand in at the start.
    """
    if count < 1:
        raise UsageError(f"the number of goals must be at least 1; got {count}")
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, count])))
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
