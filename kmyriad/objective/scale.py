"""Features of different units on one scale, for distances between states; what is reported stays in their own units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.rollout.collect import Visits

SMALLEST_DEVIATION = 1e-6
"""A feature that never varies is divided by this much of the largest deviation, instead of by nothing."""


def scale_of(points: NDArray[np.floating], scale: Sequence[float]) -> NDArray[np.float32] | None:
    """(f,), the length that counts as one in each feature of `points` (n, f), None where that is 1 in all of them.

    `scale` has it; where it is 0, it is the deviation over the points. Empty: 1 everywhere.
    """
    if not len(scale) or all(length == 1 for length in scale):
        return None
    if len(scale) != points.shape[1]:
        raise UsageError(f"feature_scale must have {points.shape[1]} numbers, one per feature; got {len(scale)}")
    deviation = points.std(axis=0, dtype=np.float64)
    lengths = np.where(np.array(scale) > 0, scale, np.maximum(deviation, SMALLEST_DEVIATION * deviation.max() + 1e-12))
    return lengths.astype(np.float32)


def unit_of(lengths: NDArray[np.float32] | None) -> float:
    """What to add to an entropy of scaled features to have it in their own units, nats."""
    return 0.0 if lengths is None else float(np.log(lengths.astype(np.float64)).sum())


def scaled_visits(visits: Visits, scale: Sequence[float]) -> tuple[Visits, float]:
    """(`visits` on one scale, what to add to their entropy)."""
    lengths = scale_of(visits.features[visits.valid], scale)
    if lengths is None:
        return visits, 0.0
    features = np.divide(visits.features, lengths, dtype=np.float32)
    return Visits(features, visits.xy, visits.valid), unit_of(lengths)
