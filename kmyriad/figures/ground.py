"""Maps: the ground of a world seen from above, or a plane of two features, and axes to draw on it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import Locator, NullLocator
from numpy.typing import NDArray

from kmyriad.envs.plane import Plane, plane_of_world
from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.figures.look import SMALL, TEXT, new_figure, tidy

Ground = World | Plane
"""What a map lies on: a world, or what `kmyriad.plane_of(run)` tells of any environment."""

Extent = tuple[float, float, float, float]
"""(x from, x to, y from, y to), in the units of the plane: metres in a world."""

WALL = "#A3AEBF"

PIXELS = 480
"""Points along each side that heights are looked up at."""

FLAT, RELIEF, EDGE = 0.93, 0.12, 0.15
"""Grey (1 is white) of flat ground, what a metre of height adds to it, what the edge of a step takes away."""

MARGIN = 0.05
"""Part of its side by which a map reaches beyond what was visited."""

LEFT, RIGHT, TICKS = 0.47, 0.08, 0.33
"""Inches left of maps, right of them, and for tick labels and axis name under them."""

BAR = 0.48
"""Inches that a colour bar with its numbers and name takes."""


def to_plane(ground: Ground) -> Plane:
    """The plane that a map of `ground` shows."""
    return ground if isinstance(ground, Plane) else plane_of_world(ground)


def over_time(
    xy: NDArray[np.floating], counts: NDArray[np.bool_], ground: Ground
) -> tuple[NDArray[np.floating], Ground]:
    """(positions, what they lie on): as they are, or, where a plane has one feature only, that and the step.

    `xy` (m, p, T, 2), of which those count that `counts` (m, p, T) says. The map is then as tall as it is wide.
    """
    plane = to_plane(ground)
    if len(plane.names) > 1:
        return xy, ground
    steps = np.broadcast_to(np.arange(1.0, 1 + xy.shape[2]), xy.shape[:3])
    wide = float(np.ptp(np.append(xy[..., 0][counts], plane.start[0]))) / plane.cell[0]
    tall = float(steps[counts].max()) / max(wide, 1.0)
    names, units = (*plane.names, "step"), (*plane.units, "")
    by_step = replace(plane, names=names, units=units, cell=(plane.cell[0], tall), start=(plane.start[0], 0.0))
    return np.stack([xy[..., 0], steps], axis=-1), by_step


def draw_terrain(axes: Axes, ground: Ground, extent: Extent) -> None:
    """Draw walls (slate) and heights (greys: low is dark, edges of steps are lines) and set the limits to `extent`."""
    plane = to_plane(ground)
    _draw(axes, plane, extent, _shade(plane, extent))


def _shade(plane: Plane, extent: Extent) -> NDArray[np.float64]:
    """(PIXELS, PIXELS, 3), the ground in greys, the first row the lowest."""
    x, y = _middles(extent[0], extent[1]), _middles(extent[2], extent[3])[:, None]
    if plane.terrain is None:
        return np.full((1, 1, 3), FLAT)
    heights = np.where(plane.terrain.is_wall(x, y), 0.0, plane.terrain.height(x, y))
    rise = np.hypot(*np.gradient(heights))  # metres per pixel
    grey = FLAT + RELIEF * heights.clip(-1, 0.5) - EDGE * (rise / 0.05).clip(0, 1)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _draw(axes: Axes, plane: Plane, extent: Extent, shade: NDArray[np.float64]) -> None:
    axes.imshow(shade, extent=extent, origin="lower", interpolation="bilinear", zorder=0)
    walls = [
        Rectangle(box.low, box.high[0] - box.low[0], box.high[1] - box.low[1])
        for box in (plane.terrain.boxes if plane.terrain is not None else ())
        if box.is_wall
    ]
    axes.add_collection(PatchCollection(walls, facecolor=WALL, edgecolor=WALL, linewidth=0.2, zorder=1))
    axes.set(xlim=extent[:2], ylim=extent[2:], aspect=plane.cell[0] / plane.cell[1])


def fit_extent(ground: Ground, points: NDArray[np.floating]) -> Extent:
    """A whole maze, or else as many cells to both sides of the start and `points` (n, 2): a square in a world."""
    plane = to_plane(ground)
    if plane.terrain is not None and plane.terrain.walls is not None:
        half_width, half_height = plane.terrain.walls.extent
        return -half_width, half_width, -half_height, half_height
    everything = np.concatenate([np.array([plane.start]), points.astype(np.float64)])
    low, high, cell = everything.min(axis=0), everything.max(axis=0), np.array(plane.cell)
    middle, half = (low + high) / 2, max(((high - low) / cell).max() / 2, 0.5) * (1 + 2 * MARGIN) * cell
    return (
        float(middle[0] - half[0]),
        float(middle[0] + half[0]),
        float(middle[1] - half[1]),
        float(middle[1] + half[1]),
    )


def check_extent(extent: Sequence[float]) -> Extent:
    """`extent` as it is, if it is one."""
    if len(extent) != 4 or not np.isfinite(extent).all() or extent[0] >= extent[1] or extent[2] >= extent[3]:
        raise UsageError(f"extent must be (x from, x to, y from, y to), rising and finite; got {extent}")
    return extent[0], extent[1], extent[2], extent[3]


def map_panels(
    count: int, columns: int, ground: Ground, extent: Extent, width: float, above: float, below: float, gap: float
) -> tuple[Figure, list[Axes]]:
    """A figure `width` inches wide with `count` maps of the same extent, each with terrain and axes.

    `above` and `below` are inches kept free over every panel and under the lowest tick labels.
    """
    plane = to_plane(ground)
    rows = -(-count // columns)
    panel = (width - LEFT - RIGHT - (columns - 1) * gap) / columns
    tall = panel * (extent[3] - extent[2]) / (extent[1] - extent[0]) * plane.cell[0] / plane.cell[1]
    bottom = below + TICKS
    height = bottom + rows * (tall + above) + (rows - 1) * gap
    figure = new_figure(width, height)
    shade = _shade(plane, extent)
    all_axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        x, y = LEFT + column * (panel + gap), height - (row + 1) * (tall + above) - row * gap
        axes = figure.add_axes((x / width, y / height, panel / width, tall / height))
        _draw(axes, plane, extent, shade)
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
    upward = bottom + (height - bottom) / 2 - above / 2
    x_label, y_label = (*plane.labels, "")[:2]
    figure.text(middle_of(width), (below + 0.02) / height, x_label, ha="center", va="bottom", size=TEXT)
    figure.text(0.02 / width, upward / height, y_label, ha="left", va="center", rotation=90, size=TEXT)
    return figure, all_axes


def middle_of(width: float) -> float:
    """The middle of the maps, as part of the figure's width."""
    return (LEFT + width - RIGHT) / 2 / width


def metre_ticks(low: float, high: float, inches: float, inset: float) -> list[float]:
    """Round metres between `low` and `high`, `inset` inches off the ends, far enough apart for their labels."""
    metres = (high - low) / inches  # per inch
    apart = float(np.clip(inches / 5, 0.2, 0.45)) * metres
    decade = 10.0 ** np.floor(np.log10(apart))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= apart)
    ticks = _multiples(step, low + inset * metres, high - inset * metres)
    if len(ticks) > 1:
        return ticks
    ticks = _multiples(step / 2, low, high)
    return ticks if len(ticks) < 2 else [ticks[0], ticks[-1]]


def _multiples(step: float, low: float, high: float) -> list[float]:
    return [float(index * step) for index in np.arange(np.ceil(low / step), np.floor(high / step) + 1)]


def mark_start(axes: Axes, ground: Ground) -> PathCollection:
    """A white cross where episodes begin."""
    x, y = to_plane(ground).start
    return axes.scatter(x, y, s=26, c="white", marker="X", edgecolors="black", linewidths=0.8, zorder=5, label="start")


def colour_bar(figure: Figure, image: ScalarMappable, name: str, ticks: Sequence[float] | Locator) -> None:
    """What the colours of `image` mean, in the lowest `BAR` inches of a figure from `map_panels`."""
    width, height = figure.get_size_inches()
    length = min(2.2, 0.6 * width)
    place = (middle_of(width) - length / width / 2, 0.36 / height, length / width, 0.07 / height)
    axes = figure.add_axes(place, label="colour bar")
    figure.colorbar(image, cax=axes, orientation="horizontal", ticks=ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(name, labelpad=1)
    tidy(axes, frame=True)


def _middles(low: float, high: float) -> NDArray[np.float64]:
    edges = np.linspace(low, high, PIXELS + 1)
    return (edges[1:] + edges[:-1]) / 2
