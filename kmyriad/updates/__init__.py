"""Update rules: from the rewards of an iteration to a better population."""

import numpy as np
import torch

from kmyriad.config import ActorCritic, Reinforce, TrustRegion, UpdateRule
from kmyriad.errors import UsageError
from kmyriad.objective.rewards import Estimate, Rewards
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Trajectory, without_termination
from kmyriad.updates.actor_critic import actor_critic, scaled_rewards
from kmyriad.updates.gradient import UpdateReport
from kmyriad.updates.reinforce import reinforce
from kmyriad.updates.trust_region import trust_region


def update(
    rule: UpdateRule,
    population: Population,
    critic: Critic | None,
    optimizer: torch.optim.Optimizer,
    trajectory: Trajectory,
    rewards: Rewards,
    iteration: int,
    rng: np.random.Generator,
) -> UpdateReport:
    """Improve all agents on what the newest segment's states are worth, by the rule of this type."""
    match rule:
        case ActorCritic():
            assert critic is not None
            scaled = scaled_rewards(rewards, trajectory, rule.gamma)
            return actor_critic(population, critic, optimizer, without_termination(trajectory), scaled, rule, rng)
        case Reinforce():
            _schedule_rate(optimizer, rule, iteration)
            return reinforce(population, optimizer, trajectory, _exact(rewards))
        case TrustRegion():
            _schedule_rate(optimizer, rule, iteration)
            return trust_region(population, optimizer, trajectory, _exact(rewards), rule)


def _exact(rewards: Rewards) -> Estimate:
    if not isinstance(rewards, Estimate):
        raise UsageError("this objective gives rewards without neighbours; train on it with update actor_critic")
    return rewards


def _schedule_rate(optimizer: torch.optim.Optimizer, rule: Reinforce | TrustRegion, iteration: int) -> None:
    """MultiStepLR, as a function of the iteration."""
    passed = sum(iteration > milestone for milestone in rule.lr_milestones)
    optimizer.param_groups[0]["lr"] = rule.learning_rate * rule.lr_decay**passed
