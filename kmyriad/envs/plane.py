"""What maps show of an environment: two numbers of its state, the ground under them, and how large things are there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.arrays import Array, namespace_of
from kmyriad.envs.terrain import Terrain
from kmyriad.envs.world import World


@dataclass(frozen=True)
class Plane:
    """Two coordinates, or one (then the second is 0 everywhere)."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    cell: tuple[float, float]
    """Sides of a coverage cell, as large as goals are by default."""
    start: tuple[float, float]
    """Where episodes begin."""
    terrain: Terrain | None = None
    """What lies on the ground, where that is known."""
    seconds_per_step: float | None = None

    @property
    def titles(self) -> tuple[str, ...]:
        """The names, in words where they are bare columns of the observation."""
        return tuple(f"observation {name}" if name.isdecimal() else name for name in self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """`x (m)` and the like, for axes."""
        return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(self.titles, self.units, strict=True))

    @property
    def cell_words(self) -> str:
        """`1 m`, or the two sides of a cell with their names."""
        x, y = self.cell
        if x == y and self.units == ("m", "m"):
            return f"{x:g} m"
        sides = zip(self.titles, self.units, self.cell, strict=False)
        return " by ".join(f"{side:.3g}{' ' + unit if unit else ''} in {name}" for name, unit, side in sides)


def plane_of_world(world: World) -> Plane:
    """The ground, seen from above, in metres."""
    radius = world.goal_radius
    seconds = world.decimation * float(world.model.opt.timestep)
    return Plane(("x", "y"), ("m", "m"), (radius, radius), world.terrain.start, world.terrain, seconds)


@dataclass(frozen=True)
class Feature:
    """One number that is explored."""

    name: str
    unit: str
    """Empty where nobody says."""
    scale: float
    """Length that counts as one in it; 0 for its deviation over the visited states."""
    cell: float
    """Side of a coverage cell, and how near a goal is near enough where nothing else is asked for."""


def features_of_world(world: World, names: Sequence[str]) -> tuple[tuple[Feature, ...], tuple[int, ...] | None]:
    """(the numbers that a world's features by name are, their columns in the observation if all are there)."""
    known = [world.features[name] for name in names]
    numbers = tuple(
        Feature(one.name if one.size == 1 else f"{one.name}[{index}]", one.unit, 1.0, world.goal_radius)
        for one in known
        for index in range(one.size)
    )
    if any(one.source != "observation" for one in known):
        return numbers, None
    return numbers, tuple(column for one in known for column in range(one.slice.start, one.slice.stop))


def plane_of_features(
    features: Sequence[Feature], start: NDArray[np.floating], seconds_per_step: float | None = None
) -> Plane:
    """The first two features, or the only one; `start` (f,) is where episodes begin."""
    shown = features[:2]
    x, y = [feature.cell for feature in shown] + [1.0] * (2 - len(shown))
    begin = [float(value) for value in start[:2]] + [0.0] * (2 - len(shown))
    names, units = tuple(feature.name for feature in shown), tuple(feature.unit for feature in shown)
    return Plane(names, units, (x, y), (begin[0], begin[1]), None, seconds_per_step)


def xy_of(features: Array) -> Array:
    """(n, 2), the first two of features (n, f), or the only one and 0."""
    xp = namespace_of(features)
    return features[:, :2] if features.shape[1] > 1 else xp.column_stack([features, xp.zeros_like(features)])
