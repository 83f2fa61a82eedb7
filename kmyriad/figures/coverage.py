"""How much is covered, by whom: a bar per group, a dot per seed."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from kmyriad.errors import UsageError
from kmyriad.evaluation.statistics import mean_of
from kmyriad.figures.colours import agent_colour
from kmyriad.figures.look import COLUMN, INK, TEXT, new_figure, tidy


def coverage_bars(
    groups: Mapping[str, Sequence[float]], ylabel: str = "1 m cells visited", width: float = COLUMN
) -> Figure:
    """Mean and 95 % t-interval over the seeds of every group (name to one value per seed); the dots are the seeds."""
    if not groups or not all(len(values) for values in groups.values()):
        raise UsageError("every group needs a value of at least one seed; there is nothing to draw")
    figure = new_figure(width, 0.62 * width)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.03)
    axes = figure.add_subplot()
    for index, values in enumerate(groups.values()):
        told, colour = mean_of(list(values)), agent_colour(index, len(groups))
        axes.bar(index, told.mean, width=0.62, color=colour, alpha=0.45, linewidth=0)
        if told.margin is not None:
            axes.errorbar(index, told.mean, told.margin, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2.5)
        spread = [index + 0.08 * (place - (len(values) - 1) / 2) for place in range(len(values))]
        axes.scatter(spread, list(values), s=9, color=colour, edgecolors=INK, linewidths=0.4, zorder=3)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    tidy(axes)
    axes.tick_params(axis="x", length=0, labelsize=TEXT)
    return figure
