"""Learning curves of several worlds: a panel each, side by side, with one legend."""

import math
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from kmyriad.errors import UsageError
from kmyriad.figures.colours import agent_colour
from kmyriad.figures.curves import CHARACTER, X_NAMES, Y_NAMES, Groups, legend_above
from kmyriad.figures.look import COLUMN, FULL, INK, TEXT, new_figure, tidy
from kmyriad.figures.seeds import band_over_seeds, series_of

Spent = tuple[float, float]
"""Environment steps after which an agent had been selected, and after which the policy began to learn."""

NARROWEST = 1.4
"""Inches of the narrowest panel; what does not fit into one row goes into the next."""
PANEL_HEIGHT, TITLE, LINE = 1.35, 0.25, 0.15
"""Inches: of a panel with its axis, of what stands above and below it, of a line of the legend."""
STRIP = 0.05
"""Height of the strip under a panel that shows what was spent, in units of the success rate."""
SELECTION, WARM_UP = 0.75, 0.3
"""Opacity of the two parts of a strip."""


def learning_curves(
    worlds: Mapping[str, Groups],
    y: str = "entropy",
    x: str = "env_steps",
    spent: Mapping[str, Mapping[str, Spent]] | None = None,
    width: float | None = None,
) -> Figure:
    """A row of panels, one per world: a thin line for every seed, and the mean of each group.

    The mean goes as far as all of the group's seeds have come. Steps are on a logarithmic axis. A group has the same
    colour in all worlds. `spent`, by world and group, draws strips under each panel: the steps that selecting an agent
    took, and then those in which only the critic learned. By default one world is a column wide, several are a page.
    """
    width = width or (COLUMN if len(worlds) == 1 else FULL)
    names = [*dict.fromkeys(name for groups in worlds.values() for name in groups)]
    colours = {name: agent_colour(index, len(names)) for index, name in enumerate(names)}
    columns = min(max(len(worlds), 1), max(1, int(width / NARROWEST)))
    rows = max(1, math.ceil(len(worlds) / columns))
    figure = new_figure(width, PANEL_HEIGHT)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    drawn: set[str] = set()
    for index, (world, groups) in enumerate(worlds.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        found = _draw_panel(axes, groups, colours, x, y)
        if y == "success":
            _as_rate(axes, found)
        if spent is not None and found:
            _draw_strips(axes, spent.get(world, {}), colours)
        if found:
            _name_steps(axes, width / columns)
        drawn |= {*found}
        letters = int((width / columns - 0.5) / CHARACTER)
        axes.set_title(textwrap.fill(world, max(letters, 8)), fontsize=TEXT, color=INK, pad=3)
        if index % columns == 0:
            axes.set_ylabel(Y_NAMES.get(y, y))
    if not drawn:
        raise UsageError(f"there is nothing to draw: none of {len(names)} groups has a row with finite {x!r} and {y!r}")
    figure.supxlabel(X_NAMES.get(x, x), fontsize=TEXT, color=INK)
    lines = legend_above(figure, _handles(colours, drawn, width, has_strips=bool(spent)))
    figure.set_figheight(rows * (PANEL_HEIGHT + TITLE) + lines * LINE + TITLE)
    return figure


def _draw_panel(
    axes: Axes, groups: Groups, colours: Mapping[str, str], x: str, y: str
) -> dict[str, tuple[float, float]]:
    """Least and greatest value of each group that has any."""
    found = {}
    for name, seeds in groups.items():
        band = band_over_seeds(name, seeds, x, y)
        if band is None:
            continue
        ranges = []
        for rows in seeds:
            xs, ys = series_of(name, rows, x, y)
            ranges += [*ys[xs > 0]]
            if band.seeds > 1:
                axes.plot(xs[xs > 0], ys[xs > 0], color=colours[name], linewidth=0.5, alpha=0.5)
        later = band.x > 0  # a logarithmic axis has no 0
        marker = "o" if later.sum() == 1 else ""
        axes.plot(band.x[later], band.mean[later], color=colours[name], linewidth=1.4, marker=marker, markersize=3)
        if ranges:
            found[name] = (min(ranges), max(ranges))
    axes.set_xscale("log")
    tidy(axes)
    return found


def _name_steps(axes: Axes, width: float) -> None:
    """Ticks such as 10k, 100k and 1M; 2 and 5 times these where `width` inches have room for them."""
    first, last = axes.get_xlim()
    room = width / (math.log10(last / first) * 4 * CHARACTER)  # labels of each power of ten
    subs: Sequence[float] = (1.0, 2.0, 5.0) if room > 5 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=1.5, width=0.4)


def short_count(value: float) -> str:
    """`2000000` to "2M"."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _as_rate(axes: Axes, found: Mapping[str, tuple[float, float]]) -> None:
    for name, (least, greatest) in found.items():
        if least < 0 or greatest > 1:
            raise UsageError(f"success rates lie between 0 and 1; {name!r} has {least:g} to {greatest:g}")
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.25, 0.5, 0.75, 1))


def _draw_strips(axes: Axes, spent: Mapping[str, Spent], colours: Mapping[str, str]) -> None:
    """One strip per group, from the left edge, which is as far left as the shortest selection needs."""
    ends = [end for of_group in spent.values() for end in of_group if end > 0]
    if not ends:
        return
    left = min(axes.get_xlim()[0], min(ends) / 2)
    axes.set_xlim(left=left)
    bottom = axes.get_ylim()[0]
    for name, (selected, learning) in spent.items():
        for first, last, opacity in ((left, selected, SELECTION), (max(left, selected), learning, WARM_UP)):
            if last > first:
                axes.fill_between([first, last], bottom - STRIP, bottom, color=colours[name], alpha=opacity, lw=0)
        bottom -= 1.3 * STRIP
    axes.set_ylim(bottom=bottom)


def _handles(colours: Mapping[str, str], drawn: set[str], width: float, has_strips: bool) -> list[Artist]:
    letters = int((width - 0.6) / CHARACTER)
    labels = {name: textwrap.fill(name if name in drawn else f"{name} (no data)", letters) for name in colours}
    handles: list[Artist] = [
        Line2D([], [], color=colour, linewidth=1.4, label=labels[name]) for name, colour in colours.items()
    ]
    if has_strips:
        handles += [
            Patch(facecolor=INK, alpha=opacity, linewidth=0, label=what)
            for what, opacity in (("selecting an agent", SELECTION), ("only the critic learns", WARM_UP))
        ]
    return handles
