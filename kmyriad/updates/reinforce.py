"""The paper's update: one step of Adam on the exact gradient of the k-NN entropy at importance weight 1."""

import math

import torch

from kmyriad.objective.rewards import Estimate
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Trajectory
from kmyriad.updates.gradient import UpdateReport, accumulate, change, to_go

SAMPLE = 16_384
"""Steps on which the update's KL is looked at afterwards."""


def reinforce(
    population: Population,
    optimizer: torch.optim.Optimizer,
    trajectory: Trajectory,
    estimate: Estimate,
) -> UpdateReport:
    """One step along grad H = (1/N) sum over steps u of grad log pi(a_u | s_u) x (sum over t >= u of r_t - mean r)."""
    rewards = trajectory.share.own(estimate.rewards)
    coefficients = to_go(rewards, trajectory.dones) * trajectory.valid / estimate.particles
    norm = accumulate(population, trajectory, coefficients)
    if not math.isfinite(norm):
        return UpdateReport(norm, steps=0, kl=0.0, effective_sample_size=1.0)
    optimizer.step()
    return UpdateReport(norm, 1, *_change(population, trajectory))


@torch.no_grad()
def _change(population: Population, trajectory: Trajectory) -> tuple[float, float]:
    """(mean KL of the actions, effective sample size of the steps' ratios) on the first replicas of every agent."""
    agents, per_agent, steps = trajectory.valid.shape
    replicas = max(1, min(per_agent, SAMPLE // (agents * steps)))
    observations = trajectory.observations[:, :replicas].flatten(1, 2)
    actions = trajectory.actions[:, :replicas].flatten(1, 2)
    before = trajectory.log_probs[:, :replicas].flatten(1, 2)
    return change(population(observations).log_prob(actions) - before)
