"""How different the agents are, pair by pair."""

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from kmyriad.errors import UsageError
from kmyriad.figures.colours import agent_colour
from kmyriad.figures.look import COLUMN, INK, SMALL, TEXT, new_figure, tidy

ANNOTATED = 12
"""Agents up to which every pair's number is written."""


def kl_matrix(kl: ArrayLike, width: float = COLUMN) -> Figure:
    """`kl` (m, m), the divergence in nats of the agent in each row from the agent in each column; NaN stays blank.

    The diagonal, which is zero by definition, is blank too.
    """
    table = np.array(kl, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise UsageError(f"kl must be a square array (agents, agents) with at least one agent; got shape {table.shape}")
    count = len(table)
    np.fill_diagonal(table, np.nan)
    shown = np.ma.masked_invalid(table)
    low, high = (min(0.0, float(shown.min())), float(shown.max())) if shown.count() else (0.0, 1.0)

    left, right, top, bottom, gap, thick = 0.5, 0.5, 0.08, 0.42, 0.08, 0.09
    side = width - left - right - gap - thick
    height = top + side + bottom
    figure = new_figure(width, height)
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    norm = Normalize(low, high if high > low else low + 1)
    image = axes.imshow(shown, cmap="viridis_r", norm=norm)
    axes.set_facecolor("#EDEDED")
    every = next(step for step in (1, 2, 5, 10, 20, 50, count) if count / step <= side / 0.16)
    agents = range(0, count, every)
    axes.set(xticks=agents, yticks=agents, xlabel="from agent", ylabel="of agent")
    tidy(axes, frame=True)
    axes.tick_params(length=0, pad=7)
    colours = [agent_colour(agent, count) for agent in range(count)]
    size = min(3.5, 0.6 * side * 72 / count)
    for x, y, transform in (
        (np.arange(count), np.full(count, -3.5 / 72 / side), axes.get_xaxis_transform()),
        (np.full(count, -3.5 / 72 / side), np.arange(count), axes.get_yaxis_transform()),
    ):
        axes.scatter(x, y, s=size**2, c=colours, marker="s", linewidths=0, transform=transform, clip_on=False)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))
    if count <= ANNOTATED:
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                red, green, blue, _ = colormaps["viridis_r"](norm(value))
                ink = INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
                axes.text(
                    column,
                    row,
                    _short(value, 2 if side / count > 0.21 else 1),
                    ha="center",
                    va="center",
                    size=SMALL,
                    color=ink,
                )
    bar = figure.add_axes(((left + side + gap) / width, bottom / height, thick / width, side / height))
    figure.colorbar(image, cax=bar)
    bar.set_ylabel("KL divergence (nats)", labelpad=3, size=TEXT)
    tidy(bar, frame=True)
    return figure


def _short(value: float, decimals: int) -> str:
    """Two or three digits: decimals make room for what stands before the point."""
    magnitude = abs(value)
    return f"{value:.{max(0, decimals - (magnitude >= 9.95) - (magnitude >= 99.5))}f}"
