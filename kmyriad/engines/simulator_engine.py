"""A GPU simulator's own batch of environments as an engine: mjlab's and Isaac Lab's, whose tensors stay where they are.

Such an environment is no Gymnasium vector environment. It has `unwrapped`, `num_envs`, `device`, `reset` and `step`,
groups of observations (`policy` or `actor` is ours), a `scene` of robots on a grid (`env_origins`) and counts the steps
of its episodes (`episode_length_buf`). Two things tell mjlab and Isaac Lab apart:

- mjlab can leave resets to us (`cfg.auto_reset`), and then tells how episodes end.
- Isaac Lab begins new episodes within the step that ends the old ones. What these ended with is read before, by
  standing in the way of `_reset_idx`; and an episode is ended by telling it that its time is up.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.engines.engine import Outcome, State
from kmyriad.engines.features import AXES, CELL, Seen, Term, columns_of, parse_terms
from kmyriad.engines.gym_engine import LARGEST_SEED
from kmyriad.engines.replica import Goal
from kmyriad.envs.plane import Feature, plane_of_features, xy_of
from kmyriad.envs.symmetry import Symmetry
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import TrainingStoppedError, UsageError, first_line

GROUPS = ("policy", "actor")
"""Observation groups for policies: Isaac Lab's name and mjlab's."""


def is_simulator(env: Any) -> bool:
    """Whether an object is such an environment."""
    base = getattr(env, "unwrapped", env)
    return all(hasattr(base, name) for name in ("num_envs", "device", "scene", "episode_length_buf", "reset", "step"))


class SimulatorEngine:
    """An `Engine` around an environment of mjlab or Isaac Lab. Its state cannot be saved: they offer no way to.

    `resets_itself` is for tests; what the environment can do decides.
    """

    speaks_tensors = True
    obeys_limit = True
    can_be_saved = False
    world: World | None = None
    simulation: WorldVectorEnv | None = None

    def __init__(
        self, env: Any, names: Sequence[str], numbers: NDArray[np.int64], *, resets_itself: bool | None = None
    ) -> None:
        self._env, self._base, self._first = env, env.unwrapped, int(numbers[0])
        self.count, self.device = int(self._base.num_envs), str(self._base.device)
        leaves_it_to_us = getattr(self._base.cfg, "auto_reset", None) is not None
        self._resets_itself = not leaves_it_to_us if resets_itself is None else resets_itself
        self._ended: list[tuple[Tensor, Tensor]] | None = None
        """During a step: observations (n, d) and places (n, 3) just before its resets, if there are any."""
        if self._resets_itself:
            self._reset_idx = self._base._reset_idx
            self._base._reset_idx = self._before_reset
        else:
            self._base.cfg.auto_reset = False

        self.action_space: gymnasium.Space[Any] = _box(self._base.single_action_space)
        self._robot = _robot_of(self._base.scene)
        observation, _ = env.reset(seed=0)
        self._group = _group_of(observation)
        seen = self._flat(observation)
        self.observation_size = seen.shape[1]
        limits = np.full(self.observation_size, np.inf, np.float32)
        self.observation_space: gymnasium.spaces.Box = gymnasium.spaces.Box(-limits, limits)
        first = seen[0].cpu().numpy()
        self._terms = parse_terms(names, self.observation_space, Seen(first, first, {}, None), self._roots())
        for term in self._terms:
            if term.kind not in ("observation", "qpos"):
                raise UsageError(f"feature {term.name!r} cannot be read from this simulator; use x y z or columns")
        self.features = tuple(feature for term in self._terms for feature in term.features)
        self.columns = columns_of(self._terms)
        self.symmetries: tuple[Symmetry, ...] = tuple(getattr(self._base, "symmetries", ()))
        begin = self._read(seen, self._places())[0].cpu().numpy()
        self.plane = plane_of_features(self.features, np.nan_to_num(begin), float(self._base.step_dt))
        self._goal: Goal | None = None
        self.tells_success = False
        self._solved = torch.zeros(self.count, dtype=torch.bool, device=self.device)
        self._obeyed = False
        """Whether an episode has ended when it was told to."""

    def aim(self, goal: Goal) -> None:
        """Give all replicas a goal: a point in the features."""
        if goal.ends and self._resets_itself:
            raise UsageError(
                "this simulator resets its replicas itself, so that episodes cannot stop at a goal; use"
                " --no-stop-at-goal"
            )
        self._goal, self.tells_success = goal, True

    def start(self, seed: int) -> Tensor:
        self._solved[:] = False
        return self._flat(self._call(self._env.reset, seed=(seed + self._first) % LARGEST_SEED)[0])

    def step(self, actions: Tensor, last: Tensor) -> Outcome:
        if self._resets_itself:  # the step before its time is up
            self._base.episode_length_buf.masked_fill_(last, self._base.max_episode_length - 1)
        (observation, reward, terminated, truncated, _), endings = self._advance(actions)
        following = reached = self._flat(observation)
        places = self._places()
        terminated, done = terminated.bool(), (terminated | truncated).bool()
        for ended, there in endings:
            reached, places = torch.where(done[:, None], ended, reached), torch.where(done[:, None], there, places)
        features = self._read(reached, places)
        if self._goal is not None:
            success = self._goal.distance(features) <= 1
            self._solved |= success
            reward, terminated = success.float(), terminated | (success & self._goal.ends)
            done = done | terminated
        if self._resets_itself:
            self._check_limit(last, done)
        else:
            done = done | last
            following = self._reset(done, reached)
        solved = self._solved.clone() if self.tells_success else None
        self._solved &= ~done
        broken = ~reached.isfinite().all(dim=1)
        return Outcome(reached, following, features, xy_of(features), reward.float(), terminated, done, solved, broken)

    def get_state(self) -> State | None:
        return None

    def set_state(self, state: State) -> bool:
        return False

    def render(self) -> list[NDArray[np.uint8]]:
        raise UsageError("a simulator's environments draw no picture of each replica; use its own viewer")

    def close(self) -> None:
        self._env.close()

    def _advance(self, actions: Tensor) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
        """(what the environment's step gave, what was seen just before its resets: at most one look)."""
        looks: list[tuple[Tensor, Tensor]] = []
        self._ended = looks
        gave = self._call(self._env.step, actions)
        self._ended = None
        if len(gave) != 5:
            raise UsageError(
                f"the environment's step gave {len(gave)} values instead of observation, reward, terminated, truncated"
                " and info; give the environment itself, not a library's wrapper of it"
            )
        return gave, looks

    def _before_reset(self, env_ids: Any) -> Any:
        """Within a step look where episodes ended; then let the environment reset its replicas `env_ids`."""
        if self._ended is not None:
            self._base.sim.forward()  # or what follows from positions and velocities may be of the step before
            manager = getattr(self._base, "observation_manager", None)
            if manager is None:  # Isaac Lab's direct environments
                observation = self._base._get_observations()
            else:
                observation = {self._group: manager.compute_group(self._group)}
            self._ended.append((self._flat(observation), self._places()))
        return self._reset_idx(env_ids)

    def _reset(self, done: Tensor, reached: Tensor) -> Tensor:
        """(n, d), what is seen next, after new episodes have begun where old ones are `done` (n,)."""
        ids = done.nonzero().squeeze(-1)
        if not len(ids):
            return reached
        return torch.where(done[:, None], self._flat(self._call(self._base.reset, env_ids=ids)[0]), reached)

    def _check_limit(self, last: Tensor, done: Tensor) -> None:
        """Once: episodes whose time is up must end."""
        if self._obeyed or not bool(last.any()):
            return
        if bool((last & ~done).any()):
            raise TrainingStoppedError(
                "the environment's episodes do not end when their time is up (max_episode_length); give it a"
                " termination for that, such as mdp.time_out"
            )
        self._obeyed = True

    def _call(self, function: Any, *arguments: Any, **settings: Any) -> Any:
        try:
            return function(*arguments, **settings)
        except Exception as error:  # what a simulator raises is anyone's guess
            raise TrainingStoppedError(
                f"the environment's {function.__name__} raised {type(error).__name__}: {first_line(error)}; mend it and"
                " resume from the last checkpoint"
            ) from error

    def _flat(self, observation: Any) -> Tensor:
        """(n, d), a copy of the policies' group; the parts of one that is not concatenated side by side."""
        group = observation if self._group is None else observation[self._group]
        parts = list(group.values()) if isinstance(group, dict) else [group]
        return torch.cat([part.reshape(self.count, -1).float() for part in parts], dim=1)

    def _roots(self) -> list[Term]:
        """x, y and z of the robot, where it moves about."""
        if self._robot is None:
            return []
        axes = [(axis, Feature(axis, "m", 1.0, CELL)) for axis in AXES]
        return [Term(name, "qpos", columns=(place,), features=(one,)) for place, (name, one) in enumerate(axes)]

    def _places(self) -> Tensor:
        """(n, 3), where the robots are, each seen from its replica's own origin; zeros where none moves about."""
        if self._robot is None:
            return torch.zeros(self.count, 3, device=self.device)
        return (self._robot.data.root_link_pos_w - self._base.scene.env_origins).float()

    def _read(self, observation: Tensor, places: Tensor) -> Tensor:
        """(n, f), the features."""
        parts = [(observation if term.kind == "observation" else places)[:, term.where] for term in self._terms]
        return torch.cat(parts, dim=1)


def _box(space: Any) -> gymnasium.spaces.Box:
    """The action space of one replica: Gymnasium's, whoever's it is."""
    low, high = (np.broadcast_to(np.asarray(limit, np.float32), space.shape) for limit in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def _robot_of(scene: Any) -> Any:
    """The first robot that moves about, None if all are bolted down. Isaac Lab calls them articulations."""
    robots = getattr(scene, "articulations", None) or getattr(scene, "entities", {})
    return next((robot for robot in robots.values() if not robot.is_fixed_base), None)


def _group_of(observation: Any) -> str | None:
    """The name of the policies' observation group; None where observations are not in groups."""
    if isinstance(observation, Tensor):
        return None
    known = [name for name in GROUPS if name in observation] or list(observation)
    if len(known) != 1:
        raise UsageError(
            f"the environment observes the groups {', '.join(observation)}, and none is called policy or actor; give"
            " one of them that name"
        )
    return str(known[0])
