"""Distributions over raw actions, and what the environment makes of a raw action.

Squashing and rescaling happen at the environment's edge (`ActionSpec.squash`). The squashing's Jacobian cancels in
every ratio of probabilities, and any PPO can take the policy as it is.
"""

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
    """A choice among a actions: `logits` of shape (..., a). Actions are one-hot, so that shapes are the Gaussian's."""

    logits: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """One-hot actions (..., a) from Gumbel noise of that shape."""
        chosen = (self.logits + noise).argmax(-1, keepdim=True)
        return torch.zeros_like(self.logits).scatter_(-1, chosen, 1.0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """(...)."""
        return (actions * self.logits.log_softmax(-1)).sum(-1)

    def entropy(self) -> Tensor:
        """(...), nats."""
        log_probs = self.logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)


Policy = Gaussian | Categorical


@dataclass(frozen=True)
class ActionSpec:
    """What the environment takes, and how raw actions become that."""

    size: int
    """Numbers per raw action (one-hot length where discrete)."""
    is_discrete: bool
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    """(size,) each; the range the squashed action is stretched to."""

    @property
    def outputs(self) -> int:
        """Network outputs per action: means and log-deviations, or logits."""
        return self.size if self.is_discrete else 2 * self.size

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The noise that `sample` wants: normal, or Gumbel."""
        if self.is_discrete:
            return rng.gumbel(size=shape).astype(np.float32)
        return rng.standard_normal(shape, np.float32)

    def squash(self, actions: NDArray[np.float32]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Raw actions (n, size) to what the environment takes: tanh and an affine rescale, or the index chosen."""
        if self.is_discrete:
            return actions.argmax(axis=-1)
        return self.low + (self.high - self.low) * (np.float32(0.5) + np.float32(0.5) * np.tanh(actions))


def action_spec(space: gymnasium.Space) -> ActionSpec:  # type: ignore[type-arg]
    """The spec of a single environment's action space: a bounded Box of one dimension, or Discrete."""
    if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:
        count = int(space.n)
        return ActionSpec(count, True, np.zeros(count, np.float32), np.ones(count, np.float32))
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1:
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UsageError(
                f"action space {space} is unbounded; wrap the environment so that every action has a range"
            )
        return ActionSpec(space.shape[0], False, space.low.astype(np.float32), space.high.astype(np.float32))
    raise UsageError(f"action space {space} is not supported; it must be a bounded one-dimensional Box or Discrete(n)")
