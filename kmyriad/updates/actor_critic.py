"""Clipped actor-critic (PPO, Schulman et al. 2017) for all agents at once: our update for pretraining and fine-tuning.

The gradient of the entropy is a policy gradient with a reward per visited state (`particles`), so an epoch's update is
an ordinary reinforcement learning problem, and everything that makes PPO use few samples helps here too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kmyriad.config import ActorCriticSettings
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.rollout.collect import ParallelTrajectory
from kmyriad.updates.gradient import UpdateReport, change, to_go

RATE_FACTOR = 1.5
"""The learning rate moves by this factor, whenever the KL is off its target by more than a factor of 2."""
RATE_RANGE = (1e-5, 3e-3)
KL_STOP = 4.0
"""An epoch's passes end early once the KL is beyond this many times its target."""


def actor_critic(
    population: Population,
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    trajectory: ParallelTrajectory,
    rewards: Tensor,
    settings: ActorCriticSettings,
    rng: np.random.Generator,
    *,
    critic_only: bool = False,
) -> UpdateReport:
    """Improve all agents on `rewards` (m, p, L), which count where the trajectory is sound.

    With `settings.critic_passes` the critic learns first, and advantages are what it then says; without, policies and
    critic learn together from what the critic said before.

    The first of the optimizer's groups has the policies' parameters. With `critic_only` the policies stay as they are,
    and so does that of an agent whose rewards are all alike: they tell nothing, and noise would wear away what it can.
    """
    assert trajectory.arrivals is not None
    observations, arrivals = population.inputs(trajectory.observations), population.inputs(trajectory.arrivals)
    sound = torch.from_numpy(trajectory.sound)
    informed = rewards.amax(dim=(1, 2), keepdim=True) > rewards.amin(dim=(1, 2), keepdim=True)
    critic_only = critic_only or not bool(informed.any())
    learning = [*population.parameters()]
    if settings.critic_passes:
        report = _learn_values(critic, optimizer, observations, arrivals, trajectory, rewards, settings, rng)
        if critic_only or not math.isfinite(report.gradient_norm):
            return report
    else:
        learning += critic.parameters()
    values, advantages = _evaluate(
        critic, observations, arrivals, trajectory, rewards, settings.gamma, settings.gae_lambda
    )
    batch = _Batch(
        observations.flatten(1, 2),
        trajectory.actions.flatten(1, 2),
        trajectory.log_probs.flatten(1, 2),
        (_standardise(advantages, sound) * informed).flatten(1, 2),
        (advantages + values).flatten(1, 2),
        sound.flatten(1, 2).float(),
    )
    steps, first_norm, kl, sample_size = 0, 0.0, 0.0, 1.0
    for _ in range(settings.passes):
        log_ratios = []
        for part in batch.minibatches(settings.minibatches, rng):
            loss, log_ratio = _loss(population, critic, part, settings, critic_only)
            norm = _descend(loss, learning, optimizer, settings.largest_gradient)
            if not math.isfinite(norm):
                return UpdateReport(norm, steps, kl, sample_size)
            first_norm = first_norm if steps else norm
            steps += 1
            log_ratios.append(log_ratio)
        kl, sample_size = change(torch.cat(log_ratios, dim=1))
        if settings.target_kl is not None and kl > KL_STOP * settings.target_kl:
            break
    if settings.target_kl is not None and not critic_only:
        _steer_rate(optimizer, kl, settings.target_kl)
    return UpdateReport(first_norm, steps, kl, sample_size)


def gae(rewards: Tensor, values: Tensor, next_values: Tensor, ends: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016), all (..., L).

    `next_values` are of the states that the steps led to: 0 where that is the end for good, the critic's where an
    episode only ran out of time or the segment is over. Sums do not cross `ends`.
    """
    return to_go(rewards + gamma * next_values - values, ends, gamma * gae_lambda)


def standardised(rewards: NDArray[np.float32], sound: NDArray[np.bool_]) -> Tensor:
    """(m, p, L), rewards at mean 0 and deviation 1 over the sound steps, and 0 elsewhere."""
    return _standardise(torch.from_numpy(rewards), torch.from_numpy(sound))


@dataclass(frozen=True)
class _Batch:
    """Steps of an epoch: (m, B, ...) each."""

    observations: Tensor
    """Normalised."""
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
    """1, or 0 for steps that do not count."""

    def minibatches(self, count: int, rng: np.random.Generator) -> Iterator["_Batch"]:
        """The steps in `count` random parts, each with as many of every agent."""
        for part in _parts(self.weights.shape[1], count, rng):
            yield _Batch(*(tensor[:, part] for tensor in vars(self).values()))


def _learn_values(
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    observations: Tensor,
    arrivals: Tensor,
    trajectory: ParallelTrajectory,
    rewards: Tensor,
    settings: ActorCriticSettings,
    rng: np.random.Generator,
) -> UpdateReport:
    """The critic alone goes through the epoch's steps, `settings.critic_passes` times."""
    far = settings.gae_lambda if settings.critic_lambda is None else settings.critic_lambda
    values, advantages = _evaluate(critic, observations, arrivals, trajectory, rewards, settings.gamma, far)
    inputs, returns = observations.flatten(1, 2), (values + advantages).flatten(1, 2)
    weights = torch.from_numpy(trajectory.sound).flatten(1, 2).float()
    steps, first_norm = 0, 0.0
    for _ in range(settings.critic_passes):
        for part in _parts(weights.shape[1], settings.minibatches, rng):
            error = (critic(inputs[:, part]) - returns[:, part]).square()
            loss = _mean(0.5 * error, weights[:, part])
            norm = _descend(loss, [*critic.parameters()], optimizer, settings.largest_gradient)
            if not math.isfinite(norm):
                return UpdateReport(norm, steps, 0.0, 1.0)
            first_norm = first_norm if steps else norm
            steps += 1
    return UpdateReport(first_norm, steps, 0.0, 1.0)


def _descend(loss: Tensor, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, largest: float) -> float:
    """A step down the gradient, cut to norm `largest`; returns the norm that it had. No step if that is not finite."""
    optimizer.zero_grad(set_to_none=True)  # so that the optimizer leaves alone what the loss does not depend on
    loss.backward()  # type: ignore[no-untyped-call]
    norm = float(nn.utils.clip_grad_norm_(parameters, largest))
    if math.isfinite(norm):
        optimizer.step()
    return norm


def _parts(size: int, count: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Indices below `size`, shuffled, in `count` parts."""
    return torch.from_numpy(rng.permutation(size)).chunk(count)


@torch.no_grad()
def _evaluate(
    critic: Critic,
    observations: Tensor,
    arrivals: Tensor,
    trajectory: ParallelTrajectory,
    rewards: Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """(values, advantages) of every step, (m, p, L) each, from normalised observations and arrivals."""
    sound, ends = torch.from_numpy(trajectory.sound), torch.from_numpy(trajectory.ends)
    goes_on = sound & ~torch.from_numpy(trajectory.terminated)
    values = critic(observations.flatten(1, 2)).view_as(sound) * sound
    next_values = critic(arrivals.flatten(1, 2)).view_as(sound) * goes_on
    return values, gae(rewards, values, next_values, ends, gamma, gae_lambda)


def _loss(
    population: Population, critic: Critic, batch: _Batch, settings: ActorCriticSettings, critic_only: bool
) -> tuple[Tensor, Tensor]:
    """(the clipped policy loss plus half the critic's squared error, the detached log-ratios (m, B)).

    Without that error where the critic learns by itself.
    """
    error = torch.zeros(())
    if not settings.critic_passes:
        error = (critic(batch.observations) - batch.returns).square()
    if critic_only:
        return _mean(0.5 * error, batch.weights), torch.zeros_like(batch.weights)
    policy = population.policy(batch.observations)
    log_ratio = policy.log_prob(batch.actions) - batch.log_probs
    ratio, clip = log_ratio.exp(), settings.clip
    gain = torch.min(ratio * batch.advantages, ratio.clamp(1 - clip, 1 + clip) * batch.advantages)
    if settings.entropy_bonus:
        gain = gain + settings.entropy_bonus * policy.entropy()
    return _mean(0.5 * error - gain, batch.weights), log_ratio.detach()


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (weights * values).sum() / weights.sum().clamp(min=1)


def _standardise(values: Tensor, sound: Tensor) -> Tensor:
    """`values` at mean 0 and deviation 1 where `sound`, and 0 elsewhere."""
    counted = values[sound]
    if counted.numel() < 2:
        return torch.zeros_like(values)
    return (values - counted.mean()) / (counted.std() + 1e-8) * sound


def _steer_rate(optimizer: torch.optim.Optimizer, kl: float, target: float) -> None:
    """A lower rate after too large a change, a higher one after too small a change."""
    (low, high), group = RATE_RANGE, optimizer.param_groups[0]
    if kl > 2 * target:
        group["lr"] = max(group["lr"] / RATE_FACTOR, low)
    elif kl < target / 2:
        group["lr"] = min(group["lr"] * RATE_FACTOR, high)
