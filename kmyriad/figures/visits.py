"""Where the agents go: a heat map each, and all of them in one map."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.figures.colours import agent_colour
from kmyriad.figures.ground import (
    BAR,
    Extent,
    Ground,
    check_extent,
    colour_bar,
    fit_extent,
    map_panels,
    mark_start,
    middle_of,
    over_time,
    to_plane,
)
from kmyriad.figures.look import COLUMN, FULL, INK, SMALL, TEXT

CELLS = 40
"""Cells of a heat map along its width, about: walls get whole cells."""

PANEL, SMALL_PANEL = 1.3, 0.65
"""Least widths of a heat map with its margins, inches; small ones where large ones would take more than two rows."""

DECADES = 3
"""The colours of a heat map span at most this many powers of ten."""

POINTS = 30_000
"""States drawn in a map of all agents, at most: more would hide each other."""

LEGEND_ROW = 10
"""Agents in a row of the legend."""


def agent_heatmaps(
    xy: NDArray[np.floating] | None,
    world: Ground,
    valid: NDArray[np.bool_] | None = None,
    extent: Extent | None = None,
    width: float | None = None,
) -> Figure:
    """One map per agent with how often it was where, as a density: states of the agent per area, as a share of all its.

    `xy` (m, p, T, 2) in the units of the map, metres in a world; `valid` (m, p, T) tells which count (None: all). All
    maps share extent and colours. A single feature is drawn over the steps of an episode.
    """
    places, world = _places(xy, valid, world)
    extent = fit_extent(world, np.concatenate(places)) if extent is None else check_extent(extent)
    count = len(places)
    width = width or (COLUMN if count <= 2 else FULL)
    in_two_rows = 2 * int(width / PANEL)
    columns = max(1, min(count, int(width / (PANEL if count <= in_two_rows else SMALL_PANEL))))
    is_small = (width - 0.5) / columns < 1
    gap = 0.05 if is_small else 0.1
    figure, panels = map_panels(count, columns, world, extent, width, above=0.17, below=BAR, gap=gap)

    sides = _cell_sides(world, extent)
    image = draw_densities(
        [(axes, _density(one, extent, sides), extent) for axes, one in zip(panels, places, strict=True)]
    )
    if image is None:
        raise UsageError(f"no agent was ever within the extent {extent}; choose another")
    for axes in panels:
        axes.set(xlim=extent[:2], ylim=extent[2:])
    for agent, axes in enumerate(panels):
        _name(axes, agent, count, is_small)
    area = "m²" if to_plane(world).units == ("m", "m") else "unit of area"
    colour_bar(figure, image, f"share of the agent's states per {area}", LogLocator())
    return figure


def draw_densities(maps: Sequence[tuple[Axes, NDArray[np.float64], Extent]]) -> AxesImage | None:
    """Draw each density (rows, columns) where it lies, in colours that all share; returns one image, None of none."""
    seen = [density[density > 0] for _, density, _ in maps]
    if not any(map(len, seen)):
        return None
    highest = max(float(values.max(initial=0)) for values in seen)
    lowest = min(float(values.min(initial=highest)) for values in seen)
    palest = max(min(10 ** math.floor(math.log10(lowest)), highest / 10), highest / 10**DECADES)
    norm = LogNorm(palest, highest, clip=True)
    for axes, density, extent in maps:
        image = axes.imshow(
            np.ma.masked_equal(density, 0),
            extent=extent,
            origin="lower",
            interpolation="nearest",
            cmap=colormaps["viridis_r"],
            norm=norm,
            zorder=2,
            aspect=axes.get_aspect(),
        )
    return image


def visitation_map(
    xy: NDArray[np.floating] | None,
    world: Ground,
    valid: NDArray[np.bool_] | None = None,
    extent: Extent | None = None,
    width: float = COLUMN,
) -> Figure:
    """All agents in one map, states as points in the agent's colour: a sample in random order. A cross is the start.

    `xy` (m, p, T, 2) in metres, `valid` (m, p, T) tells which count (None: all). A single feature is drawn over time.
    """
    places, world = _places(xy, valid, world)
    points, count = np.concatenate(places), len(places)
    extent = fit_extent(world, points) if extent is None else check_extent(extent)
    rows = -(-count // LEGEND_ROW)
    size = SMALL if rows > 1 else TEXT
    below = rows * 1.5 * size / 72 + 0.28
    figure, (axes,) = map_panels(1, 1, world, extent, width, above=0.06, below=below, gap=0)

    agents = np.repeat(np.arange(count), [len(place) for place in places])
    drawn = np.random.default_rng(0).permutation(len(points))[:POINTS]
    colours = to_rgba_array([agent_colour(agent, count) for agent in range(count)])
    x, y = points[drawn].T
    area = 1.2 * width / COLUMN
    axes.scatter(x, y, s=area, c=colours[agents[drawn]], linewidths=0, alpha=0.7, zorder=2, rasterized=True)
    mark_start(axes, world)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=3.5, color=agent_colour(agent, count), label=str(agent))
        for agent in range(count)
    ]
    # A legend fills column by column; agents shall be read row by row.
    columns = min(count, LEGEND_ROW)
    figure.legend(
        handles=[handle for column in range(columns) for handle in handles[column::columns]],
        title="agent",
        loc="upper center",
        bbox_to_anchor=(middle_of(width), (below - 0.06) / figure.get_figheight()),
        ncols=columns,
        fontsize=size,
        title_fontsize=TEXT,
        frameon=False,
        handletextpad=0.1,
        handlelength=0.9,
        columnspacing=0.6,
        labelspacing=0.3,
        borderpad=0.1,
        borderaxespad=0.1,
    )
    return figure


def check_places(xy: NDArray[np.floating] | None, valid: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """(m, p, T), which positions `xy` (m, p, T, 2) can be drawn."""
    if xy is None:
        raise UsageError("there are no positions to draw: this environment has no x and y (xy is None)")
    if xy.ndim != 4 or xy.shape[-1] != 2 or not len(xy):
        raise UsageError(f"xy must be an array (agents, episodes, steps, 2) with at least one agent; got {xy.shape}")
    if valid is not None and valid.shape != xy.shape[:3]:
        raise UsageError(f"valid must be an array (agents, episodes, steps) = {xy.shape[:3]}; got {valid.shape}")
    counts = np.isfinite(xy).all(axis=-1)
    if valid is not None:
        counts &= valid
    if not counts.any():
        raise UsageError("there are no positions to draw: no state is valid and finite")
    return counts


def _places(
    xy: NDArray[np.floating] | None, valid: NDArray[np.bool_] | None, ground: Ground
) -> tuple[list[NDArray[np.floating]], Ground]:
    """(the points (n_i, 2) of each agent that count, what they lie on: a single feature is drawn over time)."""
    counts = check_places(xy, valid)
    assert xy is not None
    xy, ground = over_time(xy, counts, ground)
    return [points[chosen] for points, chosen in zip(xy, counts, strict=True)], ground


def _cell_sides(ground: Ground, extent: Extent) -> tuple[float, float]:
    """(along x, along y). Walls are a whole number of cells thick, so that no cell lies across the face of one."""
    plane = to_plane(ground)
    side = (extent[1] - extent[0]) / CELLS
    if plane.terrain is not None and plane.terrain.walls is not None:
        thick = plane.terrain.walls.cell_size
        side = thick / math.ceil(thick / side)
    return side, side * plane.cell[1] / plane.cell[0]


def _density(points: NDArray[np.floating], extent: Extent, sides: tuple[float, float]) -> NDArray[np.float64]:
    """(rows, columns), what part of `points` (n, 2) lies in each cell, per area; the first row is the lowest."""
    ranges = zip((extent[:2], extent[2:]), sides, strict=True)
    columns, rows = (max(1, round((high - low) / side)) for (low, high), side in ranges)
    table, _, _ = np.histogram2d(points[:, 1], points[:, 0], (rows, columns), (extent[2:], extent[:2]))
    area = (extent[1] - extent[0]) * (extent[3] - extent[2]) / (rows * columns)
    return table / (max(len(points), 1) * area)


def _name(axes: Axes, agent: int, count: int, is_small: bool) -> None:
    """The agent's number above its map, its colour around it."""
    axes.set_title(str(agent) if is_small else f"agent {agent}", size=SMALL if is_small else TEXT, color=INK, pad=2)
    for spine in axes.spines.values():
        spine.set(color=agent_colour(agent, count), linewidth=1.4)
