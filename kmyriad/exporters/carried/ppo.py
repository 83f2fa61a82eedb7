"""An agent with CleanRL's interface, and PPO in one function to train it on. Needs torch, Gymnasium and safetensors.

`Agent` takes the place of the class of that name in CleanRL's `ppo_continuous_action.py` or `ppo.py`. Its actions are
raw: squash them on their way to the environment with `agent.policy.to_environment`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kmyriad.exporters.carried.policy import FOLDER, load_policy, load_value


class Agent(nn.Module):
    """The exported policy and a value function."""

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        self.policy, self.critic = load_policy(folder), load_value(folder)

    def get_value(self, x: Tensor) -> Tensor:
        """(n, 1)."""
        value: Tensor = self.critic(x)
        return value

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Raw action (n, a) or index (n,), its log-probability (n,), the entropy (n,) and the value (n, 1)."""
        distribution = self.policy.distribution(x)
        action = distribution.sample() if action is None else action
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(x)


@dataclass(frozen=True)
class Settings:
    rollout_steps: int = 64
    update_epochs: int = 5
    minibatches: int = 4
    learning_rate: float = 1e-4
    gamma: float = 0.99
    gae_lambda: float = 0.9
    clip_range: float = 0.1
    largest_kl: float = 0.03
    max_grad_norm: float = 0.5
    critic_first: int = 2
    """Iterations in which only the critic learns: a fresh one would spoil the policy."""


@dataclass(frozen=True)
class Rollout:
    """L steps of n environments: (L, n, ...) each."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    values: Tensor
    next_values: Tensor
    """Of the states that the steps led to: 0 where an episode ended for good."""
    dones: Tensor


def train(
    agent: Agent, envs: Any, steps: int, settings: Settings | None = None, tell: Callable[[str], None] = print
) -> list[bool]:
    """PPO for about `steps` environment steps; `envs` restart in the step in which an episode ends.

    Returns whether the episodes that ended succeeded, in order, where the environment tells.
    """
    settings = settings or Settings()
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.learning_rate)
    seen = torch.as_tensor(envs.reset(seed=0)[0], dtype=torch.float32)
    successes: list[bool] = []
    started = time.time()
    for iteration in range(1, max(1, round(steps / (settings.rollout_steps * envs.num_envs))) + 1):
        rollout, seen = collect(agent, envs, seen, settings, successes)
        update(agent, optimizer, rollout, settings, critic_only=iteration <= settings.critic_first)
        done = iteration * settings.rollout_steps * envs.num_envs
        told = f", success {sum(successes[-100:]) / len(successes[-100:]):.2f}" if successes else ""
        tell(f"{done} steps, reward {rollout.rewards.mean():.4f}{told}, {time.time() - started:.0f} s")
    return successes


@torch.no_grad()
def collect(agent: Agent, envs: Any, seen: Tensor, settings: Settings, successes: list[bool]) -> tuple[Rollout, Tensor]:
    """Act from observations `seen` (n, d) on; what is seen then comes with it."""
    rows: list[tuple[Tensor, ...]] = []
    for _ in range(settings.rollout_steps):
        action, log_prob, _, value = agent.get_action_and_value(seen)
        observed, reward, terminated, truncated, info = envs.step(agent.policy.to_environment(action).numpy())
        following, ended = torch.as_tensor(observed, dtype=torch.float32), terminated | truncated
        reached = following.clone()
        for index in ended.nonzero()[0]:
            reached[index] = torch.as_tensor(info["final_obs"][index], dtype=torch.float32)
        final = info.get("final_info", {})
        success = final.get("success", final.get("is_success"))
        if success is not None:
            successes += [bool(success[index]) for index in ended.nonzero()[0]]
        next_value = agent.get_value(reached)[:, 0] * ~torch.as_tensor(terminated)
        given = torch.as_tensor(reward, dtype=torch.float32)
        rows.append((seen, action, log_prob, given, value[:, 0], next_value, torch.as_tensor(ended)))
        seen = following
    return Rollout(*(torch.stack(column) for column in zip(*rows, strict=True))), seen


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, settings: Settings, *, critic_only: bool
) -> None:
    """Clipped policy updates and squared errors of the values, in minibatches, within a bound on the KL."""
    advantages = torch.zeros_like(rollout.rewards)
    later = torch.zeros_like(rollout.rewards[0])
    for step in reversed(range(len(advantages))):
        error = rollout.rewards[step] + settings.gamma * rollout.next_values[step] - rollout.values[step]
        later = error + settings.gamma * settings.gae_lambda * ~rollout.dones[step] * later
        advantages[step] = later
    returns = (advantages + rollout.values).flatten()
    flat = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
    observations, actions, log_probs = (
        tensor.flatten(0, 1) for tensor in (rollout.observations, rollout.actions, rollout.log_probs)
    )
    for _ in range(settings.update_epochs):
        for part in torch.randperm(len(flat)).chunk(settings.minibatches):
            _, log_prob, _, value = agent.get_action_and_value(observations[part], actions[part])
            log_ratio = log_prob - log_probs[part]
            kl = (log_ratio.exp() - 1 - log_ratio).detach().mean()
            if kl > settings.largest_kl:
                return
            ratio = log_ratio.exp()
            clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
            policy_loss = -torch.min(ratio * flat[part], clipped * flat[part]).mean()
            loss = (value[:, 0] - returns[part]).square().mean() + (0 if critic_only else policy_loss)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
            optimizer.step()
