"""The worlds as an engine: stepped by `mujoco.batch`, saved exactly by the simulator's state."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.engines.engine import Outcome, State
from kmyriad.envs.plane import features_of_world, plane_of_world, xy_of
from kmyriad.envs.vector_env import SimulatorState, WorldVectorEnv
from kmyriad.envs.world import World, world_spaces

POSITION = ("x", "y")


class WorldEngine:
    """An `Engine` of replicas of a world."""

    device = "cpu"
    speaks_tensors = False
    obeys_limit = True
    can_be_saved = True

    def __init__(self, env: WorldVectorEnv, features: Sequence[str], numbers: NDArray[np.int64]) -> None:
        self._env, self.count, self._numbers = env, env.num_envs, numbers.tolist()
        self.simulation: WorldVectorEnv | None = env
        self.world: World | None = env.world
        self.action_space = env.single_action_space
        self.observation_size = env.world.features.observation_size
        self.observation_space = world_spaces(env.world)[0]
        self._names = tuple(features)
        env.read_features(self._names)  # a misspelt name is told now
        self.features, self.columns = features_of_world(env.world, features)
        self.symmetries = env.world.symmetries
        self._has_xy = all(name in env.world.features for name in POSITION)
        self.plane = plane_of_world(env.world)
        self.tells_success = env.has_goal

    def start(self, seed: int) -> NDArray[np.float32]:
        return self._env.reset(seed=[(seed + number) % 2**64 for number in self._numbers])[0]

    def step(self, actions: NDArray[Any], last: NDArray[np.bool_]) -> Outcome:
        observation, reward, terminated, truncated, info = self._env.step(actions)
        done = terminated | truncated | last
        features = self._env.read_features(self._names)
        xy = self._env.read_features(POSITION) if self._has_xy else xy_of(features)
        following = self._env.reset(options={"reset_mask": done})[0] if done.any() else observation
        success = info["success"] if self.tells_success else None
        return Outcome(observation, following, features, xy, reward, terminated, done, success, info["diverged"])

    def get_state(self) -> State:
        return dataclasses.asdict(self._env.get_state())

    def set_state(self, state: State) -> bool:
        known = [field.name for field in dataclasses.fields(SimulatorState)]
        self._env.set_state(SimulatorState(**{name: state[name] for name in known}))
        return True

    def render(self) -> list[NDArray[np.uint8]]:
        return [self._env.render_replica(index) for index in range(self.count)]

    def close(self) -> None:
        self._env.close()
