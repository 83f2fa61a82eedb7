"""MEPOL's update: several gradient steps on the importance-weighted entropy, inside a bound on the state KL."""

import copy
import math

import torch
from torch import Tensor

from kmyriad.config import TrustRegion
from kmyriad.objective.entropy import effective_sample_size, neighbourhood_kl, weighted_knn_entropy
from kmyriad.objective.rewards import Estimate
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Trajectory
from kmyriad.updates.gradient import UpdateReport, accumulate, log_probs_now, to_go

HALVINGS = 8
"""A step that leaves the trust region is tried again at half the rate, so many times at most per iteration."""


def trust_region(
    population: Population,
    optimizer: torch.optim.Optimizer,
    trajectory: Trajectory,
    estimate: Estimate,
    rule: TrustRegion,
) -> UpdateReport:
    """Step while KL(states before || states after) <= `rule.kl_bound`; a step beyond is undone and the rate halved."""
    rates = [group["lr"] for group in optimizer.param_groups]
    first_norm, kl, sample_size = 0.0, 0.0, 1.0
    taken, halvings = 0, 0
    log_weights = _log_weights(trajectory.log_probs, trajectory, estimate)
    while taken < rule.trust_region_steps and halvings < HALVINGS:
        coefficients = _coefficients(log_weights, trajectory, estimate)
        norm = accumulate(population, trajectory, coefficients)
        first_norm = first_norm if taken else norm
        if not math.isfinite(norm):
            break
        kept = copy.deepcopy(population.state_dict()), copy.deepcopy(optimizer.state_dict())
        optimizer.step()
        moved = _log_weights(log_probs_now(population, trajectory), trajectory, estimate)
        moved_kl = float(neighbourhood_kl(moved, estimate.neighbours))
        if not moved_kl <= rule.kl_bound:
            population.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
            halvings += 1
            for group in optimizer.param_groups:
                group["lr"] /= 2
            continue
        taken, kl, log_weights = taken + 1, moved_kl, moved
        sample_size = float(effective_sample_size(log_weights))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return UpdateReport(first_norm, taken, kl, sample_size)


def _log_weights(log_probs: Tensor, trajectory: Trajectory, estimate: Estimate) -> Tensor:
    """(N,), the paper's Eq. of w_t: the ratio of probabilities, multiplied up from the episode's beginning.

    Particles of older segments keep weight 1: only the newest segment's actions can be made more or less likely.
    """
    gather = trajectory.share.gather
    ratios, valid = gather(log_probs - trajectory.log_probs).double(), gather(trajectory.valid)
    dones = gather(trajectory.dones)
    running = torch.zeros_like(ratios[..., 0])
    newest = torch.empty_like(ratios)
    for step in range(ratios.shape[-1]):
        running = running + ratios[..., step]
        newest[..., step] = running
        running = running * ~dones[..., step]
    log_weights = torch.zeros(estimate.particles, dtype=torch.float64, device=ratios.device)
    log_weights[estimate.newest[valid]] = newest[valid]
    return log_weights


def _coefficients(log_weights: Tensor, trajectory: Trajectory, estimate: Estimate) -> Tensor:
    """(m, p, L), dH / d log pi of every step: what the weights from that step on are worth."""
    leaf = log_weights.detach().requires_grad_()
    weighted_knn_entropy(leaf, estimate.neighbours, estimate.dimension).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    rows = trajectory.share.own(estimate.newest)
    worth = leaf.grad[rows.clamp(min=0)] * trajectory.valid
    return (to_go(worth, trajectory.dones) * trajectory.valid).float()
