"""Where goals lie, and how often they were reached."""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from kmyriad.envs.goal import AFFORDABLE
from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.figures.ground import BAR, Extent, check_extent, colour_bar, fit_extent, map_panels, mark_start, middle_of
from kmyriad.figures.look import COLUMN, TEXT

GOAL_COLOUR = "#0072B2"


def goal_map(
    goals: ArrayLike,
    world: World,
    success: ArrayLike | None = None,
    radius: float | None = AFFORDABLE,
    extent: Extent | None = None,
    width: float = COLUMN,
) -> Figure:
    """Goals (g, 2 or 3) in metres on the terrain, coloured by `success` (g,), 0 to 1, if given; NaN stays hollow.

    A dashed circle of `radius` metres lies around the start; None leaves it out.
    """
    places, rates = _check(goals, success)
    start = np.array(world.terrain.start)
    if extent is None:
        ring = [start - radius, start + radius] if radius else []
        extent = fit_extent(world, np.concatenate([places, np.array(ring).reshape(-1, 2)]))
    extent = check_extent(extent)
    below = 0.25 if rates is None else 0.25 + BAR
    figure, (axes,) = map_panels(1, 1, world, extent, width, above=0.06, below=below, gap=0)
    handles: list[Artist] = []
    if radius:
        ring_look: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.0, "color": "black"}
        axes.add_patch(Circle((start[0], start[1]), radius, fill=False, zorder=3, **ring_look))
        handles.append(Line2D([], [], label=f"radius {radius:g} m", **ring_look))
    handles.append(mark_start(axes, world))
    if rates is None:
        handles.append(_mark(axes, places, "goal", color=GOAL_COLOUR))
    else:
        known = np.isfinite(rates)
        image = _mark(axes, places[known], "goal", c=rates[known], cmap="cividis", vmin=0, vmax=1)
        handles.append(Line2D([], [], ls="", marker="o", ms=4.9, mew=0.7, mfc="#808080", mec="black", label="goal"))
        colour_bar(figure, image, "success rate", (0, 0.25, 0.5, 0.75, 1))
        if not known.all():
            handles.append(_mark(axes, places[~known], "not measured", facecolors="none"))
    axes.set(xlim=extent[:2], ylim=extent[2:])
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(middle_of(width), below / figure.get_figheight()),
        ncols=4,
        fontsize=TEXT,
        frameon=False,
        handletextpad=0.3,
        columnspacing=1,
        handlelength=1.4,
        borderpad=0,
    )
    return figure


def _mark(axes: Axes, places: NDArray[np.float64], label: str, **colours: Any) -> PathCollection:
    x, y = places.T
    return axes.scatter(x, y, s=24, linewidths=0.7, edgecolors="black", zorder=4, label=label, **colours)


def _check(goals: ArrayLike, success: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """(g, 2) and (g,) or None."""
    places = np.asarray(goals, np.float64)
    if places.ndim != 2 or places.shape[1] not in (2, 3) or not len(places):
        raise UsageError(f"goals must be an array (goals, 2 or 3) with at least one goal; got shape {places.shape}")
    if not np.isfinite(places).all():
        raise UsageError("goals must be finite; there is a NaN or an infinity among them")
    if success is None:
        return places[:, :2], None
    rates = np.asarray(success, np.float64)
    if rates.shape != (len(places),):
        raise UsageError(f"success must hold one rate per goal, shape ({len(places)},); got shape {rates.shape}")
    if np.nanmin(rates, initial=0) < 0 or np.nanmax(rates, initial=1) > 1:
        raise UsageError(f"success rates lie between 0 and 1; got {np.nanmin(rates):g} to {np.nanmax(rates):g}")
    return places[:, :2], rates
