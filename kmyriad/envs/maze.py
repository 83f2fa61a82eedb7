"""Wall maps: grids of 0 (free) and 1 (wall), centred on the origin, row 0 at the top (largest y)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kmyriad.errors import UsageError, nearest_name

Cell = tuple[int, int]

MAPS: dict[str, tuple[tuple[str, ...], Cell]] = {
    "u": (("11111", "10001", "11101", "10001", "11111"), (3, 1)),
    "medium": (
        ("11111111", "10011001", "10010001", "11000111", "10010001", "10100101", "10001001", "11111111"),
        (6, 1),
    ),
    "large": (
        (
            "111111111111",
            "100001000001",
            "101101010101",
            "100000010001",
            "101111011101",
            "100101000001",
            "110101010111",
            "100100010001",
            "111111111111",
        ),
        (7, 1),
    ),
    "ring": (("1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"), (5, 3)),
}
"""Named maps with their start cell. `u`, `medium` and `large` have Gymnasium-Robotics' layout; `ring` is a loop whose
far side is equally far both ways round."""


@dataclass(frozen=True)
class GridMap:
    """Walls on a grid of square cells."""

    cells: NDArray[np.bool_]
    """(rows, columns), True where there is a wall."""
    cell_size: float
    start: Cell
    """(row, column) of the cell where episodes begin."""

    @property
    def extent(self) -> tuple[float, float]:
        """Half the width (x) and half the height (y), metres."""
        rows, columns = self.cells.shape
        return columns * self.cell_size / 2, rows * self.cell_size / 2

    def centre(self, cell: Cell) -> tuple[float, float]:
        """The point (x, y) in the middle of a cell (row, column)."""
        half_width, half_height = self.extent
        row, column = cell
        return (column + 0.5) * self.cell_size - half_width, half_height - (row + 0.5) * self.cell_size

    def cell_of(self, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(row, column) of points; indices may lie outside the grid."""
        half_width, half_height = self.extent
        row = np.floor((half_height - np.asarray(y, np.float64)) / self.cell_size).astype(np.intp)
        column = np.floor((np.asarray(x, np.float64) + half_width) / self.cell_size).astype(np.intp)
        return row, column

    def _look_up(self, table: NDArray[np.bool_], outside: bool, x: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
        row, column = self.cell_of(x, y)
        rows, columns = table.shape
        known = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        return np.where(known, table[row.clip(0, rows - 1), column.clip(0, columns - 1)], outside)

    def is_wall(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether points lie in a wall cell; outside the map everything counts as wall."""
        return self._look_up(self.cells, True, x, y)

    def is_reachable(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether points lie in a free cell that a path of free cells joins to the start."""
        return self._look_up(self.reachable, False, x, y)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """(rows, columns), True where a path of free cells leads from the start."""
        reached = np.zeros_like(self.cells)
        frontier = [self.start]
        while frontier:
            row, column = frontier.pop()
            if self.cells[row, column] or reached[row, column]:
                continue
            reached[row, column] = True
            frontier += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        return reached

    def wall_rectangles(self, merge: bool) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """Corners (low, high) of rectangles that cover the walls: one a cell, or as few as a greedy merge finds.

        Merged walls are cheaper to collide with and have no seams. Gymnasium-Robotics has one box per cell.
        """
        left = self.cells.copy()
        rectangles = []
        for row, column in zip(*np.nonzero(self.cells), strict=True):
            if not left[row, column]:
                continue
            columns, rows = 1, 1
            if merge:
                while column + columns < left.shape[1] and left[row, column + columns]:
                    columns += 1
                while row + rows < left.shape[0] and left[row + rows, column : column + columns].all():
                    rows += 1
            left[row : row + rows, column : column + columns] = False
            x, y = self.centre((int(row), int(column)))
            half = self.cell_size / 2
            low = (x - half, y + half - rows * self.cell_size)
            rectangles.append((low, (x - half + columns * self.cell_size, y + half)))
        return rectangles


def parse_map(rows: Any, cell_size: float, start: Cell | None = None) -> GridMap:
    """A map from rows of 0/1 (strings or lists); the default start is the free cell nearest the middle."""
    try:
        numbers = [[int(cell) for cell in row] for row in rows]
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"map must be rows of 0 (free) and 1 (wall), such as ['111', '101', '111']; got {rows!r}"
        ) from None
    widths = {len(row) for row in numbers}
    if len(widths) != 1 or widths == {0}:
        raise UsageError(
            f"map must have at least one row and all rows of one length; got lengths {[len(row) for row in numbers]}"
        )
    grid = np.array(numbers)
    if not np.isin(grid, (0, 1)).all():
        raise UsageError(f"map may hold only 0 (free) and 1 (wall); got {sorted(set(grid.ravel().tolist()) - {0, 1})}")
    cells = grid == 1
    border = np.concatenate([cells[0], cells[-1], cells[:, 0], cells[:, -1]])
    if not border.all():
        raise UsageError("map must be closed: every cell of the first and last row and column must be 1 (wall)")
    if cells.all():
        raise UsageError("map has no free cell: put a 0 where the robot may go")
    if start is None:
        middle = (np.array(cells.shape) - 1) / 2
        free = np.argwhere(~cells)
        row, column = free[np.abs(free - middle).sum(axis=1).argmin()]
        start = (int(row), int(column))
    row, column = start
    if not (0 <= row < cells.shape[0] and 0 <= column < cells.shape[1]) or cells[row, column]:
        raise UsageError(
            f"start cell must be a free cell (row, column) of the {len(cells)} x {cells.shape[1]} map; got {start}"
        )
    return GridMap(cells, cell_size, (row, column))


def named_map(name: str, cell_size: float, start: Cell | None = None) -> GridMap:
    """One of `MAPS`."""
    if name not in MAPS:
        raise UsageError(f"unknown map {name!r}{nearest_name(name, MAPS)}; or give rows of 0/1 of your own")
    rows, default_start = MAPS[name]
    return parse_map(rows, cell_size, default_start if start is None else start)


def map_of(map: object, cell_size: float, start: Cell | None = None) -> GridMap:
    """A map by its name, or from rows of 0/1."""
    return named_map(map, cell_size, start) if isinstance(map, str) else parse_map(map, cell_size, start)


def generate_maze(rooms: int, cell_size: float, seed: int) -> GridMap:
    """A maze of `rooms` x `rooms` rooms (odd, so that one is in the middle) with corridors one cell wide and loops.

    Depth-first carving joins every room to every other; then one dead end in two is opened, because a maze with a
    single path between any two places leaves nothing to choose. For the same reason the room in the middle, where
    episodes start, is open on all four sides: else the first fork may lie farther away than a robot gets.
    """
    rng = np.random.default_rng(seed)
    side = 2 * rooms + 1
    cells = np.ones((side, side), bool)
    middle = (rooms, rooms)  # odd, hence a room
    cells[middle] = False
    path = [middle]
    while path:
        row, column = path[-1]
        ways = [(r, c) for r, c in _two_away(row, column, side) if cells[r, c]]
        if not ways:
            path.pop()
            continue
        r, c = ways[rng.integers(len(ways))]
        cells[(row + r) // 2, (column + c) // 2] = cells[r, c] = False
        path.append((r, c))
    for row in range(1, side, 2):
        for column in range(1, side, 2):
            doors = [((row + r) // 2, (column + c) // 2) for r, c in _two_away(row, column, side)]
            closed = [door for door in doors if cells[door]]
            if len(doors) - len(closed) == 1 and rng.random() < 0.5:
                cells[closed[rng.integers(len(closed))]] = False
    for row, column in _two_away(*middle, side):
        cells[(rooms + row) // 2, (rooms + column) // 2] = False
    return GridMap(cells, cell_size, middle)


def _two_away(row: int, column: int, side: int) -> list[Cell]:
    around = [(row + 2, column), (row - 2, column), (row, column + 2), (row, column - 2)]
    return [(r, c) for r, c in around if 0 < r < side and 0 < c < side]
