"""One gradient step on a sum of weighted log-probabilities, in chunks, so that memory does not grow with the steps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kmyriad.population.moments import moments_of_all, torch_threads
from kmyriad.population.population import Population
from kmyriad.processes import summed
from kmyriad.rollout.collect import Trajectory

CHUNK = 8_192
"""Steps per forward and backward pass: bounds the memory, does not change the result's meaning."""


@dataclass(frozen=True)
class UpdateReport:
    """What an update did."""

    gradient_norm: float
    steps: int
    """Optimizer steps taken; 0 when the gradient was not finite, or no step stayed inside the trust region."""
    kl: float
    """Trust region: KL between the state distributions before and after. Other rules: of the actions, per step."""
    effective_sample_size: float
    """Fraction of the particles that the importance weights after the update are worth; 1 is all of them."""


def accumulate(population: Population, trajectory: Trajectory, coefficients: Tensor, chunk: int = CHUNK) -> float:
    """Fill the parameters' gradients with those of -sum of coefficients (m, p, L) x log pi; returns their norm.

    The sum is over the steps of all processes, of which each has its own.
    """
    population.zero_grad(set_to_none=True)
    for part in _chunks(trajectory, chunk):
        log_probs = _log_probs(population, trajectory, part)
        loss = -(coefficients.flatten(1)[:, part] * log_probs).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in population.parameters() if parameter.grad is not None]
    summed(gradients)
    with torch_threads(1):
        squares = torch.stack([gradient.double().square().sum() for gradient in gradients])
    return math.sqrt(float(squares.sum()))


@torch.no_grad()
def log_probs_now(population: Population, trajectory: Trajectory, chunk: int = CHUNK) -> Tensor:
    """(m, p, L), the log-probabilities of the actions taken, under the population as it is now."""
    parts = [_log_probs(population, trajectory, part) for part in _chunks(trajectory, chunk)]
    return torch.cat(parts, dim=1).view_as(trajectory.log_probs)


def _log_probs(population: Population, trajectory: Trajectory, part: slice) -> Tensor:
    """(m, chunk)."""
    observations, actions = trajectory.observations.flatten(1, 2), trajectory.actions.flatten(1, 2)
    return population(observations[:, part]).log_prob(actions[:, part])


def _chunks(trajectory: Trajectory, chunk: int) -> Iterator[slice]:
    """Slices of the flattened (p, L) axis that hold about `chunk` steps over all agents."""
    agents, per_agent, steps = trajectory.valid.shape
    size = max(1, chunk // agents)
    for start in range(0, per_agent * steps, size):
        yield slice(start, start + size)


def change(log_ratio: Tensor) -> tuple[float, float]:
    """(mean KL of the actions, effective sample size as a fraction), from the log-ratios of steps' probabilities.

    Of the steps of all processes.
    """
    logs = log_ratio.double().flatten()
    ratio = logs.exp()
    kl, mean, square = moments_of_all(torch.stack([ratio - 1 - logs, ratio, ratio.square()], dim=1)).mean.cpu().tolist()
    return kl, mean**2 / square


def to_go(values: Tensor, dones: Tensor, discount: float = 1.0) -> Tensor:
    """(..., L), the discounted sum from each step to the end of its episode (or of the segment)."""
    sums = torch.empty_like(values)
    running = torch.zeros_like(values[..., 0])
    for step in reversed(range(values.shape[-1])):
        running = values[..., step] + discount * running * ~dones[..., step]
        sums[..., step] = running
    return sums
