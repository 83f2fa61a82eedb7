"""One replica behind Gymnasium's single-environment interface."""

from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from kmyriad.checks import Between
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World, world_metadata, world_spaces


class WorldEnv(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """A vector environment of one, so that both give the same numbers. See `WorldVectorEnv` for what they mean."""

    def __init__(
        self,
        world: World,
        *,
        goal: ArrayLike | None = None,
        goal_radius: Annotated[float, Between(1e-9, 1e9)] | None = None,
        ends_at_goal: bool = False,
        render_mode: str | None = None,
        camera: str = "follow",
        width: Annotated[int, Between(1, 8192)] = 480,
        height: Annotated[int, Between(1, 8192)] = 480,
    ) -> None:
        self.vector = WorldVectorEnv(
            world,
            1,
            goal=goal,
            goal_radius=goal_radius,
            ends_at_goal=ends_at_goal,
            threads=1,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
            camera=camera,
            width=width,
            height=height,
        )
        self.world = world
        self.metadata = world_metadata(world)
        self.observation_space, self.action_space = world_spaces(world)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self.vector.reset(seed=seed)
        return observation[0], _first(info)

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> NDArray[np.uint8] | None:
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self.vector.close()

    def set_goal(self, goal: ArrayLike | None) -> None:
        """Give the robot a goal (x, y) or (x, y, z); None takes it away."""
        self.vector.set_goal(goal)

    def read_features(self, names: Sequence[str]) -> NDArray[np.float32]:
        """(d,), the named features of the current state."""
        return self.vector.read_features(names)[0]

    def terrain_height(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Height of the ground (walls included) at points of any shape."""
        return self.vector.terrain_height(x, y)

    @property
    def wall_map(self) -> NDArray[np.bool_] | None:
        """(rows, columns), True where there is a wall; None in a world without walls."""
        return self.vector.wall_map


def _first(info: dict[str, Any]) -> dict[str, bool]:
    return {key: bool(value[0]) for key, value in info.items() if not key.startswith("_")}
