"""Draw the diagram of the method.

python docs/method_diagram.py
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

OUT = Path(__file__).parent / "figures" / "method.svg"

WIDTH, HEIGHT, GAP = 1.5, 0.86, 0.42
"""Of a box, and between two."""
LOWER = -2.0
"""Where the second row is; the first is at 0."""

LOOP = [
    ("replicas", "copies of the\nenvironment"),
    ("agents", "one network,\nshared trunk"),
    ("pool", "states that all\nagents visited"),
    ("k-NN entropy", "how spread out\nthe pool is"),
    ("rewards", "what each state\nadds to it"),
    ("update", "policy\ngradient"),
]
TASK = [("select", "the agent that does\nmost of a task"), ("jump-start", "PPO from\nthat agent")]

LOOP_COLOUR, TASK_COLOUR, INK = "#e8eaf6", "#e0f2f1", "#263238"


def main() -> None:
    """Write the picture."""
    mpl.rcParams.update({"svg.hashsalt": "kmyriad", "font.family": "sans-serif"})
    figure = Figure(figsize=(9.4, 3.2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-0.15, 6 * WIDTH + 5 * GAP + 0.15)
    axes.set_ylim(LOWER - 0.15, 1.7)
    loop = [draw_box(axes, index * (WIDTH + GAP), 0.0, *words, LOOP_COLOUR) for index, words in enumerate(LOOP)]
    task = [draw_box(axes, (1 + index) * (WIDTH + GAP), LOWER, *words, TASK_COLOUR) for index, words in enumerate(TASK)]
    for y, row in ((0.0, loop), (LOWER, task)):
        for left, right in pairwise(row):
            draw_arrow(axes, (left + WIDTH, y + HEIGHT / 2), (right, y + HEIGHT / 2))
    # The update makes the agents better, and the loop goes round.
    middle = WIDTH / 2
    bend = "arc,angleA=90,angleB=90,armA=22,armB=22,rad=8"
    draw_arrow(axes, (loop[5] + middle, HEIGHT), (loop[1] + middle, HEIGHT), bend)
    axes.text((loop[1] + loop[5]) / 2 + middle, HEIGHT + 0.55, "every iteration, without reward", **text(9))
    draw_arrow(axes, (loop[1] + middle, 0.0), (task[0] + middle, LOWER + HEIGHT))
    axes.text(loop[1] + middle + 0.12, -0.62, "trained population", **text(9, ha="left"))
    axes.text(task[1] + WIDTH + 0.2, LOWER + HEIGHT / 2, "once there is a task", **text(9, ha="left"))
    figure.savefig(OUT, metadata={"Date": None}, facecolor="white")


def draw_box(axes: Axes, x: float, y: float, title: str, words: str, colour: str) -> float:
    """A box with its lower left corner at (x, y); returns x."""
    shape = FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.09")
    shape.set(facecolor=colour, edgecolor=INK, linewidth=0.9)
    axes.add_patch(shape)
    axes.text(x + WIDTH / 2, y + 0.67, title, weight="bold", **text(10))
    axes.text(x + WIDTH / 2, y + 0.29, words, linespacing=1.15, **text(8))
    return x


def draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: str = "arc3") -> None:
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0, connectionstyle=bend)
    arrow.set(color=INK, linewidth=0.9)
    axes.add_patch(arrow)


def text(size: float, ha: str = "center") -> dict[str, Any]:
    return {"fontsize": size, "color": INK, "va": "center", "ha": ha}


if __name__ == "__main__":
    main()
