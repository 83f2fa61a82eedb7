"""Models and environments for rsl_rl (5.x) that hold what kmyriad trained exactly.

rsl_rl's own normaliser adds 0.01 to the deviation and goes on learning; this one is frozen. rsl_rl hands raw actions
to the environment, so the environment squashes them (`Environments`).
"""

from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import Tensor

from kmyriad.exporters.carried.policy import (
    FOLDER,
    FRESH_CRITIC,
    Inputs,
    Policy,
    copy_layers,
    load_policy,
    load_value,
    make_envs,
    read_facts,
)

GROUP = "policy"
"""The observations' group. Isaac Lab has the same."""


class FramedModel(MLPModel):
    """rsl_rl's MLP behind frozen inputs: actor and critic."""

    def __init__(self, *arguments: Any, framed: bool, limit: float | None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.obs_normalizer = Inputs(self.obs_dim, framed, limit)


class Environments(VecEnv):
    """A Gymnasium vector environment (same-step autoreset) that takes raw actions (n, a)."""

    def __init__(self, envs: Any, policy: Policy, horizon: int) -> None:
        self.envs, self.policy = envs, policy
        self.num_envs, self.num_actions = envs.num_envs, envs.single_action_space.shape[0]
        self.max_episode_length, self.device = horizon, "cpu"
        self.cfg: dict[str, Any] = {}
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        self.successes: list[bool] = []
        """Of the episodes that ended, where the environment tells."""
        self._see(envs.reset(seed=0)[0])

    def get_observations(self) -> TensorDict:
        return TensorDict({GROUP: self._observations}, batch_size=[self.num_envs])

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards (n,), dones (n,) and, in the extras, which episodes ended for lack of time."""
        raw = actions.detach().cpu()
        observations, rewards, terminated, truncated, info = self.envs.step(self.policy.to_environment(raw).numpy())
        self._see(observations)
        dones = torch.as_tensor(terminated | truncated)
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf + 1)
        self.successes += successes_of(info, terminated | truncated)
        extras = {"time_outs": torch.as_tensor(truncated & ~terminated)}
        return self.get_observations(), torch.as_tensor(rewards, dtype=torch.float32), dones.long(), extras

    def _see(self, observations: Any) -> None:
        self._observations = torch.as_tensor(observations, dtype=torch.float32)


class Blank(VecEnv):
    """Stands in where a runner is made only to write or read its file."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = 1, facts["actions"], facts["horizon"]
        self.device = "cpu"
        self.cfg: dict[str, Any] = {}
        self.episode_length_buf = torch.zeros(1, dtype=torch.long)
        self._size = facts["observation_size"]

    def get_observations(self) -> TensorDict:
        return TensorDict({GROUP: torch.zeros(1, self._size)}, batch_size=[1])

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        raise NotImplementedError("this environment only has sizes")


def successes_of(info: dict[str, Any], ended: Any) -> list[bool]:
    """Whether the episodes that ended in a step succeeded; empty where the environment does not tell."""
    final = info.get("final_info", info)
    success = final.get("success", final.get("is_success"))
    return [] if success is None else [bool(success[index]) for index in range(len(ended)) if ended[index]]


def train_cfg(folder: Path = FOLDER) -> dict[str, Any]:
    """A configuration of `OnPolicyRunner`; take `actor`, `critic` and `obs_groups` into your own."""
    facts = read_facts(folder)
    model = {
        "class_name": f"{__name__}:FramedModel",
        "activation": facts["activation"],
        "framed": facts["framed"],
        "limit": facts["limit"],
    }
    gaussian = {
        "class_name": "rsl_rl.modules.distribution:HeteroscedasticGaussianDistribution",
        "std_type": "log",
        "std_range": facts["std_range"],
    }
    return {
        "num_steps_per_env": 64,
        "save_interval": 50,
        "obs_groups": {"actor": [GROUP], "critic": [GROUP]},
        "actor": model | {"hidden_dims": facts["hidden"], "distribution_cfg": gaussian},
        "critic": model | {"hidden_dims": list(facts["critic_hidden"] or FRESH_CRITIC)},
        "algorithm": {
            "class_name": "PPO",
            "learning_rate": 1e-4,
            "schedule": "adaptive",
            "desired_kl": 0.01,
            "entropy_coef": 0.0,
            "clip_param": 0.1,
            "lam": 0.9,
        },
    }


def make_runner(folder: Path = FOLDER, env: VecEnv | None = None, log_dir: str | None = None) -> OnPolicyRunner:
    """A runner that begins with the exported policy."""
    runner = OnPolicyRunner(env or Blank(read_facts(folder)), train_cfg(folder), log_dir, device="cpu")
    policy, value = load_policy(folder), load_value(folder)
    for theirs, ours in ((runner.alg.actor, policy), (runner.alg.critic, value)):
        theirs.obs_normalizer.load_state_dict(ours.inputs.state_dict())
        copy_layers(ours.layers, theirs.mlp)
    return runner


def make_environments(folder: Path = FOLDER, count: int = 16) -> Environments:
    """Copies of the environment of policy.json."""
    facts = read_facts(folder)
    return Environments(make_envs(facts, count), load_policy(folder), facts["horizon"])


def set_actor_learning(runner: OnPolicyRunner, learns: bool) -> None:
    """Off: only the critic learns. A fresh one would spoil the policy."""
    for parameter in runner.alg.actor.parameters():
        parameter.requires_grad_(learns)
