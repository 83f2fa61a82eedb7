"""The ground of a map as plain JSON: its extent and axes, walls cell by cell, heights as a small shaded picture.

Pages have one scale for both axes. Where a cell is not a square in the features' own units, pages count in cells, and
`per` has how much of the feature one of them is.
"""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.plane import Plane
from kmyriad.envs.terrain import Terrain
from kmyriad.figures.ground import Extent, fit_extent

PIXELS = 300
"""Along each side of the picture of heights."""

RELIEF, LIGHT = 70.0, 350.0
"""Shades (of 127) that a metre of height adds, and a rise of a metre per metre towards the light in the north-west."""

FREE, WALL, CUT_OFF = "0", "1", "2"
"""Letters of a wall map: cells that can be reached, walls, and free cells that no way leads to."""


def page_scale(plane: Plane) -> tuple[float, float]:
    """How much of each axis's own unit is one on the page."""
    return (1.0, 1.0) if plane.cell[0] == plane.cell[1] else plane.cell


def page_radius(plane: Plane, radius: float | None = None) -> float:
    """Of a goal, on the page: of the one asked for, or the plane's own."""
    per, cell = page_scale(plane)[0], plane.cell[0]
    return (radius or cell) / per


def pack_ground(plane: Plane, points: NDArray[np.floating]) -> dict[str, Any]:
    """The ground around `points` (n, 2), which may be none.

    `extent` is (x from, x to, y from, y to) and `start` (x, y), as the page counts; `walls` and `relief` are null on
    flat ground. `axes` has a name, a unit and `per` for each coordinate there is.
    """
    terrain, extent = plane.terrain, fit_extent(plane, points)
    per_x, per_y = page_scale(plane)
    return {
        "extent": [extent[0] / per_x, extent[1] / per_x, extent[2] / per_y, extent[3] / per_y],
        "start": [plane.start[0] / per_x, plane.start[1] / per_y],
        "axes": [
            {"name": name, "unit": unit, "per": per}
            for name, unit, per in zip(plane.titles, plane.units, page_scale(plane), strict=False)
        ],
        "walls": None if terrain is None else _walls(terrain),
        "relief": None if terrain is None else _relief(terrain, extent),
    }


def _walls(terrain: Terrain) -> dict[str, Any] | None:
    """Rows of letters, the first at the top, with the left and top edge and the side of a cell in metres."""
    if terrain.walls is None:
        return None
    half_width, half_height = terrain.walls.extent
    letters = np.where(terrain.walls.cells, WALL, np.where(terrain.walls.reachable, FREE, CUT_OFF))
    rows = ["".join(row) for row in letters.tolist()]
    return {"rows": rows, "left": -half_width, "top": half_height, "cell": terrain.walls.cell_size}


def _relief(terrain: Terrain, extent: Extent) -> dict[str, Any] | None:
    """Base64 of int8 (PIXELS, PIXELS), the first row at the top: below 0 in shade, above 0 in light."""
    if all(box.is_wall for box in terrain.boxes):
        return None
    x, y = _middles(extent[0], extent[1]), _middles(extent[3], extent[2])[:, None]
    heights = terrain.height(x, y)
    south, east = np.gradient(heights, (extent[3] - extent[2]) / PIXELS, (extent[1] - extent[0]) / PIXELS)
    shade = RELIEF * heights.clip(-1, 1) + LIGHT * (south + east).clip(-0.1, 0.1)
    grid = np.rint(shade.clip(-127, 127)).astype(np.int8)
    return {"pixels": PIXELS, "shade": base64.b64encode(grid.tobytes()).decode()}


def _middles(first: float, last: float) -> NDArray[np.float64]:
    edges = np.linspace(first, last, PIXELS + 1)
    return (edges[1:] + edges[:-1]) / 2
