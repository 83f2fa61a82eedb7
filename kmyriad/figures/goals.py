"""Where goals lie, and how often they were reached."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.figures.ground import Extent, check_extent, fit_extent, map_panels, mark_start
from kmyriad.figures.look import COLUMN, TEXT, tidy

INNER_RADIUS = 4.5
"""Metres around the start within which PPO alone reaches goals (the paper's appendix)."""

GOAL_COLOUR = "#0072B2"


def goal_map(
    goals: ArrayLike,
    world: World,
    success: ArrayLike | None = None,
    radius: float | None = INNER_RADIUS,
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
    below = 0.28 if rates is None else 0.75
    figure, (axes,) = map_panels(1, 1, world, extent, width, above=0.06, below=below, gap=0)
    if radius:
        axes.add_patch(
            Circle((start[0], start[1]), radius, fill=False, ls=(0, (4, 2)), lw=1, color="black", label=f"{radius:g} m")
        )
    mark_start(axes, world)
    look: dict[str, Any] = {"s": 24.0, "linewidths": 0.7, "edgecolors": "black", "zorder": 4.0}
    if rates is None:
        axes.scatter(places[:, 0], places[:, 1], color=GOAL_COLOUR, label="goal", **look)
    else:
        known = np.isfinite(rates)
        x, y = places[known].T
        image = axes.scatter(x, y, c=rates[known], cmap="cividis", vmin=0, vmax=1, label="goal", **look)
        if not known.all():
            x, y = places[~known].T
            axes.scatter(x, y, facecolors="none", label="not measured", **look)
        height = figure.get_figheight()
        bar = figure.add_axes((0.5 - 0.9 / width, 0.36 / height, 1.8 / width, 0.07 / height))
        figure.colorbar(image, cax=bar, orientation="horizontal", ticks=(0, 0.25, 0.5, 0.75, 1))
        bar.set_xlabel("success rate", labelpad=1)
        tidy(bar, frame=True)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    figure.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, (below - 0.25) / figure.get_figheight()),
        ncols=4,
        fontsize=TEXT,
        frameon=False,
        handletextpad=0.3,
        columnspacing=1,
        handlelength=1.4,
        borderpad=0,
    )
    return figure


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
