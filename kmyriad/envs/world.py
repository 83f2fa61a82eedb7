"""What an environment is made of, apart from the engine that steps it, and names for its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.arrays import Array, namespace_of
from kmyriad.envs.symmetry import Symmetry
from kmyriad.envs.terrain import Terrain
from kmyriad.errors import UsageError, nearest_name

Source = Literal["observation", "qpos", "qvel"]


@dataclass(frozen=True)
class Feature:
    """A named part of the observation, or of the simulator's positions or velocities."""

    name: str
    size: int
    unit: str
    meaning: str
    bound: float
    """Largest magnitude in a healthy simulation; a replica that goes beyond it has diverged."""
    source: Source = "observation"
    start: int = 0
    """First index within the source. Observation features are laid out one after the other by `FeatureTable`."""

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + self.size)


class FeatureTable(Mapping[str, Feature]):
    """Features by name, in order. Those of the observation come first and fill it without a gap."""

    def __init__(self, observed: Sequence[Feature], extra: Sequence[Feature] = ()) -> None:
        starts = np.cumsum([0, *(feature.size for feature in observed)])
        placed = [
            Feature(f.name, f.size, f.unit, f.meaning, f.bound, "observation", int(start))
            for f, start in zip(observed, starts[:-1], strict=True)
        ]
        self._features = {feature.name: feature for feature in (*placed, *extra)}
        self.observation_size = int(starts[-1])
        self.observation_bounds = np.concatenate([np.full(f.size, f.bound, np.float32) for f in observed])
        """(observation_size,), the largest magnitude of each number."""

    def __getitem__(self, name: str) -> Feature:
        if name not in self._features:
            raise UsageError(f"unknown feature {name!r}{nearest_name(name, self._features)}")
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __contains__(self, name: object) -> bool:
        return name in self._features

    def read(self, names: Sequence[str], sources: Mapping[Source, Array]) -> Array:
        """(n, d), the named features side by side, from `sources`: arrays (n, ...) by source."""
        if isinstance(names, str) or not names:
            raise UsageError(f"features must be a list of at least one name, such as ['x', 'y']; got {names!r}")
        parts = [sources[feature.source][:, feature.slice] for feature in map(self.__getitem__, names)]
        joined = namespace_of(parts[0]).concatenate(parts, axis=1)
        return joined.astype(np.float32, copy=False) if isinstance(joined, np.ndarray) else joined

    def as_rows(self) -> list[tuple[str, str, str, str]]:
        """(name, where, unit, meaning) of every feature, for tables in the docs and on the terminal."""
        return [
            (f.name, f"{f.source}[{f.start}:{f.start + f.size}]", f.unit, f.meaning) for f in self._features.values()
        ]


class Physics(Protocol):
    """The simulations of all replicas: `mujoco.batch.Batch`, or MuJoCo Warp's."""

    def bind(self, name: str) -> Array:
        """(n, ...), MuJoCo's array of that name (qpos, qvel, ctrl, sensordata) of every replica, to read and write."""


@runtime_checkable
class World(Protocol):
    """A robot on a terrain. `vector_env.WorldVectorEnv` steps n replicas of one; a new world implements this.

    The methods see all replicas at once (arrays of shape (n, ...), bound to the physics) and never loop over them.
    """

    @property
    def speaks_tensors(self) -> bool:
        """Whether `before_step`, `observe` and `positions` can do with torch tensors in place of NumPy arrays.

        That is what engines on a device (MuJoCo Warp) ask for. `arrays.namespace_of` makes one code serve both.
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
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Of the robot, exact ones only; looked through one after the other they give more. Most have none."""

    def initial_state(self, rng: np.random.Generator | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One replica's (qpos, qvel) at the start of an episode; `rng` is None when `has_reset_noise` is False."""

    @property
    def has_reset_noise(self) -> bool:
        """Whether `initial_state` draws from its generator."""

    def before_step(self, batch: Physics) -> None:
        """Change the state before physics runs (PointMaze clips velocities); most worlds do nothing."""

    def observe(self, batch: Physics, last_action: Array, out: Array) -> None:
        """Write every replica's observation into `out`, (n, observation_size)."""

    def positions(self, batch: Physics) -> Array:
        """(n, 3), where each robot is, for goals and cameras."""


def start_state(world: World, seed: int, episode: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(qpos, qvel) in which a replica with a seed begins its episode of that number, whatever steps it."""
    if not world.has_reset_noise:
        return world.initial_state(None)
    key = np.array([seed, episode], np.uint64)
    return world.initial_state(np.random.Generator(np.random.Philox(key=key)))


def world_spaces(world: World) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """(observation space, action space) of one replica."""
    bounds = world.features.observation_bounds
    observation_space = gymnasium.spaces.Box(-bounds, bounds, dtype=np.float32)
    return observation_space, gymnasium.spaces.Box(-1.0, 1.0, (world.model.nu,), np.float32)


def world_metadata(world: World) -> dict[str, Any]:
    """Gymnasium's metadata of an environment of `world`."""
    control_step = world.model.opt.timestep * world.decimation
    return {"render_modes": ["rgb_array"], "render_fps": round(1 / control_step)}
