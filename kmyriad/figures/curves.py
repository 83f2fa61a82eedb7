"""Curves over seeds: entropy while training, success while fine-tuning, entropy against the episodes spent."""

import math
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from kmyriad.errors import UsageError
from kmyriad.figures.colours import agent_colour
from kmyriad.figures.look import COLUMN, TEXT, new_figure, tidy
from kmyriad.figures.seeds import Band, Rows, band_over_seeds

Groups = Mapping[str, Sequence[Rows]]
"""What is compared: name to seeds, each a list of rows."""

X_NAMES = {"env_steps": "environment steps", "iteration": "updates", "episodes": "episodes"}
Y_NAMES = {"entropy": "state entropy (nats)", "entropy_xy": "entropy of x, y (nats)", "success": "success rate"}
"""What the axes say for names of columns; other names stand for themselves."""

CHARACTER = 0.6 * TEXT / 72
"""About the width of a letter, inches."""

LOG_FROM = 8.0
"""Budgets that span at least this factor are shown on a logarithmic axis."""


def entropy_curves(groups: Groups, x: str = "env_steps", y: str = "entropy", width: float = COLUMN) -> Figure:
    """Entropy against environment steps (or x = "iteration"), mean and 95 % t-interval over each group's seeds."""
    figure, axes, _ = _draw(groups, x, y, width)
    axes.margins(x=0.02)
    return figure


def success_curves(groups: Groups, x: str = "env_steps", y: str = "success", width: float = COLUMN) -> Figure:
    """Success rate, 0 to 1, against environment steps, mean and 95 % t-interval over each group's seeds."""
    figure, axes, bands = _draw(groups, x, y, width)
    for name, band in bands.items():
        if band.mean.min() < 0 or band.mean.max() > 1:
            raise UsageError(
                f"success rates lie between 0 and 1; {name!r} has {band.mean.min():g} to {band.mean.max():g}"
            )
    axes.margins(x=0.02)
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.25, 0.5, 0.75, 1))
    return figure


def entropy_by_budget(groups: Groups, x: str = "episodes", y: str = "entropy", width: float = COLUMN) -> Figure:
    """Entropy reached against the episodes spent on it, one mark per budget, 95 % t-interval over seeds."""
    figure, axes, bands = _draw(groups, x, y, width, is_sparse=True)
    budgets = sorted({budget for band in bands.values() for budget in band.x.tolist()})
    if budgets[0] > 0 and budgets[-1] / budgets[0] >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(_spread(budgets, apart=(budgets[-1] / budgets[0]) ** (1 / 8)))
        _name_x(axes, x, budgets[0])
    axes.margins(x=0.05)
    return figure


def _draw(
    groups: Groups, x: str, y: str, width: float, is_sparse: bool = False
) -> tuple[Figure, Axes, dict[str, Band]]:
    """The figure, its axes, and the bands of those groups that measured anything."""
    bands = {name: band_over_seeds(name, seeds, x, y) for name, seeds in groups.items()}
    drawn = {name: band for name, band in bands.items() if band is not None}
    if not drawn:
        raise UsageError(
            f"there is nothing to draw: none of {len(groups)} groups has a row with finite {x!r} and {y!r}"
        )
    figure = new_figure(width, 0.42 * width + 0.75)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    axes = figure.add_subplot()
    handles: list[Artist] = []
    for index, (name, band) in enumerate(bands.items()):
        colour = agent_colour(index, len(bands))
        if band is not None:
            _draw_band(axes, band, colour, is_sparse, is_rate=y == "success")
        label = textwrap.fill(_label(name, band, len(groups[name])), int((width - 0.6) / CHARACTER))
        handles.append(Line2D([], [], color=colour, linewidth=1.3, label=label))
    axes.set_ylabel(Y_NAMES.get(y, y))
    values = sorted({value for band in drawn.values() for value in band.x.tolist()})
    axes.xaxis.set_major_locator(FixedLocator(values) if len(values) == 1 else MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    _name_x(axes, x, values[-1])
    tidy(axes)
    legend_above(figure, handles)
    return figure, axes, drawn


def legend_above(figure: Figure, handles: Sequence[Artist]) -> int:
    """One legend for the whole figure, in as many columns as fit; returns its rows."""
    width = figure.get_figwidth() - 0.1
    letters = [max(map(len, str(handle.get_label()).splitlines())) for handle in handles]
    needed = [count * CHARACTER + 0.4 for count in letters]
    columns = len(handles) if sum(needed) <= width else min(len(handles), max(1, int(width / max(needed))))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        fontsize=TEXT,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
        borderpad=0.1,
    )
    return math.ceil(len(handles) / columns)


def _draw_band(axes: Axes, band: Band, colour: str, is_sparse: bool, is_rate: bool) -> None:
    marker = "o" if is_sparse or len(band.x) == 1 else ""
    axes.plot(band.x, band.mean, color=colour, linewidth=1.1, marker=marker, markersize=3)
    if band.margin is None:
        return
    if len(band.x) == 1:
        axes.errorbar(band.x, band.mean, band.margin, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2)
    else:
        low, high = band.mean - band.margin, band.mean + band.margin
        if is_rate:
            low, high = low.clip(0, 1), high.clip(0, 1)
        axes.fill_between(band.x, low, high, color=colour, alpha=0.2, lw=0)


def _label(name: str, band: Band | None, seeds: int) -> str:
    if band is None:
        return f"{name} (no data)"
    return name if band.seeds == seeds else f"{name} ({band.seeds} of {seeds} seeds)"


def _name_x(axes: Axes, x: str, typical: float) -> None:
    """Name the axis; its numbers are in thousands or millions, as the name says, if `typical` is that large."""
    factor, unit = (1e6, " (millions)") if typical >= 1e6 else (1e3, " (thousands)") if typical >= 1e4 else (1.0, "")
    axes.set_xlabel(X_NAMES.get(x, x) + unit)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:.6g}"))


def _spread(values: list[float], apart: float) -> list[float]:
    """Those of rising `values` that are at least a factor `apart` from the one kept before."""
    kept = values[:1]
    for value in values[1:]:
        if value >= kept[-1] * apart:
            kept.append(value)
    return kept
