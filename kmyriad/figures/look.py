"""What all figures share: widths of a paper, sizes of text, bare axes, and how they are saved."""

from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kmyriad.errors import UsageError
from kmyriad.runs.files import check_name, os_errors, write_atomically

COLUMN = 3.4
"""Width of a paper's column, inches."""

FULL = 7.0
"""Width of a paper's page, inches."""

LEAST_WIDTH, MOST_WIDTH = 2.0, 40.0

TEXT = 7.0
"""Size of all text, points; figures are made at the width they are printed at."""

SMALL = 5.5
"""Size of text inside and above small panels, points."""

INK = "#262626"
DPI = 300


def new_figure(width: float, height: float) -> Figure:
    """A white figure, in inches, that pyplot knows nothing of."""
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise UsageError(f"a figure's width must lie between {LEAST_WIDTH:g} and {MOST_WIDTH:g} inches; got {width}")
    return Figure(figsize=(width, height), facecolor="white")


def tidy(axes: Axes, frame: bool = False) -> None:
    """Thin lines, small text; the upper and right line only with `frame`."""
    for side, spine in axes.spines.items():
        spine.set(linewidth=0.6, color=INK, visible=frame or side in ("left", "bottom"))
    axes.tick_params(labelsize=TEXT, width=0.6, length=2.5, colors=INK)
    axes.xaxis.label.set(size=TEXT, color=INK)
    axes.yaxis.label.set(size=TEXT, color=INK)


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg, making the folder if need be; the same figure gives the same bytes."""
    path = Path(path)
    png, svg = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")
    check_name(path)
    with os_errors(f"write the figure {path}", "choose another folder or free some space"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, metadata in ((png, {}), (svg, {"Date": None})):
            content = BytesIO()
            with matplotlib.rc_context({"svg.hashsalt": "kmyriad"}):
                figure.savefig(content, format=target.suffix[1:], dpi=DPI, metadata=metadata)
            write_atomically(target, content.getvalue())
    return png, svg
