"""How sure a mean over a few seeds or agents is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t

SMOOTHED_ITERATIONS = 5


@dataclass(frozen=True)
class Mean:
    mean: float
    margin: float | None
    """Half the width of the 95 % interval of the mean; None with a single value."""
    count: int

    def __str__(self) -> str:
        return self.text(".2f")

    def text(self, form: str) -> str:
        """`mean ± margin`, both in this format; a sign that it asks for is the mean's alone."""
        mean = f"{self.mean:{form}}"
        return mean if self.margin is None else f"{mean} ± {self.margin:{form.removeprefix('+')}}"


def mean_of(values: ArrayLike) -> Mean:
    """The mean of values (n,), n at least 1."""
    array = np.asarray(values, np.float64)
    margin = t_margin(array)
    return Mean(float(array.mean()), None if margin is None else float(margin), len(array))


def t_margin(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """(...), half the width of the 95 % interval of the mean of `values` (n, ...), from Student's t; None if n is 1."""
    count = len(values)
    if count < 2:
        return None
    return np.asarray(float(t.ppf(0.975, count - 1)) * values.std(axis=0, ddof=1) / math.sqrt(count))


def smoothed(success: Sequence[float]) -> list[float]:
    """The mean of each iteration and those before it, SMOOTHED_ITERATIONS in all: one rests on few episodes."""
    windows = (success[max(0, last + 1 - SMOOTHED_ITERATIONS) : last + 1] for last in range(len(success)))
    return [float(np.mean(window)) for window in windows]
