"""Where agents were, as counts of states in cells: small enough to be kept, and as good as the states for a map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.world import World
from kmyriad.figures.ground import Extent

FINEST = 0.125
"""Metres of the smallest cell in open worlds. Larger ones are twice as large, or four times: grids can be joined."""
PARTS = 32
"""Smallest cells along a wall of a maze, so that none lies across the face of one."""
WIDEST = 48
"""Cells along each side, at most."""
STRAYED = 0.005
"""Part of the states at each end that may be left out: a few that strayed would make all cells large."""


@dataclass(frozen=True)
class Grid:
    side: float
    """Of a cell, metres."""
    corner: tuple[int, int]
    """(x, y) of the lowest cell, in cells from the origin."""
    counts: NDArray[np.int64]
    """(rows, columns), states in each cell, the lowest row first."""
    states: int
    """In all, also outside of the grid."""

    @property
    def extent(self) -> Extent:
        x, y = self.corner
        rows, columns = self.counts.shape
        return x * self.side, (x + columns) * self.side, y * self.side, (y + rows) * self.side

    @property
    def density(self) -> NDArray[np.float64]:
        """(rows, columns), what part of all states lies in each cell, per square metre."""
        return np.asarray(self.counts / (max(self.states, 1) * self.side**2))

    def as_json(self) -> dict[str, Any]:
        return {"side": self.side, "corner": [*self.corner], "states": self.states, "counts": self.counts.tolist()}


def grid_of(points: NDArray[np.floating], world: World) -> Grid:
    """The counts of `points` (n, 2), metres."""
    walls = world.terrain.walls
    side = FINEST if walls is None else walls.cell_size / PARTS
    if not len(points):
        return Grid(side, (0, 0), np.zeros((1, 1), np.int64), 0)
    low, high = np.quantile(points, (STRAYED, 1 - STRAYED), axis=0)
    while (_cells(high, side) - _cells(low, side)).max() >= WIDEST:
        side *= 2
    (x, y), (columns, rows) = _cells(low, side), _cells(high, side) - _cells(low, side) + 1
    cells = _cells(points, side) - (x, y)
    inside = ((cells >= 0) & (cells < (columns, rows))).all(axis=1)
    counts = np.zeros((rows, columns), np.int64)
    np.add.at(counts, (cells[inside, 1], cells[inside, 0]), 1)
    return Grid(side, (int(x), int(y)), counts, len(points))


def grid_from_json(told: Mapping[str, Any]) -> Grid:
    x, y = told["corner"]
    return Grid(told["side"], (x, y), np.array(told["counts"], np.int64), told["states"])


def on_one_scale(grids: Sequence[Grid]) -> list[Grid]:
    """The same counts in cells of the largest side among them."""
    side = max(grid.side for grid in grids)
    return [_coarser(grid, round(side / grid.side)) for grid in grids]


def _coarser(grid: Grid, times: int) -> Grid:
    (x, y), (rows, columns) = grid.corner, grid.counts.shape
    row, column = (np.arange(y, y + rows) // times, np.arange(x, x + columns) // times)
    counts = np.zeros((row[-1] - row[0] + 1, column[-1] - column[0] + 1), np.int64)
    np.add.at(counts, np.ix_(row - row[0], column - column[0]), grid.counts)
    return Grid(grid.side * times, (int(column[0]), int(row[0])), counts, grid.states)


def _cells(points: NDArray[np.floating], side: float) -> NDArray[np.int64]:
    """In which cell each of `points` (..., 2) lies."""
    return np.floor(np.asarray(points, np.float64) / side).astype(np.int64)
