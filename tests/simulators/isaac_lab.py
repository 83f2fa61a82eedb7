"""Isaac Lab without Isaac Sim: stand-ins with what its environments of version 2.3.2 have and our adapter may use.

Written from the published `isaaclab/envs/manager_based_rl_env.py`, `direct_rl_env.py`, `scene/interactive_scene.py` and
`assets/articulation`: a step counts, ends episodes, resets those within and only then observes. The robots are points
that go where they are told to, on a grid of 10 m.
"""

from types import SimpleNamespace

import gymnasium
import numpy as np
import torch

EDGE = 0.55
"""Episodes end for good beyond this, in metres from a replica's origin along x."""


class StandIn(gymnasium.Env):
    """What both kinds of environments have."""

    def __init__(self, num_envs, device="cpu", limit=10, has_time_out=True):
        self.device, self._has_time_out = device, has_time_out
        self.cfg = SimpleNamespace(episode_length_s=limit * 0.1, decimation=4)
        self.step_dt, self.max_episode_length = 0.1, limit
        along = 10.0 * torch.arange(num_envs, dtype=torch.float32, device=device)
        origins = torch.stack([along, along, torch.zeros_like(along)], dim=1)
        self._begin = torch.stack([along, along, torch.full_like(along, 0.4)], dim=1)
        data = SimpleNamespace(root_link_pos_w=origins.clone())
        robot = SimpleNamespace(data=data, is_fixed_base=False)
        self.scene = SimpleNamespace(num_envs=num_envs, env_origins=origins, articulations={"robot": robot})
        self.sim = SimpleNamespace(forward=lambda: None)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.single_action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.extras = {}

    @property
    def num_envs(self):
        return self.scene.num_envs

    def reset(self, seed=None, options=None):
        np.random.seed(seed)  # noqa: NPY002  (it seeds everything, and NumPy takes 32 bits)
        self._reset_idx(torch.arange(self.num_envs, device=self.device))
        return self._observe(), self.extras

    def step(self, action):
        self._places()[:, :2] += 0.1 * action
        self.episode_length_buf += 1
        terminated = self._local()[:, 0].abs() > EDGE
        time_out = (self.episode_length_buf >= self.max_episode_length) & self._has_time_out
        reward = self._local()[:, 0].clone()
        ids = (terminated | time_out).nonzero(as_tuple=False).squeeze(-1)
        if len(ids) > 0:
            self._reset_idx(ids)
        return self._observe(), reward, terminated, time_out, self.extras

    def close(self):
        pass

    def _places(self):
        return self.scene.articulations["robot"].data.root_link_pos_w

    def _local(self):
        return self._places() - self.scene.env_origins

    def _reset_idx(self, env_ids):
        self._places()[env_ids] = self._begin[env_ids]
        self.episode_length_buf[env_ids] = 0

    def _policy(self):
        return torch.cat([self._local(), self.episode_length_buf[:, None].float()], dim=1)


class Direct(StandIn):
    """As `DirectRLEnv`: it observes by a method of its own."""

    def _get_observations(self):
        return {"policy": self._policy()}

    def _observe(self):
        return self._get_observations()


class Managed(StandIn):
    """As `ManagerBasedRLEnv`: a manager observes, in groups; with `parts`, the policies' group is not concatenated."""

    def __init__(self, *arguments, parts=False, groups=("policy", "critic"), **settings):
        super().__init__(*arguments, **settings)
        self._parts, self._groups = parts, groups
        self.observation_manager = SimpleNamespace(compute_group=self._compute_group)

    def _compute_group(self, group_name, update_history=False):
        values = self._policy() if group_name == self._groups[0] else torch.zeros(self.num_envs, 7, device=self.device)
        return {"place": values[:, :3], "steps": values[:, 3:]} if self._parts else values

    def _observe(self):
        return {name: self._compute_group(name, update_history=True) for name in self._groups}


class Wrapped:
    """As `RslRlVecEnvWrapper`: terminated and truncated have become one."""

    def __init__(self, num_envs):
        self.unwrapped = Managed(num_envs)

    def reset(self, seed=None):
        return self.unwrapped.reset(seed=seed)

    def step(self, action):
        observation, reward, terminated, truncated, extras = self.unwrapped.step(action)
        return observation, reward, terminated | truncated, extras

    def close(self):
        pass


def direct(num_envs, device="cpu", limit: int = 10):
    return Direct(num_envs, device, limit)


def managed(num_envs, device="cpu", limit: int = 10):
    return Managed(num_envs, device, limit)


def wrapped(num_envs):
    return Wrapped(num_envs)


def too_many(num_envs):
    return Managed(num_envs + 1)


def something_else(num_envs):
    return object()
