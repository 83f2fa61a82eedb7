"""The paper's figures in its own arrangement, axes and colours, from plain rows and points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from kmyriad.envs.goal import AFFORDABLE
from kmyriad.envs.world import World
from kmyriad.evaluation.statistics import t_margin
from kmyriad.figures.curves import X_NAMES, Y_NAMES, legend_above
from kmyriad.figures.ground import Extent, draw_terrain, fit_extent
from kmyriad.figures.learning import short_count
from kmyriad.figures.look import COLUMN, FULL, INK, TEXT, new_figure, tidy
from kmyriad.figures.seeds import Rows, series_of
from kmyriad.figures.visits import draw_densities
from kmyriad.reproduction.grids import Grid, on_one_scale

BLUE, ORANGE, GREEN, GRAY, AMBER = "#4C72B0", "#DD8452", "#55A868", "#808080", "#FFBF00"
AGENT_COLOURS = {1: BLUE, 10: ORANGE, 50: GREEN}
START_COLOURS = {"random": GRAY, "single": BLUE, "best": GREEN}
ZONE_COLOURS = {"inside": GREEN, "outside": GRAY}
BUDGET_COLOURS = ("#34495E", "#D35400", "#27AE60", "#C0392B", "#8E44AD")
"""As the legends in the paper's source have them."""

TITLES = {"ant-empty": "Ground", "ant-maze": "Maze", "ant-cave": "Cave", "ant-pyramid": "Pyramid"}
"""Of the worlds, in the order of the paper's panels."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One line of a panel: some runs, each a list of rows."""

    colour: str
    runs: Sequence[Rows]


@dataclass(frozen=True)
class HeatMap:
    title: str
    grid: Grid | None = None
    """None shows the ground alone."""
    goal: Point | None = None


def curve_panels(
    panels: Mapping[str, Mapping[str, Curve]], x: str = "iteration", y: str = "entropy", *, median: bool = False
) -> Figure:
    """A row of panels: the mean of each curve's runs with its 95 % interval, or the median and the middle half."""
    figure = new_figure(FULL if len(panels) > 1 else COLUMN, 2.2)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    handles: dict[str, Artist] = {}
    for index, (title, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), index + 1)
        draw_curves(axes, curves, x, y, median=median)
        axes.set_title(title, fontsize=TEXT, color=INK, pad=3)
        if index:
            axes.set_ylabel("")
            axes.tick_params(labelleft=y != "success")  # rates have one axis, entropies one each
        handles |= {label: Line2D([], [], color=curve.colour, label=label) for label, curve in curves.items()}
    legend_above(figure, [*handles.values()])
    return figure


def draw_curves(axes: Axes, curves: Mapping[str, Curve], x: str, y: str, *, median: bool = False) -> None:
    for label, curve in curves.items():
        grid, values = _on_one_grid(label, curve.runs, x, y)
        if not len(values):
            continue
        middle = np.median(values, axis=0) if median else values.mean(axis=0)
        axes.plot(grid, middle, color=curve.colour, linewidth=1.2, marker="o" if len(grid) == 1 else "", markersize=3)
        low, high = _spread(values, median)
        if y == "success":
            low, high = low.clip(0, 1), high.clip(0, 1)
        axes.fill_between(grid, low, high, color=curve.colour, alpha=0.2, linewidth=0)
    axes.set(xlabel=X_NAMES.get(x, x), ylabel=Y_NAMES.get(y, y))
    tidy(axes)
    is_empty = not any(curve.runs for curve in curves.values())
    if is_empty:
        axes.set(xticks=[], yticks=[])
    if y == "success":  # the first of several panels has the numbers for all
        axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.25, 0.5, 0.75, 1))
    if is_empty:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", size=TEXT, color=INK)
        return
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))


def _spread(values: NDArray[np.float64], median: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) each: the 95 % interval of the mean, or the quartiles, of values (runs, n)."""
    if median:
        return np.quantile(values, 0.25, axis=0), np.quantile(values, 0.75, axis=0)
    middle, margin = values.mean(axis=0), t_margin(values)
    return (middle, middle) if margin is None else (middle - margin, middle + margin)


def _on_one_grid(name: str, runs: Sequence[Rows], x: str, y: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) and (runs, n), as far as all of them have come; values between two rows are interpolated."""
    found = [series for rows in runs if len((series := series_of(name, rows, x, y))[0])]
    if not found:
        return np.empty(0), np.empty((0, 0))
    first, last = max(xs[0] for xs, _ in found), min(xs[-1] for xs, _ in found)
    grid = np.unique(np.concatenate([xs for xs, _ in found]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.array([np.interp(grid, xs, ys) for xs, ys in found])


def heat_grid(rows: Mapping[str, tuple[World, Sequence[HeatMap]]], *, start: str = "white") -> Figure:
    """Rows of maps: those of a row share its world, extent and colours; the name of a row stands beside it."""
    columns = max(len(maps) for _, maps in rows.values())
    figure = new_figure(FULL, FULL / columns * len(rows) + 0.2)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    for row, (name, (world, maps)) in enumerate(rows.items()):
        grids = iter(on_one_scale([one.grid for one in maps if one.grid is not None]))
        maps = [one if one.grid is None else replace(one, grid=next(grids)) for one in maps]
        extent = _extent(world, [one.grid for one in maps if one.grid is not None])
        panels = [figure.add_subplot(len(rows), columns, row * columns + column + 1) for column in range(len(maps))]
        for axes, one in zip(panels, maps, strict=True):
            draw_terrain(axes, world, extent)
            axes.set_title(one.title, fontsize=TEXT, color=INK, pad=3)
            tidy(axes, frame=True)
        shown = [(axes, one.grid) for axes, one in zip(panels, maps, strict=True) if one.grid is not None]
        draw_densities([(axes, grid.density, grid.extent) for axes, grid in shown])
        for axes in panels:
            axes.set(xlim=extent[:2], ylim=extent[2:])
        for axes, one in zip(panels, maps, strict=True):
            _mark_start(axes, world, start)
            if one.goal is not None:
                axes.add_patch(
                    Circle(one.goal, world.goal_radius, facecolor=GREEN, edgecolor="black", alpha=0.8, zorder=4)
                )
        panels[0].set_ylabel(f"{name}\ny (m)", size=TEXT)
        for axes in panels if row == len(rows) - 1 else ():
            axes.set_xlabel("x (m)", size=TEXT)
    return figure


def goal_panels(worlds: Mapping[str, tuple[World, Sequence[Point]]]) -> Figure:
    """Where goals lie in each world: the start red, goals blue, as large as they count."""
    figure = new_figure(FULL, FULL / len(worlds) + 0.35)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    for index, (title, (world, goals)) in enumerate(worlds.items()):
        axes = figure.add_subplot(1, len(worlds), index + 1)
        draw_terrain(axes, world, _around(world, goals))
        for goal in goals:
            axes.add_patch(Circle(goal, world.goal_radius, facecolor="blue", alpha=0.25, linewidth=0, zorder=3))
            axes.plot(*goal, marker="o", color="blue", markersize=3, zorder=4)
        _mark_start(axes, world, "red")
        axes.set_title(title, fontsize=TEXT, color=INK, pad=3)
        axes.set(xlabel="x (m)", ylabel="" if index else "y (m)")
        tidy(axes, frame=True)
    legend_above(figure, [_dot("red", "initial state", "s"), _dot("blue", "goal positions")])
    return figure


def region_figure(
    world: World, outside: Sequence[Point], inside: Sequence[Point], curves: Mapping[str, Curve]
) -> Figure:
    """Goals inside and outside of what PPO can do alone, and its success over updates: median and middle half."""
    figure = new_figure(FULL, FULL / 2)
    figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.03)
    axes = figure.add_subplot(1, 2, 1)
    draw_terrain(axes, world, _around(world, [*outside, *inside]))
    axes.plot(*np.array(outside).T, linestyle="", marker="o", color=BLUE, markersize=4, zorder=4)
    axes.plot(*np.array(inside).T, linestyle="", marker="x", color=AMBER, markersize=5, zorder=4)
    x, y = world.terrain.start
    axes.add_patch(Circle((x, y), AFFORDABLE, fill=False, color="green", linestyle="--", zorder=3))
    _mark_start(axes, world, "white")
    axes.set(xlabel="x (m)", ylabel="y (m)")
    tidy(axes, frame=True)
    draw_curves(figure.add_subplot(1, 2, 2), curves, "iteration", "success", median=True)
    handles: list[Artist] = [
        _dot(BLUE, "goals of the success rates"),
        _dot(AMBER, "new goals", "x"),
        Line2D([], [], color="green", linestyle="--", label=f"{AFFORDABLE:g} m"),
    ]
    legend_above(figure, handles + [Line2D([], [], color=c.colour, label=label) for label, c in curves.items()])
    return figure


def mark_as_too_small(figure: Figure, words: str) -> None:
    """Write across a figure that it decides nothing."""
    size = 4.2 * min(figure.get_figwidth(), 2.5 * figure.get_figheight())
    figure.text(0.5, 0.5, words, size=size, color="#B00020", alpha=0.3, ha="center", va="center", rotation=15, zorder=9)


def _extent(world: World, grids: Sequence[Grid]) -> Extent:
    """The whole of a maze; elsewhere what holds all grids."""
    corners = [grid.extent for grid in grids]
    return fit_extent(world, np.array(corners).reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1, 2))


def _around(world: World, goals: Sequence[Point]) -> Extent:
    """What shows goals with their radius, and the circle that PPO alone comes out of."""
    reach = np.array([[-1, -1], [1, 1]]) * (AFFORDABLE + world.goal_radius)
    places = np.array(goals)
    return fit_extent(world, np.concatenate([places - world.goal_radius, places + world.goal_radius, reach]))


def _mark_start(axes: Axes, world: World, colour: str) -> None:
    x, y = world.terrain.start
    if colour == "white":
        axes.scatter(x, y, s=14, c="white", marker="X", edgecolors="black", linewidths=0.6, zorder=5)
        return
    side = world.goal_radius / 2
    axes.add_patch(Rectangle((x - side, y - side), 2 * side, 2 * side, facecolor=colour, linewidth=0, zorder=5))


def _dot(colour: str, label: str, marker: str = "o") -> Line2D:
    return Line2D([], [], linestyle="", marker=marker, color=colour, markersize=4, label=label)
