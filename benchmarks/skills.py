"""METRA and DIAYN on soft actor-critic: what ours is compared with in benchmarks/metra.py.

Written anew from the papers (Park, Rybkin and Levine 2024, arXiv 2310.08887; Eysenbach et al. 2019; Haarnoja et al.
2018). What papers leave open follows METRA's public code (github.com/seohongpark/METRA at e08e762, its commands for the
state-based Ant): 8 episodes of 200 steps and then 50 gradient steps per epoch, none before 10,000 steps are stored;
minibatches of 256 from a replay of 1e6 transitions; two hidden layers of 1024, tanh in the policy, ReLU elsewhere; Adam
at 1e-4 for everything; discount 0.99, targets follow by 0.005; weight of the actions' entropy from 0.01 on, steered to
an entropy of -|A|/2; dual multiplier from 30 on, slack 1e-3, and the squared step in the latent space is averaged over
its two numbers. Skills are two numbers: on the unit circle for METRA, standard normal for DIAYN. Observations are
scaled by their mean and deviation in random episodes of 50 steps. The last step of an episode counts as its end, as it
does there.
"""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from kmyriad.rollout.randomness import reset_seed
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.files import new_file

SKILL = 2
"""Numbers of a skill."""
DISCOUNT, FOLLOW = 0.99, 0.005
FIRST_ENTROPY_WEIGHT, FIRST_MULTIPLIER, SLACK = 0.01, 30.0, 1e-3
LOG_STD_RANGE = (math.log(1e-6), 2.0)


@dataclass(frozen=True)
class Size:
    """How large the networks are and how much they learn."""

    hidden: int = 1024
    batch: int = 256
    updates: int = 50
    """Gradient steps per epoch."""
    episodes: int = 8
    """Per epoch."""
    stored_first: int = 10_000
    """Transitions that are stored before anything is learned."""
    replay: int = 1_000_000
    rate: float = 1e-4


class Metra(nn.Module):
    """Go far along the skill in a latent space phi in which steps are short (mean square at most 1): d phi . z."""

    def __init__(self, inputs: int, size: Size, columns: int | None = None) -> None:
        """`columns` is how many of the observation's numbers phi sees; None for all."""
        super().__init__()
        self.columns = columns
        self.phi = mlp(columns or inputs, size.hidden, SKILL, nn.ReLU, nn.init.xavier_uniform_)
        self.log_multiplier = nn.Parameter(torch.tensor(math.log(FIRST_MULTIPLIER)))
        self._optimizer = adam(self.phi.parameters(), size.rate)
        self._dual_optimizer = adam([self.log_multiplier], size.rate)
        self.optimizers = [self._optimizer, self._dual_optimizer]

    def skills(self, count: int, rng: torch.Generator) -> Tensor:
        """(count, SKILL), as they are drawn for episodes."""
        return nn.functional.normalize(torch.randn(count, SKILL, generator=rng))

    def rewards(self, seen: Tensor, then: Tensor, skills: Tensor) -> Tensor:
        """(n,), what it is worth under `skills` (n, SKILL) to come from observations `seen` (n, d) to `then`."""
        return (self._moved(seen, then) * skills).sum(-1)

    def learn(self, seen: Tensor, then: Tensor, skills: Tensor) -> None:
        moved = self._moved(seen, then)
        room = self.room(moved)
        objective = (moved * skills).sum(-1) + self.log_multiplier.detach().exp() * room
        step(self._optimizer, -objective.mean())
        step(self._dual_optimizer, self.log_multiplier * room.detach().mean())

    @staticmethod
    def room(moved: Tensor) -> Tensor:
        """(n,), how much longer a step `moved` (n, SKILL) in the latent space could be, at most the slack."""
        return (1 - moved.square().mean(-1)).clamp(max=SLACK)

    def _moved(self, seen: Tensor, then: Tensor) -> Tensor:
        before, after = self.phi(torch.cat([seen, then])[:, : self.columns]).chunk(2)
        return after - before


class Diayn(nn.Module):
    """Go where the skill can be told from: ln q(z | s'), q a Gaussian."""

    def __init__(self, inputs: int, size: Size) -> None:
        super().__init__()
        self.mean = mlp(inputs, size.hidden, SKILL, nn.ReLU, nn.init.xavier_uniform_)
        self.log_std = mlp(inputs, size.hidden, SKILL, nn.ReLU, nn.init.xavier_uniform_)
        self._optimizer = adam(self.parameters(), size.rate)
        self.optimizers = [self._optimizer]

    def skills(self, count: int, rng: torch.Generator) -> Tensor:
        return torch.randn(count, SKILL, generator=rng)

    def rewards(self, seen: Tensor, then: Tensor, skills: Tensor) -> Tensor:
        log_std = self.log_std(then).clamp(min=LOG_STD_RANGE[0])
        return log_normal((skills - self.mean(then)) / log_std.exp(), log_std)

    def learn(self, seen: Tensor, then: Tensor, skills: Tensor) -> None:
        step(self._optimizer, -self.rewards(seen, then, skills).mean())


Kind = Callable[[int, Size], Metra | Diayn]
"""Makes what pays skills, and learns beside the policy, for observations of so many numbers."""


class SoftActorCritic(nn.Module):
    """A policy and two critics; `inputs` are observations and skills side by side."""

    def __init__(self, inputs: int, actions: int, size: Size) -> None:
        super().__init__()
        self.policy = mlp(inputs, size.hidden, 2 * actions, nn.Tanh, nn.init.xavier_uniform_, output_gain=0.1)
        self.critics = nn.ModuleList(
            mlp(inputs + actions, size.hidden, 1, nn.ReLU, nn.init.xavier_normal_) for _ in range(2)
        )
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_entropy_weight = nn.Parameter(torch.tensor(math.log(FIRST_ENTROPY_WEIGHT)))
        self.target_entropy = -actions / 2
        learners = (self.policy.parameters(), self.critics.parameters(), [self.log_entropy_weight])
        self.optimizers = [adam(parameters, size.rate) for parameters in learners]

    def act(self, inputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(actions (n, a) in [-1, 1], their log-probabilities (n,)); the mean's without noise."""
        mean, log_std = self.policy(inputs).chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        noise = torch.zeros_like(mean) if noise is None else noise
        raw = mean + log_std.exp() * noise
        log_slope = 2 * (math.log(2) - raw - softplus(-2 * raw))  # of tanh
        return raw.tanh(), log_normal(noise, log_std) - log_slope.sum(-1)

    def learn(
        self, inputs: Tensor, actions: Tensor, rewards: Tensor, next_inputs: Tensor, ends: Tensor, noise: Tensor
    ) -> None:
        """A gradient step of critics, policy and entropy weight; `noise` (2, n, a) is of new and of next actions."""
        of_policy, of_critics, of_weight = self.optimizers
        weight = self.log_entropy_weight.detach().exp()
        with torch.no_grad():
            next_actions, next_log_probs = self.act(next_inputs, noise[1])
            worth = _least(self.targets, next_inputs, next_actions) - weight * next_log_probs
            aims = rewards + DISCOUNT * worth * ~ends
        told = [critic(torch.cat([inputs, actions], dim=-1)).squeeze(-1) for critic in self.critics]
        step(of_critics, sum(0.5 * (one - aims).square().mean() for one in told))
        self.critics.requires_grad_(False)  # what follows asks them for the actions' gradient alone
        new_actions, log_probs = self.act(inputs, noise[0])
        step(of_policy, (weight * log_probs - _least(self.critics, inputs, new_actions)).mean())
        self.critics.requires_grad_(True)
        step(of_weight, -self.log_entropy_weight * (log_probs.detach().mean() + self.target_entropy))
        with torch.no_grad():
            for target, critic in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(critic, FOLLOW)


class Replay:
    """The newest episodes, whole: what was seen (with where the last step led), done, and the skill."""

    def __init__(self, capacity: int, horizon: int, observations: int, actions: int) -> None:
        episodes = max(capacity // horizon, 1)
        self.seen = torch.zeros(episodes, horizon + 1, observations)
        self.actions = torch.zeros(episodes, horizon, actions)
        self.skills = torch.zeros(episodes, SKILL)
        self.stored = 0
        """Episodes so far, those that were overwritten included."""

    def add(self, seen: Tensor, actions: Tensor, skills: Tensor) -> None:
        """Episodes (n, T + 1, d), (n, T, a), (n, SKILL) in place of the oldest."""
        places = torch.arange(self.stored, self.stored + len(seen)) % len(self.seen)
        self.seen[places], self.actions[places], self.skills[places] = seen, actions, skills
        self.stored += len(seen)

    def draw(self, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """(seen, actions, seen next, skills, whether it was the last step) of steps drawn evenly."""
        horizon = self.actions.shape[1]
        episode = torch.randint(min(self.stored, len(self.seen)), (count,), generator=rng)
        at = torch.randint(horizon, (count,), generator=rng)
        return (
            self.seen[episode, at],
            self.actions[episode, at],
            self.seen[episode, at + 1],
            self.skills[episode],
            at == horizon - 1,
        )


class SkillLearner:
    """Trains a policy that takes a skill, epoch by epoch; goes on exactly from what `save` wrote."""

    def __init__(self, kind: Kind, replicas: Replicas, horizon: int, seed: int, size: Size | None = None) -> None:
        self.size, self.replicas, self.horizon, self.seed = size or Size(), replicas, horizon, seed
        actions = int(math.prod(replicas.action_space.shape or ()))
        self.mean, self.std = scale_of(replicas)
        torch.manual_seed(seed)
        self.reward = kind(replicas.observation_size, self.size)
        self.learner = SoftActorCritic(replicas.observation_size + SKILL, actions, self.size)
        self.replay = Replay(self.size.replay, horizon, replicas.observation_size, actions)
        self.epoch = 0

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self.epoch * self.size.episodes * self.horizon

    def train_epoch(self) -> None:
        """New episodes, each of a skill of its own, and the gradient steps that follow them."""
        rng = torch.Generator().manual_seed(reset_seed(self.seed, 2 * self.epoch))
        skills = self.reward.skills(self.size.episodes, rng)
        self.replay.add(*self.episodes(self.replicas, skills, rng, reset_seed(self.seed, 2 * self.epoch + 1)), skills)
        self.epoch += 1
        if self.steps < self.size.stored_first:
            return
        for _ in range(self.size.updates):
            seen, actions, then, skills, ends = self.replay.draw(self.size.batch, rng)
            self.reward.learn(seen, then, skills)
            with torch.no_grad():
                rewards = self.reward.rewards(seen, then, skills)
            noise = torch.randn(2, *actions.shape, generator=rng)
            inputs, next_inputs = torch.cat([seen, skills], -1), torch.cat([then, skills], -1)
            self.learner.learn(inputs, actions, rewards, next_inputs, ends, noise)

    @torch.no_grad()
    def act(self, observations: Tensor, skills: Tensor, rng: torch.Generator | None) -> Tensor:
        """(n, a), actions after raw observations (n, d); means without `rng`."""
        inputs = torch.cat([self._scaled(observations), skills], dim=-1)
        shape = (len(inputs), self.replay.actions.shape[-1])
        return self.learner.act(inputs, None if rng is None else torch.randn(shape, generator=rng))[0]

    def episodes(
        self, replicas: Replicas, skills: Tensor, rng: torch.Generator | None, seed: int
    ) -> tuple[Tensor, Tensor]:
        """(scaled observations (n, T + 1, d), actions (n, T, a)) of a new episode in each of n replicas."""
        replicas.start(seed)
        seen, actions = [self._scaled(replicas.observation)], []
        for _ in range(self.horizon):
            actions.append(self.act(replicas.observation, skills, rng))
            seen.append(self._scaled(replicas.step(actions[-1]).observation))
        return torch.stack(seen, dim=1), torch.stack(actions, dim=1)

    def _scaled(self, observations: Tensor) -> Tensor:
        return (observations - self.mean) / self.std

    def save(self, path: Path) -> None:
        parts = {"reward": self.reward.state_dict(), "learner": self.learner.state_dict(), "epoch": self.epoch}
        parts["optimizers"] = [optimizer.state_dict() for optimizer in self._optimizers]
        stored = min(self.replay.stored, len(self.replay.seen))
        kept = (self.replay.seen, self.replay.actions, self.replay.skills)
        parts["replay"] = [tensor[:stored].clone() for tensor in kept]
        parts["stored"] = self.replay.stored
        with new_file(path) as temporary:
            torch.save(parts, temporary)

    def load(self, path: Path) -> None:
        parts = torch.load(path)
        self.reward.load_state_dict(parts["reward"])
        self.learner.load_state_dict(parts["learner"])
        for optimizer, state in zip(self._optimizers, parts["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for tensor, kept in zip(
            (self.replay.seen, self.replay.actions, self.replay.skills), parts["replay"], strict=True
        ):
            tensor[: len(kept)] = kept
        self.replay.stored, self.epoch = parts["stored"], parts["epoch"]

    @property
    def _optimizers(self) -> list[torch.optim.Optimizer]:
        return [*self.reward.optimizers, *self.learner.optimizers]


def scale_of(replicas: Replicas, episodes: int = 100, steps: int = 50) -> tuple[Tensor, Tensor]:
    """(mean (d,), deviation (d,)) of what is seen in so many random episodes, or a few more."""
    rng, seen = torch.Generator().manual_seed(0), []
    for start in range(0, episodes, replicas.count):
        replicas.start(start)
        for _ in range(steps):
            seen.append(replicas.observation.clone())
            replicas.step(2 * torch.rand(replicas.count, *(replicas.action_space.shape or ()), generator=rng) - 1)
    whole = torch.cat(seen)
    return whole.mean(0), whole.std(0) + 1e-8


def mlp(
    inputs: int,
    hidden: int,
    outputs: int,
    activation: type[nn.Module],
    start: Callable[[Tensor], Tensor],
    output_gain: float = 1.0,
) -> nn.Sequential:
    """Two hidden layers; weights by `start`, biases at 0."""
    layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for layer in layers:
        start(layer.weight)
        nn.init.zeros_(layer.bias)
    layers[-1].weight.data *= output_gain
    return nn.Sequential(layers[0], activation(), layers[1], activation(), layers[2])


def log_normal(standard: Tensor, log_std: Tensor) -> Tensor:
    """(n,), ln of the normal density `standard` (n, d) deviations from its mean."""
    return (-0.5 * standard.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def adam(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=rate, fused=True)


def step(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def _least(critics: nn.ModuleList, inputs: Tensor, actions: Tensor) -> Tensor:
    """(n,), what the more pessimistic of two critics says."""
    both = torch.cat([inputs, actions], dim=-1)
    return torch.min(*(critic(both).squeeze(-1) for critic in critics))
