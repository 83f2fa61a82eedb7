"""Means and variances that do not depend on how many threads or processes the rows are spread over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from kmyriad.processes import gathered


@dataclass(frozen=True)
class Moments:
    """Of rows (n, d)."""

    count: Tensor
    """A whole number, as float64."""
    mean: Tensor
    """(d,), float64; 0 of no rows."""
    variance: Tensor
    """(d,), float64; 0 of no rows."""

    def joined(self, other: "Moments") -> "Moments":
        """Of both together (Chan, Golub & LeVeque 1979)."""
        total = self.count + other.count
        share = other.count / total.clamp(min=1)
        shift = other.mean - self.mean
        variance = self.variance + share * (other.variance - self.variance + (1 - share) * shift.square())
        return Moments(total, self.mean + share * shift, variance)


def moments(rows: Tensor) -> Moments:
    """Of the rows (n, d) of this process."""
    with torch_threads(1):  # torch adds up long columns in as many parts as it has threads
        values, count = rows.double(), max(len(rows), 1)
        mean = values.sum(0) / count
        variance = (values - mean).square().sum(0) / count
    return Moments(torch.full((), len(rows), dtype=torch.float64, device=rows.device), mean, variance)


def moments_of_all(rows: Tensor) -> Moments:
    """Of the rows (n, d) of all processes, which may have different numbers of them."""
    own = moments(rows)
    first, *others = zip(*(gathered(part) for part in (own.count, own.mean, own.variance)), strict=True)
    together = Moments(*first)
    for other in others:
        together = together.joined(Moments(*other))
    return together


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads within."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
