"""Features of different units on one scale, for distances between states; what is reported stays in their own units."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kmyriad.errors import UsageError
from kmyriad.objective.neighbours import Points
from kmyriad.population.moments import moments
from kmyriad.rollout.collect import Visits

SMALLEST_DEVIATION = 1e-6
"""A feature that never varies is divided by this much of the largest deviation, instead of by nothing."""


def scale_of(points: Points, scale: Sequence[float]) -> Tensor | None:
    """(f,), the length that counts as one in each feature of `points` (n, f), None where that is 1 in all of them.

    `scale` has it; where it is 0, it is the deviation over the points. Empty: 1 everywhere.
    """
    if not len(scale) or all(length == 1 for length in scale):
        return None
    points = torch.as_tensor(points)
    if len(scale) != points.shape[1]:
        raise UsageError(f"feature_scale must have {points.shape[1]} numbers, one per feature; got {len(scale)}")
    deviation = moments(points).variance.sqrt()
    smallest = SMALLEST_DEVIATION * deviation.max() + 1e-12
    asked = torch.tensor(scale, dtype=torch.float64, device=points.device)
    return torch.where(asked > 0, asked, deviation.maximum(smallest)).float()


def unit_of(lengths: Tensor | None) -> float:
    """What to add to an entropy of scaled features to have it in their own units, nats."""
    return 0.0 if lengths is None else float(lengths.double().log().sum())


def scaled_visits(visits: Visits, scale: Sequence[float]) -> tuple[Visits, float]:
    """(`visits` on one scale, what to add to their entropy)."""
    lengths = scale_of(visits.features[visits.valid], scale)
    if lengths is None:
        return visits, 0.0
    features = np.divide(visits.features, lengths.numpy(), dtype=np.float32)
    return Visits(features, visits.xy, visits.valid), unit_of(lengths)
