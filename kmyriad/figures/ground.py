"""Maps seen from above: the ground of a world, and axes in metres to draw on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.figures.look import SMALL, TEXT, new_figure, tidy

Extent = tuple[float, float, float, float]
"""(x from, x to, y from, y to), metres."""

WALL = "#5C6B85"
PIXELS = 480
"""Points along each side that heights are looked up at."""

FULL_RELIEF = 0.6
"""Height or depth, in metres, that has the lightest or darkest grey."""

MARGIN = 0.05
"""Part of its side by which a map reaches beyond what was visited."""

START_STYLE: dict[str, Any] = {"marker": "X", "s": 26.0, "c": "white", "edgecolors": "black", "linewidths": 0.8}


def draw_terrain(axes: Axes, world: World, extent: Extent) -> None:
    """Draw walls (slate) and heights (greys: low is dark, step edges are darker) within `extent`; set the limits."""
    terrain = world.terrain
    x = _middles(extent[0], extent[1])
    y = _middles(extent[2], extent[3])
    walls = [box for box in terrain.boxes if box.is_wall]
    heights = np.where(terrain.is_wall(x, y[:, None]), 0.0, terrain.height(x, y[:, None]))
    grey = 0.9 + 0.1 * (heights / FULL_RELIEF).clip(-1, 1)
    slopes = np.hypot(*np.gradient(heights))  # per pixel
    grey -= 0.12 * (slopes / 0.05).clip(0, 1)
    axes.imshow(
        np.repeat(grey[:, :, None], 3, axis=2), extent=extent, origin="lower", interpolation="bilinear", zorder=0
    )
    patches = [Rectangle(box.low, box.high[0] - box.low[0], box.high[1] - box.low[1]) for box in walls]
    axes.add_collection(PatchCollection(patches, facecolor=WALL, edgecolor=WALL, linewidth=0.2, zorder=1))
    axes.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")


def fit_extent(world: World, points: NDArray[np.floating]) -> Extent:
    """A whole maze, or else the square around the start and `points` (n, 2)."""
    terrain = world.terrain
    if terrain.walls is not None:
        half_width, half_height = terrain.walls.extent
        return -half_width, half_width, -half_height, half_height
    everything = np.concatenate([np.array([terrain.start]), points.astype(np.float64)])
    low, high = everything.min(axis=0), everything.max(axis=0)
    middle, half = (low + high) / 2, max((high - low).max() / 2, 0.5) * (1 + 2 * MARGIN)
    return (
        float(middle[0] - half),
        float(middle[0] + half),
        float(middle[1] - half),
        float(middle[1] + half),
    )


def check_extent(extent: Sequence[float]) -> Extent:
    """`extent` as it is, if it is one."""
    if len(extent) != 4 or not np.isfinite(extent).all() or extent[0] >= extent[1] or extent[2] >= extent[3]:
        raise UsageError(f"extent must be (x from, x to, y from, y to), rising and finite, in metres; got {extent}")
    return extent[0], extent[1], extent[2], extent[3]


def map_panels(
    count: int, columns: int, world: World, extent: Extent, width: float, above: float, below: float, gap: float
) -> tuple[Figure, list[Axes]]:
    """A figure `width` inches wide with `count` maps of the same extent, each with terrain and axes in metres.

    `above` and `below` are inches kept free over every panel and under the lowest tick labels.
    """
    left, right, ticks = 0.47, 0.08, 0.33
    rows = -(-count // columns)
    panel = (width - left - right - (columns - 1) * gap) / columns
    tall = panel * (extent[3] - extent[2]) / (extent[1] - extent[0])
    bottom = below + ticks
    height = bottom + rows * (tall + above) + (rows - 1) * gap
    figure = new_figure(width, height)
    all_axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        x, y = left + column * (panel + gap), height - (row + 1) * (tall + above) - row * gap
        axes = figure.add_axes((x / width, y / height, panel / width, tall / height))
        draw_terrain(axes, world, extent)
        tidy(axes, frame=True)
        is_small = panel < 1
        is_lowest, is_leftmost = index + columns >= count, column == 0
        if is_small:  # one corner says it for all
            is_lowest = is_leftmost = is_leftmost and row == rows - 1
        inset = 0 if is_small else 0.12
        axes.set_xticks(metre_ticks(extent[0], extent[1], panel, inset))
        axes.set_yticks(metre_ticks(extent[2], extent[3], tall, inset))
        axes.tick_params(labelbottom=is_lowest, labelleft=is_leftmost, labelsize=SMALL if is_small else TEXT)
        all_axes.append(axes)
    across = left + (width - left - right) / 2
    upward = bottom + (height - bottom) / 2 - above / 2
    figure.text(across / width, (below + 0.02) / height, "x (m)", ha="center", va="bottom", size=TEXT)
    figure.text(0.02 / width, upward / height, "y (m)", ha="left", va="center", rotation=90, size=TEXT)
    return figure, all_axes


def metre_ticks(low: float, high: float, inches: float, inset: float) -> list[float]:
    """Round multiples between `low` and `high`, `inset` inches off the ends, far enough apart for their labels."""
    metres_per_inch = (high - low) / inches
    apart = max(0.25, min(0.45, inches / 5)) * metres_per_inch
    decade = 10.0 ** np.floor(np.log10(apart))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= apart * (1 - 1e-9))
    first = np.ceil((low + inset * metres_per_inch) / step - 1e-9)
    last = np.floor((high - inset * metres_per_inch) / step + 1e-9)
    return [float(index * step) for index in np.arange(first, last + 1)]


def mark_start(axes: Axes, world: World) -> None:
    """A white cross where episodes begin."""
    axes.scatter(*world.terrain.start, **START_STYLE, zorder=5, label="start")


def _middles(low: float, high: float) -> NDArray[np.float64]:
    edges = np.linspace(low, high, PIXELS + 1)
    return (edges[1:] + edges[:-1]) / 2
