"""What an environment is made of, apart from the engine that steps it."""

from typing import Protocol

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from kmyriad.envs.features import FeatureTable
from kmyriad.envs.mirrors import Mirror
from kmyriad.envs.terrains import Terrain
from kmyriad.envs.turning import Turning


class World(Protocol):
    """A robot on a terrain. `mujoco_vector.MujocoVectorEnv` steps n replicas of one; a new world implements this.

    The methods see all replicas at once (arrays of shape (n, ...), bound to the batch) and never loop over them.
    """

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model; actuators take controls in [-1, 1]."""

    @property
    def terrain(self) -> Terrain: ...

    @property
    def features(self) -> FeatureTable:
        """Names of what `observe` writes, and of further features of qpos and qvel."""

    @property
    def decimation(self) -> int:
        """Physics steps per control step."""

    @property
    def horizon(self) -> int:
        """Control steps per episode."""

    @property
    def goal_radius(self) -> float:
        """Default radius of the goal task, metres."""

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The robot where x has the other sign, and where y has; none unless it is its own mirror image."""

    @property
    def turning(self) -> Turning | None:
        """What the robot sees otherwise where the world is turned; None unless its actions are its own frame's."""

    def initial_state(self, rng: np.random.Generator | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One replica's (qpos, qvel) at the start of an episode; `rng` is None when `has_reset_noise` is False."""

    @property
    def has_reset_noise(self) -> bool:
        """Whether `initial_state` draws from its generator."""

    def before_step(self, batch: Batch) -> None:
        """Change the state before physics runs (PointMaze clips velocities); most worlds do nothing."""

    def observe(self, batch: Batch, last_action: NDArray[np.float64], out: NDArray[np.float32]) -> None:
        """Write every replica's observation into `out`, (n, observation_size)."""

    def positions(self, batch: Batch) -> NDArray[np.float64]:
        """(n, 3), where each robot is, for goals and cameras."""
