"""Ways of learning that no setting gives: another critic, other noise. `study.py` compares them with what is there."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from kmyriad.population.network import Critic
from kmyriad.rollout.randomness import action_noise

LOWEST, HIGHEST, BINS = -5.0, 5.0, 50
"""Returns are sums of what is worth about a deviation; hardly any lies beyond."""


class CategoricalCritic(Critic):
    """A distribution over bins of returns, whose mean is the value, learned by cross-entropy (HL-Gauss).

    What is to be learned is a normal distribution around the return, three quarters of a bin wide, as Imani & White
    (2018) and Farebrother et al. (2024) do it.
    """

    outputs_per_value = BINS
    edges: Tensor

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.register_buffer("edges", torch.linspace(LOWEST, HIGHEST, BINS + 1), persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        return self.outputs(observations).softmax(-1) @ (0.5 * (self.edges[1:] + self.edges[:-1]))

    def error(self, observations: Tensor, returns: Tensor) -> Tensor:
        """(m, n), the cross-entropy."""
        return -(self.aims(returns) * self.outputs(observations).log_softmax(-1)).sum(-1)

    def aims(self, returns: Tensor) -> Tensor:
        """(m, n, BINS), the probabilities to learn."""
        width = 0.75 * (HIGHEST - LOWEST) / BINS
        below = torch.special.ndtr((self.edges - returns.clamp(LOWEST, HIGHEST)[..., None]) / width)
        inside = below.diff(dim=-1)
        return inside / inside.sum(-1, keepdim=True)


def held_noise(steps: int) -> Callable[..., Tensor]:
    """`action_noise` that stays for `steps` steps at a time."""

    def held(*arguments: object) -> Tensor:
        noise = action_noise(*arguments)  # type: ignore[arg-type]
        return noise[torch.arange(len(noise)) // steps * steps]

    return held


def learn_by(learner: str) -> None:
    """Make every pretraining of this process learn by one of `LEARNERS`."""
    module, name, instead = LEARNERS[learner]
    setattr(import_module(module), name, instead)


LEARNERS: dict[str, tuple[str, str, object]] = {
    "categorical critic": ("kmyriad.training.pretrain", "Critic", CategoricalCritic),
    "noise held for 2 steps": ("kmyriad.rollout.collect", "action_noise", held_noise(2)),
    "noise held for 4 steps": ("kmyriad.rollout.collect", "action_noise", held_noise(4)),
}
"""What stands in for what."""
