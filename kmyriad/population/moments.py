"""Means and variances that do not depend on how many threads or processes the rows are spread over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from kmyriad.processes import gathered_together


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


def column_means(rows: Tensor) -> Tensor:
    """(d,), float64, of the rows (n, d) of this process; 0 of none."""
    with torch_threads(1):  # torch adds up long columns in as many parts as it has threads
        return rows.sum(0, dtype=torch.float64) / max(len(rows), 1)


def moments(rows: Tensor) -> Moments:
    """Of the rows (n, d) of this process."""
    mean = column_means(rows)
    count = torch.full((), len(rows), dtype=torch.float64, device=rows.device)
    return Moments(count, mean, column_means((rows - mean).square()))


def moments_of_all(rows: Tensor) -> Moments:
    """Of the rows (n, d) of all processes, which may have different numbers of them."""
    own = moments(rows)
    together, *others = (Moments(*parts) for parts in gathered_together([own.count, own.mean, own.variance]))
    for other in others:
        together = together.joined(other)
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
