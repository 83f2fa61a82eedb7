"""Distributions over raw actions, and what the environment makes of a raw action.

Squashing and rescaling happen at the environment's edge (`ActionSpec.squash`). The squashing's Jacobian cancels in
every ratio of probabilities, and any PPO can take the policy as it is.
"""

import dataclasses
import math
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.errors import UsageError


@dataclass(frozen=True)
class Gaussian:
    """Independent normals over raw actions: `mean` and `log_std` of shape (..., a)."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Raw actions (..., a) from standard normal noise of that shape."""
        return self.mean + self.log_std.exp() * noise

    def log_prob(self, actions: Tensor) -> Tensor:
        """(...)."""
        standard = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * standard.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """(...), nats."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


@dataclass(frozen=True)
class Categorical:
    """Independent choices: `logits` (..., a) side by side, as many of each as `choices` says.

    Actions are one-hot, choice by choice, so that shapes are the Gaussian's.
    """

    logits: Tensor
    choices: tuple[int, ...] = ()
    """How many actions each choice is among; empty for a single choice."""

    def sample(self, noise: Tensor) -> Tensor:
        """One-hot actions (..., a) from Gumbel noise of that shape."""
        scores = self.logits + noise
        chosen = [
            torch.zeros_like(part).scatter_(-1, part.argmax(-1, keepdim=True), 1.0) for part in self._split(scores)
        ]
        return chosen[0] if len(chosen) == 1 else torch.cat(chosen, dim=-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """(...)."""
        return (actions * self._log_probs()).sum(-1)

    def entropy(self) -> Tensor:
        """(...), nats."""
        log_probs = self._log_probs()
        return -(log_probs.exp() * log_probs).sum(-1)

    def _log_probs(self) -> Tensor:
        """(..., a), normalised choice by choice."""
        parts = [part.log_softmax(-1) for part in self._split(self.logits)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        if len(self.choices) < 2:
            return (values,)
        return torch.split(values, list(self.choices), dim=-1)


Policy = Gaussian | Categorical


@dataclass(frozen=True)
class ActionSpec:
    """What the environment takes, and how raw actions become that."""

    size: int
    """Numbers per raw action (all one-hot lengths together where discrete)."""
    is_discrete: bool
    low: Tensor
    high: Tensor
    """(size,) each, float32; the range the squashed action is stretched to."""
    choices: tuple[int, ...] = ()
    """Where discrete, how many actions each choice is among; empty for a single choice."""

    @property
    def outputs(self) -> int:
        """Network outputs per action: means and log-deviations, or logits."""
        return self.size if self.is_discrete else 2 * self.size

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The noise that `sample` wants: normal, or Gumbel."""
        if self.is_discrete:
            return rng.gumbel(size=shape).astype(np.float32)
        return rng.standard_normal(shape, np.float32)

    def squash(self, actions: Tensor) -> Tensor:
        """Raw actions (n, size) to what the environment takes.

        Continuous: tanh and an affine rescale, (n, size). Discrete: the index chosen, (n,), or (n, choices).
        """
        if self.is_discrete:
            parts = torch.split(actions, list(self.choices), dim=-1) if len(self.choices) > 1 else (actions,)
            chosen = [part.argmax(dim=-1) for part in parts]
            return chosen[0] if len(chosen) == 1 else torch.stack(chosen, dim=-1)
        return self.low + (self.high - self.low) * (0.5 + 0.5 * actions.tanh())

    def to(self, device: torch.device) -> "ActionSpec":
        """For actions on `device`."""
        return dataclasses.replace(self, low=self.low.to(device), high=self.high.to(device))


def action_spec(space: gymnasium.Space, action_range: tuple[float, float] | None = None) -> ActionSpec:  # type: ignore[type-arg]
    """The spec of a single environment's action space; `action_range` bounds what a Box leaves open."""
    choices = _choices(space)
    if choices:
        count = sum(choices)
        several = choices if len(choices) > 1 else ()
        return ActionSpec(count, True, torch.zeros(count), torch.ones(count), several)
    if not isinstance(space, gymnasium.spaces.Box):
        raise UsageError(
            f"action space {space} is not supported; it must be a Box, Discrete, MultiDiscrete or MultiBinary"
        )
    low, high = space.low.astype(np.float32).ravel(), space.high.astype(np.float32).ravel()
    if action_range is not None:
        smallest, largest = action_range
        low, high = np.where(np.isfinite(low), low, smallest), np.where(np.isfinite(high), high, largest)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UsageError(
            f"action space {space} is unbounded; say how far its actions may go, such as --action-range -1 1"
        )
    return ActionSpec(low.size, False, torch.from_numpy(low).float(), torch.from_numpy(high).float())


def _choices(space: gymnasium.Space) -> tuple[int, ...]:  # type: ignore[type-arg]
    """How many actions each choice of a discrete space is among; empty for other spaces."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(count) for count in space.nvec.ravel())
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return ()
