"""Models and environments for skrl (2.x) that hold what kmyriad trained exactly.

skrl hands raw actions to the environment, so a wrapper squashes them (`RawActions`).
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from skrl.agents.torch.ppo import PPO
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model, MultiCategoricalMixin
from torch import Tensor

from kmyriad.exporters.carried.policy import FOLDER, Policy, load_policy, load_value, make_envs, read_facts, spaces_of

ROLLOUTS = 64
"""Steps of every environment between updates."""


class RawActions(gymnasium.vector.VectorWrapper):
    """A vector environment that takes raw actions (n, a) and squashes them."""

    def __init__(self, env: Any, policy: Policy) -> None:
        super().__init__(env)
        self.policy = policy
        if policy.choices or not policy.is_discrete:
            self.single_action_space = raw_space(policy)
            self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, env.num_envs)

    def step(self, actions: Any) -> Any:
        squashed = self.policy.to_environment(torch.as_tensor(np.asarray(actions))).numpy()
        return self.env.step(squashed)


class StateGaussian(GaussianMixin, Model):
    """A Gaussian over raw actions with a deviation for every state."""

    def __init__(self, network: Policy, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_log_std=False)
        self.network = network

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        mean, log_std = self.network(inputs["observations"])
        return mean, {"log_std": log_std}


class StateCategorical(CategoricalMixin, Model):
    """A choice among actions."""

    def __init__(self, network: Policy, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.network = network

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.network(inputs["observations"])[0], {}


class StateCategoricals(MultiCategoricalMixin, Model):
    """Several choices at once."""

    def __init__(self, network: Policy, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        MultiCategoricalMixin.__init__(self)
        self.network = network

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.network(inputs["observations"])[0], {}


class Value(DeterministicMixin, Model):
    """The value function."""

    def __init__(self, network: torch.nn.Module, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.network = network

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.network(inputs["observations"]), {}


def raw_space(policy: Policy) -> gymnasium.Space[Any]:
    """Of raw actions: without bounds, or an index for every choice."""
    if policy.choices:
        return gymnasium.spaces.MultiDiscrete(policy.choices)
    if policy.is_discrete:
        return gymnasium.spaces.Discrete(len(policy.low))
    return gymnasium.spaces.Box(-np.inf, np.inf, tuple(policy.low.shape), np.float32)


def make_agent(folder: Path = FOLDER, num_envs: int = 1, **cfg: Any) -> PPO:
    """PPO that begins with the exported policy. `cfg` are settings of skrl's PPO_CFG."""
    facts, policy = read_facts(folder), load_policy(folder)
    spaces = {"observation_space": spaces_of(facts)[0], "action_space": raw_space(policy), "device": "cpu"}
    kind = StateCategoricals if policy.choices else StateCategorical if policy.is_discrete else StateGaussian
    models = {"policy": kind(policy, **spaces), "value": Value(load_value(folder), **spaces)}
    quiet = {"write_interval": 0, "checkpoint_interval": 0}
    tuned: dict[str, Any] = {"rollouts": ROLLOUTS, "learning_epochs": 5, "mini_batches": 4, "learning_rate": 1e-4}
    tuned |= {"ratio_clip": 0.1, "gae_lambda": 0.9, "kl_threshold": 0.03, "experiment": quiet}
    memory = RandomMemory(memory_size=ROLLOUTS, num_envs=num_envs, device="cpu")
    return PPO(models=models, memory=memory, **spaces, cfg=tuned | cfg)


def make_environments(folder: Path = FOLDER, count: int = 16) -> RawActions:
    """Copies of the environment of policy.json."""
    return RawActions(make_envs(read_facts(folder), count), load_policy(folder))


def set_actor_learning(agent: PPO, learns: bool) -> None:
    """Off: only the critic learns. A fresh one would spoil the policy."""
    for parameter in agent.policy.parameters():
        parameter.requires_grad_(learns)
