"""Observations at mean 0 and standard deviation 1, by what all agents have seen so far."""

import torch
from torch import Tensor, nn

from kmyriad.population.moments import Moments, moments_of_all

LIMIT = 8.0
"""Normalised observations are cut off here: a rare large one must not shake the network."""

SMALLEST_VARIANCE = 1e-6
"""Added to the variance: some observations never change."""


class Normaliser(nn.Module):
    """Running mean and variance of observations (..., d). They are part of the policy, and saved with it."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        scale = (self.variance + SMALLEST_VARIANCE).rsqrt().float()
        return ((observations - self.mean.float()) * scale).clamp_(-LIMIT, LIMIT)

    @torch.no_grad()
    def see(self, observations: Tensor) -> None:
        """Take more observations (n, d), perhaps none, of this process and of all others into account."""
        seen = moments_of_all(observations)
        known = Moments(self.count, self.mean, self.variance).joined(seen)
        self.count.copy_(known.count)
        self.mean.copy_(known.mean)
        self.variance.copy_(known.variance)
