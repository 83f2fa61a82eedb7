"""Whole episodes as lines, each agent in the colour of the direction it goes in."""

import math

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kmyriad.figures.colours import heading_colour
from kmyriad.figures.ground import Extent, Ground, check_extent, fit_extent, map_panels, mark_start, over_time, to_plane
from kmyriad.figures.look import COLUMN
from kmyriad.figures.visits import check_places

EPISODES = 400
"""Lines drawn at most, the same number of every agent."""

WHEEL = 0.42
"""Inches across the colour wheel."""


def episode_paths(
    xy: NDArray[np.floating] | None,
    world: Ground,
    valid: NDArray[np.bool_] | None = None,
    extent: Extent | None = None,
    width: float = COLUMN,
) -> Figure:
    """All agents' episodes (m, p, T, 2) on the ground, coloured by where the agent ends on average.

    `valid` (m, p, T) tells which states count (None: all); a line ends with the first that does not. A cross is the
    start. A single feature is drawn over time.
    """
    counts = check_places(xy, valid)
    assert xy is not None
    goes_on = np.logical_and.accumulate(counts, axis=2)
    features = len(to_plane(world).names)
    xy, world = over_time(xy, goes_on, world)
    extent = fit_extent(world, xy[goes_on]) if extent is None else check_extent(extent)
    figure, (axes,) = map_panels(1, 1, world, extent, width, above=0.06, below=0.04, gap=0)
    start = np.array(to_plane(world).start)
    each = max(1, EPISODES // len(xy))
    for agent in range(len(xy)):
        lines = [path[alive] for path, alive in zip(xy[agent], goes_on[agent], strict=True) if alive.any()][:each]
        if lines:
            drift = np.mean([line[-1] for line in lines], axis=0) - start
            colour = heading_colour(math.atan2(drift[1] if features > 1 else 0.0, drift[0]))
            from_start = [np.concatenate([start[None], line]) for line in lines]
            axes.add_collection(LineCollection(from_start, colors=colour, linewidths=0.6, alpha=0.6, zorder=2))
    mark_start(axes, world)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    _draw_wheel(figure)
    return figure


def _draw_wheel(figure: Figure) -> None:
    """What the colours mean, in the upper right corner of the only map."""
    width, height = figure.get_size_inches()
    place = ((width - WHEEL - 0.16) / width, (height - WHEEL - 0.14) / height, WHEEL / width, WHEEL / height)
    wheel = figure.add_axes(place, projection="polar", label="colour wheel")
    angles = np.linspace(-np.pi, np.pi, 73)
    middles = (angles[1:] + angles[:-1]) / 2
    colours = [heading_colour(float(angle)) for angle in middles]
    wheel.bar(middles, 0.45, width=np.diff(angles), bottom=0.55, color=colours, linewidth=0)
    wheel.set_axis_off()
