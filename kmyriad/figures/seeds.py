"""Several seeds of one thing: their mean and the 95 % interval of the mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.errors import UsageError, nearest_name
from kmyriad.evaluation.statistics import t_margin

Rows = Sequence[Mapping[str, Any]]
"""One seed: plain rows such as `Run.metrics()` gives, in any order. None and NaN stand for what was not measured."""

Series = tuple[NDArray[np.float64], NDArray[np.float64]]
"""(x, y), both (n,), x rising."""


@dataclass(frozen=True)
class Band:
    """All arrays (n,)."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    margin: NDArray[np.float64] | None
    """Half the width of the 95 % interval; None with one seed."""
    seeds: int
    """How many seeds had any value."""


def band_over_seeds(name: str, seeds: Sequence[Rows], x: str, y: str) -> Band | None:
    """Mean and interval of `y` against `x` for the group `name`, None if nothing was measured.

    Goes as far as all seeds have come, so that every point is about the same seeds; where their x differ, values
    between two rows are interpolated.
    """
    found = [series_of(name, rows, x, y) for rows in seeds]
    measured = [(xs, ys) for xs, ys in found if len(xs)]
    if not measured:
        return None
    first, last = max(xs[0] for xs, _ in measured), min(xs[-1] for xs, _ in measured)
    if first > last:
        raise UsageError(
            f"the seeds of {name!r} share no stretch of {x!r}: one ends at {last:g}, another begins at {first:g}"
        )
    grid = np.unique(np.concatenate([xs for xs, _ in measured]))
    grid = grid[(grid >= first) & (grid <= last)]
    values = np.array([np.interp(grid, xs, ys) for xs, ys in measured])
    return Band(grid, values.mean(axis=0), t_margin(values), len(values))


def averaged(name: str, runs: Sequence[Rows], x: str, y: str) -> Rows:
    """What one seed did in several tasks, as one: the mean of `y` as far as all of its runs have come."""
    if len(runs) == 1:
        return runs[0]
    band = band_over_seeds(name, runs, x, y)
    return [] if band is None else [{x: at, y: mean} for at, mean in zip(band.x, band.mean, strict=True)]


def series_of(name: str, rows: Rows, x: str, y: str) -> Series:
    """What one seed measured, in order of x; values at the same x are averaged."""
    known = sorted({key for row in rows for key in row})
    for key in (x, y):
        if rows and key not in known:
            raise UsageError(f"the rows of {name!r} have no {key!r}{nearest_name(key, known)}")
    try:
        table = np.array([[row.get(x), row.get(y)] for row in rows], np.float64).reshape(-1, 2)
    except (TypeError, ValueError):
        raise UsageError(f"{x!r} and {y!r} of {name!r} must be numbers, one of each in a row") from None
    table = table[np.isfinite(table).all(axis=1)]
    xs, where, counts = np.unique(table[:, 0], return_inverse=True, return_counts=True)
    return xs, np.bincount(where, table[:, 1], len(xs)) / counts
