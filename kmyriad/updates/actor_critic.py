"""Clipped actor-critic (PPO, Schulman et al. 2017) for all agents at once: our update for pretraining and fine-tuning.

The gradient of the entropy is a policy gradient with a reward per visited state (`rewards`), so an iteration's update
is an ordinary reinforcement learning problem, and everything that makes PPO use few samples helps here too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from kmyriad.config import ActorCritic
from kmyriad.objective.rewards import Rewards
from kmyriad.population.moments import moments
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.processes import Share, largest, summed
from kmyriad.rollout.collect import Trajectory
from kmyriad.updates.gradient import UpdateReport, change, to_go

RATE_FACTOR = 1.5
"""The learning rate moves by this factor, whenever the KL is off its target by more than a factor of 2."""
RATE_RANGE = (1e-5, 3e-3)
KL_STOP = 4.0
"""An iteration's passes end early once the KL is beyond this many times its target."""


def actor_critic(
    population: Population,
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    trajectory: Trajectory,
    rewards: Tensor,
    settings: ActorCritic,
    rng: np.random.Generator,
    *,
    critic_only: bool = False,
) -> UpdateReport:
    """Improve all agents on `rewards` (m, p, L), which count where the trajectory is valid.

    With `settings.critic_epochs` the critic learns first, and advantages are what it then says; without, policies and
    critic learn together from what the critic said before.

    The first of the optimizer's groups has the policies' parameters. With `critic_only` the policies stay as they are,
    and so does that of an agent whose rewards are all alike: they tell nothing, and noise would wear away what it can.
    """
    assert trajectory.next_observations is not None
    observations = population.inputs(trajectory.observations)
    seen = critic.seen(observations, trajectory.features_before)
    next_seen = critic.seen(population.inputs(trajectory.next_observations), trajectory.features)
    informed, counts = _informed(rewards), trajectory.share.gather(trajectory.valid)
    parts = _Parts(counts, trajectory.share)
    critic_only = critic_only or not bool(informed.any())
    learning = [*population.parameters()]
    if settings.critic_epochs:
        report = _learn_values(critic, optimizer, seen, next_seen, trajectory, rewards, settings, parts, rng)
        if critic_only or not math.isfinite(report.gradient_norm):
            return report
    else:
        learning += critic.parameters()
    values, advantages = _evaluate(critic, seen, next_seen, trajectory, rewards, settings.gamma, settings.gae_lambda)
    batch = _Batch(
        observations.flatten(1, 2),
        seen.flatten(1, 2),
        trajectory.actions.flatten(1, 2),
        trajectory.log_probs.flatten(1, 2),
        (_standardised_by_all(advantages, counts, trajectory.share) * informed).flatten(1, 2),
        (advantages + values).flatten(1, 2),
        trajectory.valid.flatten(1, 2).float(),
    )
    steps, first_norm, kl, sample_size = 0, 0.0, 0.0, 1.0
    for _ in range(settings.update_epochs):
        log_ratios = []
        for part, counted in parts.drawn(settings.minibatches, rng):
            loss, log_ratio = _loss(population, critic, batch.at(part), counted, settings, critic_only)
            norm = _descend(loss, learning, optimizer, settings.max_grad_norm)
            if not math.isfinite(norm):
                return UpdateReport(norm, steps, kl, sample_size)
            first_norm = first_norm if steps else norm
            steps += 1
            log_ratios.append(log_ratio)
        kl, sample_size = change(torch.cat(log_ratios, dim=1))
        if settings.desired_kl is not None and kl > KL_STOP * settings.desired_kl:
            break
    if settings.desired_kl is not None and not critic_only:
        _steer_rate(optimizer, kl, settings.desired_kl)
    return UpdateReport(first_norm, steps, kl, sample_size)


def gae(rewards: Tensor, values: Tensor, next_values: Tensor, dones: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016), all (..., L).

    `next_values` are of the states that the steps led to: 0 where that is the end for good, the critic's where an
    episode only ran out of time or the segment is over. Sums do not cross `dones`.
    """
    return to_go(rewards + gamma * next_values - values, dones, gamma * gae_lambda)


def scaled_rewards(rewards: Rewards, trajectory: Trajectory, gamma: float) -> Tensor:
    """(m, p, L), what a critic learns from the objective's `rewards`: of this process's replicas, on one scale.

    States are worth their reward and their place P(s) along their agent's own way, in deviations of the two together.
    Of the place only what a step changes is paid, P(s') - P(s). It is the same objective (Ng, Harada & Russell 1999),

        sum over t of gamma^t (1 - gamma) P(s_t+1)  =  P(s_0) + sum over t of gamma^t (P(s_t+1) - P(s_t)),

    but for P(s_0), where an episode happens to begin: no action changed that, and no critic need learn it.
    """
    share, along = trajectory.share, rewards.along
    valid = share.gather(trajectory.valid)
    if along is None:
        return per_step(share.own(standardised(rewards.rewards, valid)), gamma)
    _, deviation = _mean_and_deviation((rewards.rewards + along[..., 1:])[valid])
    mean, _ = _mean_and_deviation(rewards.rewards[valid])
    worth = (rewards.rewards - mean) / deviation * valid
    return per_step(share.own(worth), gamma) + way_gone(share.own(along / deviation), trajectory)


def way_gone(along: Tensor, trajectory: Trajectory) -> Tensor:
    """(m, p, L), how much further along its agent's own way each step led; `along` (m, p, 1 + L) is of states.

    Nothing for an episode's first step. A termination leads to the beginning of the next episode.
    """
    gone = torch.where(trajectory.episode_steps == 0, 0.0, along.diff(dim=-1))
    back = nn.functional.pad(along[..., 1:].diff(dim=-1), (0, 1))
    return (gone + torch.where(trajectory.terminated, back, 0.0)).nan_to_num(0.0) * trajectory.valid


def standardised(values: Tensor, valid: Tensor) -> Tensor:
    """(m, p, L), `values` at mean 0 and deviation 1 where `valid`, and 0 elsewhere."""
    mean, deviation = _mean_and_deviation(values[valid])
    return (values - mean) / deviation * valid


def _mean_and_deviation(values: Tensor) -> tuple[float, float]:
    """Of `values` (n,); the deviation is infinite where there are fewer than two."""
    if len(values) < 2:
        return 0.0, math.inf
    found = moments(values[:, None])
    return float(found.mean), math.sqrt(float(found.variance) * len(values) / (len(values) - 1)) + 1e-8


def _standardised_by_all(values: Tensor, valid: Tensor, share: Share) -> Tensor:
    """`values` (m, p, L) of this process, `standardised` among those of all, as are `valid`."""
    return share.own(standardised(share.gather(values), valid))


def _informed(rewards: Tensor) -> Tensor:
    """(m, 1, 1), whether an agent's rewards (m, p, L), those of all processes, are not all alike."""
    highest, lowest = (extreme(dim=(1, 2), keepdim=True) for extreme in (rewards.amax, rewards.amin))
    highest, negative_lowest = largest(torch.stack([highest, -lowest]))
    return highest > -negative_lowest


def per_step(rewards: Tensor, gamma: float) -> Tensor:
    """Rewards such that returns are as large as rewards were, so that the critic learns them at any gamma."""
    return (1 - gamma) * rewards


@dataclass(frozen=True)
class _Batch:
    """Steps of an iteration: (m, B, ...) each."""

    observations: Tensor
    """Normalised."""
    seen: Tensor
    """By the critic."""
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
    """1, or 0 for steps that do not count."""

    def at(self, part: Tensor) -> "_Batch":
        """The steps in `part`, of every agent."""
        return _Batch(*(tensor.index_select(1, part) for tensor in vars(self).values()))


class _Parts:
    """Draws minibatches from the steps of all processes, each with as many of every agent."""

    def __init__(self, valid: Tensor, share: Share) -> None:
        """`valid` (m, p, L) are the steps that count, of all processes; this one has its `share`."""
        self._valid, self._is_whole, steps = valid.flatten(1, 2), share.ranks == 1, valid.shape[-1]
        self._first, self._last = share.places.start * steps, share.places.stop * steps

    def drawn(self, count: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """`count` times (which of this process's steps are in a minibatch, how many valid steps it has in all)."""
        for part in torch.from_numpy(rng.permutation(self._valid.shape[1])).chunk(count):
            part = part.to(self._valid.device)
            own = part if self._is_whole else part[(part >= self._first) & (part < self._last)] - self._first
            yield own, self._valid[:, part].sum().clamp(min=1)


def _learn_values(
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    seen: Tensor,
    next_seen: Tensor,
    trajectory: Trajectory,
    rewards: Tensor,
    settings: ActorCritic,
    parts: "_Parts",
    rng: np.random.Generator,
) -> UpdateReport:
    """The critic alone goes through the iteration's steps, `settings.critic_epochs` times."""
    far = settings.gae_lambda if settings.critic_lambda is None else settings.critic_lambda
    values, advantages = _evaluate(critic, seen, next_seen, trajectory, rewards, settings.gamma, far)
    inputs, returns = seen.flatten(1, 2), (values + advantages).flatten(1, 2)
    weights = trajectory.valid.flatten(1, 2).float()
    steps, first_norm = 0, 0.0
    for _ in range(settings.critic_epochs):
        for part, counted in parts.drawn(settings.minibatches, rng):
            error = critic.error(inputs[:, part], returns[:, part])
            loss = (error * weights[:, part]).sum() / counted
            norm = _descend(loss, [*critic.parameters()], optimizer, settings.max_grad_norm)
            if not math.isfinite(norm):
                return UpdateReport(norm, steps, 0.0, 1.0)
            first_norm = first_norm if steps else norm
            steps += 1
    return UpdateReport(first_norm, steps, 0.0, 1.0)


def _descend(loss: Tensor, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, most: float) -> float:
    """A step down the gradient of all processes' losses together, cut to norm `most`; returns the norm that it had.

    No step if that is not finite.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None  # so that the optimizer leaves alone what the loss does not depend on
    loss.backward()  # type: ignore[no-untyped-call]
    summed([parameter.grad for parameter in parameters if parameter.grad is not None])
    norm = float(nn.utils.clip_grad_norm_(parameters, most))
    if math.isfinite(norm):
        optimizer.step()
    return norm


@torch.no_grad()
def _evaluate(
    critic: Critic,
    seen: Tensor,
    next_seen: Tensor,
    trajectory: Trajectory,
    rewards: Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """(values, advantages) of every step, (m, p, L) each, from what the critic sees before and after it."""
    valid, goes_on = trajectory.valid, trajectory.valid & ~trajectory.terminated
    values = critic(seen.flatten(1, 2)).view_as(valid) * valid
    next_values = critic(next_seen.flatten(1, 2)).view_as(valid) * goes_on
    return values, gae(rewards, values, next_values, trajectory.dones, gamma, gae_lambda)


def _loss(
    population: Population, critic: Critic, batch: _Batch, counted: Tensor, settings: ActorCritic, critic_only: bool
) -> tuple[Tensor, Tensor]:
    """(the clipped policy loss plus the critic's error, the detached log-ratios (m, B)).

    Without that error where the critic learns by itself. Both are means over the `counted` steps of all processes.
    """
    error = torch.zeros_like(batch.returns)
    if not settings.critic_epochs:
        error = critic.error(batch.seen, batch.returns)
    if critic_only:
        return (error * batch.weights).sum() / counted, torch.zeros_like(batch.weights)
    policy = population.policy(batch.observations)
    log_ratio = policy.log_prob(batch.actions) - batch.log_probs
    ratio, clip = log_ratio.exp(), settings.clip_range
    gain = torch.min(ratio * batch.advantages, ratio.clamp(1 - clip, 1 + clip) * batch.advantages)
    if settings.entropy_coef:
        gain = gain + settings.entropy_coef * policy.entropy()
    return ((error - gain) * batch.weights).sum() / counted, log_ratio.detach()


def _steer_rate(optimizer: torch.optim.Optimizer, kl: float, target: float) -> None:
    """A lower rate after too large a change, a higher one after too small a change."""
    (low, high), group = RATE_RANGE, optimizer.param_groups[0]
    if kl > 2 * target:
        group["lr"] = max(group["lr"] / RATE_FACTOR, low)
    elif kl < target / 2:
        group["lr"] = min(group["lr"] * RATE_FACTOR, high)
