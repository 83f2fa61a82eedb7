"""Replicas of any environment, as training sees them: observations in, features out, episodes restarted by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from kmyriad.envs import IDS, find_id
from kmyriad.envs.symmetry import Mirror, Turning
from kmyriad.envs.vector_env import MujocoVectorEnv, SimulatorState
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, nearest_name

POSITION = ("x", "y")


@dataclass(frozen=True)
class Arrival:
    """Where a step led, before ended episodes start again."""

    observation: NDArray[np.float32]
    """(n, d)."""
    reward: NDArray[np.float32]
    """(n,), the environment's own; pretraining never looks at it."""
    features: NDArray[np.float32]
    """(n, f), the entropy features."""
    xy: NDArray[np.float32] | None
    """(n, 2), or None where the world has no x and y."""
    ended: NDArray[np.bool_]
    """(n,), the episode is over."""
    terminated: NDArray[np.bool_]
    """(n,), it is over for good, not just for lack of time: what follows is worth nothing."""
    success: NDArray[np.bool_]
    """(n,), the task was solved in this episode, as the environment's `info["success"]` (or `is_success`) tells."""
    sound: NDArray[np.bool_]
    """(n,), False from the step on in which a replica's physics broke (or its observation was not finite)."""


class Replicas:
    """n copies of an environment.

    `observation` (n, d) is what the policies see next, `age` (n,) how many steps the episodes have had. With `patience`
    episodes end after so many, if they have not before.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any], features: Sequence[str] = ()) -> None:
        self.env = env
        self.count = env.num_envs
        self.action_space = env.single_action_space
        space = env.single_observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise UsageError(f"observation space {space} is not supported; it must be a one-dimensional Box")
        self.observation_size = int(space.shape[0])
        self.features = tuple(features) or _default_features(env, self.observation_size)
        self.has_xy = isinstance(env, MujocoVectorEnv) and all(name in env.world.features for name in POSITION)
        self.observation = np.zeros((self.count, self.observation_size), np.float32)
        self.age = np.zeros(self.count, np.int64)
        self.patience: int | None = None
        self._broken = np.zeros(self.count, bool)
        self._columns = [] if isinstance(env, MujocoVectorEnv) else self._parse_columns()
        self.feature_size = self._read(self.features).shape[1]  # a misspelt name is told now, not in the first epoch

    @property
    def cell(self) -> float:
        """Side of a coverage cell, metres: the radius of the world's goals."""
        return self.env.goal_radius if isinstance(self.env, MujocoVectorEnv) else 1.0

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """Of x and of y, where these are the first two features and the robot is its own mirror image; else none."""
        world = self._world_in_place
        return () if world is None else world.mirrors

    @property
    def turning(self) -> Turning | None:
        """What is seen otherwise in a turned world, where x and y are the first two features; else None."""
        world = self._world_in_place
        return None if world is None else world.turning

    @property
    def _world_in_place(self) -> World | None:
        """Our world, where x and y are the first two features: symmetries are about these."""
        is_ours = isinstance(self.env, MujocoVectorEnv) and self.features[:2] == POSITION
        return self._engine().world if is_ours else None

    def start(self, seed: int) -> None:
        """Reset every replica."""
        self._receive(self.env.reset(seed=seed)[0])
        self.age[:], self._broken[:] = 0, False

    def step(self, actions: NDArray[Any]) -> Arrival:
        """One control step of every replica; episodes that end start again at once."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        self._receive(observation)
        self.age += 1
        self._broken |= info.get("diverged", False) | ~np.isfinite(self.observation).all(axis=1)
        ended = terminated | truncated
        if self.patience is not None:
            ended |= self.age >= self.patience
        xy = self._read(POSITION) if self.has_xy else None
        reached = np.where(self._broken[:, None], 0, self.observation) if self._broken.any() else self.observation
        arrival = Arrival(
            reached,
            reward.astype(np.float32),
            self._read(self.features),
            xy,
            ended,
            terminated,
            np.asarray(info.get("success", info.get("is_success", np.zeros(self.count))), bool),
            ~self._broken,
        )
        if ended.any():
            self._receive(self.env.reset(options={"reset_mask": ended})[0])
            self.age[ended], self._broken[ended] = 0, False
        if self._broken.any():
            self.observation[self._broken] = np.nan_to_num(self.observation[self._broken])
        return arrival

    @property
    def can_be_saved(self) -> bool:
        """Whether the replicas can be put back to a state in the middle of an episode."""
        return isinstance(self.env, MujocoVectorEnv)

    def stagger(self, per_agent: int, segment: int) -> None:
        """Give each agent's replicas ages spread evenly over an episode; the first episodes are shorter.

        Where few replicas leave gaps longer than a segment, agents fill them in turn: every segment has all ages.
        """
        state = self._engine().get_state()
        longest = self.patience or self._engine().world.horizon
        agent, replica = np.divmod(np.arange(self.count), per_agent)
        segments_between = max(longest // per_agent // segment, 1)
        state.age[:] = replica * longest // per_agent + agent % segments_between * segment
        self.set_state(state)

    def get_state(self) -> SimulatorState:
        """A copy of the simulator's state."""
        return self._engine().get_state()

    def set_state(self, state: SimulatorState) -> None:
        """Go back to a saved state, exactly."""
        self._engine().set_state(state)
        self._receive(state.observation)
        self.age[:], self._broken[:] = state.age, state.diverged

    def close(self) -> None:
        self.env.close()

    def _engine(self) -> MujocoVectorEnv:
        assert isinstance(self.env, MujocoVectorEnv)
        return self.env

    def _receive(self, observation: NDArray[Any]) -> None:
        self.observation = np.asarray(observation, np.float32)

    def _read(self, names: Sequence[str]) -> NDArray[np.float32]:
        if isinstance(self.env, MujocoVectorEnv):
            return self.env.read_features(names)
        return self.observation[:, self._columns]

    def _parse_columns(self) -> list[int]:
        columns = []
        for name in self.features:
            if not name.isdecimal() or int(name) >= self.observation_size:
                known = [str(index) for index in range(self.observation_size)]
                raise UsageError(f"unknown feature {name!r}{nearest_name(name, known)} (indices of the observation)")
            columns.append(int(name))
        return columns


def _default_features(env: gymnasium.vector.VectorEnv[Any, Any, Any], observation_size: int) -> tuple[str, ...]:
    """The Ant's x y z, PointMaze's x y, and everything that any other environment shows."""
    if isinstance(env, MujocoVectorEnv):
        return tuple(name for name in ("x", "y", "z") if name in env.world.features)
    return tuple(str(index) for index in range(observation_size))


def make_replicas(
    env: str,
    count: int,
    *,
    horizon: int,
    features: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Replicas:
    """`count` replicas of a world by its short name, or of any environment registered with Gymnasium."""
    settings = dict(settings or {})
    env_id = find_id(env)
    if env_id in IDS.values():
        ours: dict[str, Any] = {"horizon": horizon, "threads": threads, "autoreset_mode": AutoresetMode.DISABLED}
        return Replicas(gymnasium.make_vec(env_id, count, **ours, **settings), features)
    vector = gymnasium.make_vec(
        env_id,
        count,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED},
        max_episode_steps=horizon,
        **settings,
    )
    return Replicas(vector, features)
