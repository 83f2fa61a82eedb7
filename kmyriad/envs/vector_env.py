"""The engine: n replicas of one world, stepped together on CPU threads by `mujoco.batch`."""

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from kmyriad.checks import Between
from kmyriad.envs.goal import distance_to_goals, parse_goals
from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.rendering import WorldRenderer
from kmyriad.envs.world import Source, World, start_state, world_metadata, world_spaces
from kmyriad.errors import UsageError

DIVERGED_WARNINGS = [
    int(warning)
    for warning in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
    )
]


@dataclass(frozen=True)
class SimulatorState:
    """Everything that the future of n replicas depends on, one row a replica. Restoring it is exact to the bit."""

    physics: NDArray[np.float64]
    """(n, nstate), MuJoCo's integration state: positions, velocities, controls, warm start."""
    observation: NDArray[np.float32]
    """(n, observation size)."""
    last_action: NDArray[np.float64]
    """(n, action size)."""
    age: NDArray[np.int64]
    """(n,), control steps since the episode began."""
    seed: NDArray[np.uint64]
    """(n,); with `episode`, the key of the reset noise."""
    episode: NDArray[np.int64]
    """(n,), resets since the seed was given."""
    success: NDArray[np.bool_]
    """(n,), whether the goal was entered in this episode."""
    diverged: NDArray[np.bool_]
    """(n,), whether the simulation broke in this episode: the replica is frozen at its last valid state."""
    needs_reset: NDArray[np.bool_]
    """(n,), whether the episode is over."""


class WorldVectorEnv(gymnasium.vector.VectorEnv[NDArray[np.float32], NDArray[np.float32], NDArray[Any]]):
    """A Gymnasium vector environment of `num_envs` replicas of `world`.

    Actions: (n, a) floats, clipped to [-1, 1]. Observations: (n, d) float32, named by `world.features`.
    Reward: 1 on every step within `goal_radius` of the goal, else 0. Episodes are truncated at the horizon, and
    terminated only with `ends_at_goal`: by the step that enters the goal. `info["success"]`: the goal was entered in
    this episode. `info["diverged"]`: the physics of this replica broke; it stays where it last was valid, with reward
    0, until its episode ends.
    """

    _renderer: WorldRenderer | None = None

    def __init__(
        self,
        world: World,
        num_envs: int,
        *,
        goal: ArrayLike | None = None,
        goal_radius: Annotated[float, Between(1e-9, 1e9)] | None = None,
        ends_at_goal: bool = False,
        threads: Annotated[int, Between(1, 4096)] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        camera: str = "follow",
        width: Annotated[int, Between(1, 8192)] = 480,
        height: Annotated[int, Between(1, 8192)] = 480,
    ) -> None:
        _need_batch()
        if num_envs < 1:
            raise UsageError(f"num_envs must be at least 1; got {num_envs}")
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1 (or None for all cores); got {threads}")
        self.world = world
        self.num_envs = num_envs
        self.goal_radius = world.goal_radius if goal_radius is None else goal_radius
        if not self.goal_radius > 0:
            raise UsageError(f"goal_radius must be above 0 metres; got {goal_radius}")
        self.ends_at_goal = ends_at_goal
        self.set_goal(goal)
        self._autoreset_mode = _parse_autoreset_mode(autoreset_mode)
        self.metadata = world_metadata(world) | {"autoreset_mode": self._autoreset_mode}
        self.single_observation_space, self.single_action_space = world_spaces(world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.render_mode = render_mode
        self._renderer = WorldRenderer(world, render_mode, camera, width, height)

        self._settings = {
            "goal_radius": goal_radius,
            "ends_at_goal": ends_at_goal,
            "threads": threads,
            "autoreset_mode": self._autoreset_mode,
            "render_mode": render_mode,
            "camera": camera,
            "width": width,
            "height": height,
        }
        self._open_batch()
        size = world.features.observation_size
        self._observation = np.zeros((num_envs, size), np.float32)
        self._observation_before = np.zeros((num_envs, size), np.float32)
        self._last_action = np.zeros(self._ctrl.shape)
        self._age = np.zeros(num_envs, np.int64)
        self._seed = np.zeros(num_envs, np.uint64)
        self._episode = np.zeros(num_envs, np.int64)
        self._success = np.zeros(num_envs, bool)
        self._diverged = np.zeros(num_envs, bool)
        self._needs_reset = np.ones(num_envs, bool)
        self._was_reset = False

    def _open_batch(self) -> None:
        """Start the engine, whose threads are those of one process."""
        from mujoco.batch import Batch, SimulationError  # late: other people's environments do without

        self._simulation_error = SimulationError
        self._batch = Batch(self.world.model, self.num_envs, nthread=self._settings["threads"] or 0)
        self._was_forked = False
        _OPEN.add(self)
        self._ctrl = self._batch.bind("ctrl")
        self._qpos, self._qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        if self.world.model.nsensor:
            self._batch.bind("sensordata")
        self._physics_before = np.empty_like(self._batch.state)

    def _after_fork(self) -> None:
        """In a forked process: start threads of its own, from the same state."""
        physics = self._batch.state.copy()
        self._open_batch()
        self._batch.state[...] = physics

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the same future, to the bit."""
        state = self.get_state() if self._was_reset else None
        return _restored, (self.world, self.num_envs, self._settings, self._goals, state)

    def get_state(self) -> SimulatorState:
        """A copy of all replicas' state."""
        return SimulatorState(**{name: array.copy() for name, array in self._state_arrays().items()})

    def set_state(self, state: SimulatorState) -> None:
        """Go back to `state`: whatever is done next gives, to the bit, what it would have given then."""
        for name, array in self._state_arrays().items():
            value = getattr(state, name)
            if value.shape != array.shape:
                raise UsageError(f"state.{name} must have shape {array.shape} for this environment; got {value.shape}")
            array[...] = value
        self._was_reset = True

    def _state_arrays(self) -> dict[str, NDArray[Any]]:
        live = {
            field.name: getattr(self, f"_{field.name}") for field in fields(SimulatorState) if field.name != "physics"
        }
        return {"physics": self._batch.state, **live}

    def read_features(self, names: Sequence[str]) -> NDArray[np.float32]:
        """(n, d), the named features of every replica's current state, such as ["x", "y", "quaternion"]."""
        sources: dict[Source, NDArray[Any]] = {"observation": self._observation, "qpos": self._qpos, "qvel": self._qvel}
        return self.world.features.read(names, sources)

    @property
    def positions(self) -> NDArray[np.float64]:
        """(n, 3), where the robots are."""
        return self.world.positions(self._batch).copy()

    def terrain_height(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Height of the ground (walls included) at points of any shape."""
        return self.world.terrain.height(x, y)

    @property
    def wall_map(self) -> NDArray[np.bool_] | None:
        """(rows, columns), True where there is a wall, row 0 at the largest y; None in a world without walls."""
        return None if self.world.terrain.walls is None else self.world.terrain.walls.cells.copy()

    @property
    def has_goal(self) -> bool:
        return self._goals is not None

    def set_goal(self, goal: ArrayLike | None) -> None:
        """Give all replicas one goal, or each its own; None takes the goal away."""
        self._goals = parse_goals(goal, self.num_envs, self.world.terrain, self.goal_radius)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start new episodes: everywhere, or where `options["reset_mask"]` is True.

        Replica i with seed s draws what a single environment with seed s + i draws.
        """
        mask = self._parse_reset_mask(options)
        if self._was_forked:
            self._after_fork()
        self._seed_replicas(seed, mask)
        self._start_episodes(np.flatnonzero(mask))
        self._was_reset = True
        return self._observation.copy(), self._info()

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One control step of every replica: `world.decimation` physics steps under one action."""
        controls = self._parse_actions(actions)
        if self._was_forked:
            self._after_fork()
        if not self._was_reset:
            raise UsageError("step was called before reset; call reset first")
        finished = self._needs_reset.copy()
        if finished.any() and self._autoreset_mode == AutoresetMode.DISABLED:
            raise UsageError(
                f"the episode of replica {finished.argmax()} is over; call reset(options={{'reset_mask': ...}}) first"
            )
        self._simulate(controls, moving=~(self._diverged | finished))
        self._age += 1
        reward = self._reward()
        terminated = self._success & self.ends_at_goal
        truncated = (self._age >= self.world.horizon) & ~terminated
        self._needs_reset[:] = terminated | truncated
        if finished.any():  # NEXT_STEP: for these replicas this call is the reset, and their action is ignored
            self._start_episodes(np.flatnonzero(finished))
            reward[finished], terminated[finished], truncated[finished] = 0.0, False, False
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if self._autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
            info |= self._final_info(ended)
            self._start_episodes(np.flatnonzero(ended))
        info |= self._info()
        return self._observation.copy(), reward, terminated, truncated, info

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture of every replica, (height, width, 3) each; None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self.render_replica(index) for index in range(self.num_envs))

    def render_replica(self, index: int, camera: str | None = None) -> NDArray[np.uint8]:
        """A picture (height, width, 3) of one replica, from the camera `follow` or `top`."""
        goal = None if self._goals is None else self._goals[index]
        assert self._renderer is not None
        return self._renderer.render(self._batch, index, goal, self.goal_radius, camera)

    def close_extras(self, **kwargs: Any) -> None:
        if self._renderer is not None:  # it is not, where a setting was refused
            self._renderer.close()

    def _simulate(self, controls: NDArray[np.float64], moving: NDArray[np.bool_]) -> None:
        """Advance the moving replicas; those that diverge on the way are put back to where they were and frozen."""
        np.copyto(self._physics_before, self._batch.state)
        np.copyto(self._ctrl, controls)
        self.world.before_step(self._batch)
        broken = np.zeros(self.num_envs, bool)
        with silenced():
            try:
                self._batch.step(None if moving.all() else np.flatnonzero(moving), nstep=self.world.decimation)
            except self._simulation_error as error:
                broken[error.ids] = True
        self._observation, self._observation_before = self._observation_before, self._observation
        with np.errstate(all="ignore"):
            self.world.observe(self._batch, controls, self._observation)
        in_bounds = np.abs(self._observation) <= self.world.features.observation_bounds
        broken |= ~in_bounds.all(axis=1) | (self._batch.warning[:, DIVERGED_WARNINGS, 1] > 0).any(axis=1)
        self._diverged |= broken & moving
        valid = moving & ~self._diverged
        np.copyto(self._last_action, controls, where=valid[:, None])
        if not valid.all():
            self._batch.state[~valid] = self._physics_before[~valid]
            self._observation[~valid] = self._observation_before[~valid]

    def _reward(self) -> NDArray[np.float64]:
        if self._goals is None:
            return np.zeros(self.num_envs)
        distance = distance_to_goals(self.world.positions(self._batch), self._goals)
        inside = (distance <= self.goal_radius) & ~self._diverged
        self._success |= inside
        return inside.astype(np.float64)

    def _start_episodes(self, ids: NDArray[np.intp]) -> None:
        """Put replicas `ids` at the start of their next episode."""
        if not ids.size:
            return
        with silenced():
            self._batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
            if self.world.has_reset_noise:
                for index in ids:
                    start = start_state(self.world, int(self._seed[index]), int(self._episode[index]))
                    self._qpos[index], self._qvel[index] = start
            else:
                self._qpos[ids], self._qvel[ids] = self.world.initial_state(None)
            self._batch.forward(ids)
        self._last_action[ids] = 0.0
        observation = np.empty_like(self._observation)
        self.world.observe(self._batch, self._last_action, observation)
        self._observation[ids] = observation[ids]
        self._age[ids] = 0
        self._episode[ids] += 1
        self._success[ids] = self._diverged[ids] = self._needs_reset[ids] = False

    def _info(self) -> dict[str, Any]:
        """Gymnasium's vector info: an array per key, and under `_key` which replicas have it (here: all)."""
        everyone = np.ones(self.num_envs, bool)
        return {
            "success": self._success.copy(),
            "_success": everyone,
            "diverged": self._diverged.copy(),
            "_diverged": everyone.copy(),
        }

    def _final_info(self, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """What the episodes that end in this step ended with, in Gymnasium's SAME_STEP form."""
        final_observation = np.full(self.num_envs, None, object)
        for index in np.flatnonzero(ended):
            final_observation[index] = self._observation[index].copy()
        final_info = {key: value & ended for key, value in self._info().items()}
        return {
            "final_obs": final_observation,
            "_final_obs": ended.copy(),
            "final_info": final_info,
            "_final_info": ended.copy(),
        }

    def _parse_actions(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """(n, a), clipped to [-1, 1]."""
        array = np.asarray(actions)
        if array.dtype.kind != "f":
            raise UsageError(f"actions must be floats (float32 or float64); got dtype {array.dtype}")
        if array.shape != self._ctrl.shape:
            raise UsageError(f"actions must have shape {self._ctrl.shape} (num_envs, action size); got {array.shape}")
        controls = array.astype(np.float64)
        if not np.isfinite(controls).all():
            replica, index = np.argwhere(~np.isfinite(controls))[0]
            raise UsageError(
                f"actions must be finite numbers; action {index} of replica {replica} is {controls[replica, index]}"
            )
        return np.clip(controls, -1.0, 1.0, out=controls)

    def _parse_reset_mask(self, options: dict[str, Any] | None) -> NDArray[np.bool_]:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, bool)
        if (
            not isinstance(mask, np.ndarray)
            or mask.dtype != np.bool_
            or mask.shape != (self.num_envs,)
            or not mask.any()
        ):
            raise UsageError(
                f"options['reset_mask'] must be a boolean array ({self.num_envs},), not all False; got {mask!r}"
            )
        return mask

    def _seed_replicas(self, seed: int | Sequence[int | None] | None, mask: NDArray[np.bool_]) -> None:
        """Give replicas their seeds; without one they go on with the one they have, or draw one the first time."""
        if seed is None or isinstance(seed, (int, np.integer)):
            super().reset(seed=None if seed is None else int(seed))
            if seed is None and self._was_reset:
                return
            first = self.np_random_seed if seed is None else int(seed)
            assert first is not None
            seeds: list[int | None] = [(first + i) % 2**64 for i in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise UsageError(
                    f"seed must be a number or a list of {self.num_envs} (num_envs); got {len(seeds)} of them"
                )
        for index in np.flatnonzero(mask):
            replica_seed = seeds[index]
            if replica_seed is not None:
                self._seed[index], self._episode[index] = replica_seed, 0


_OPEN: "weakref.WeakSet[WorldVectorEnv]" = weakref.WeakSet()
"""Environments whose engines have threads."""


def _mark_forked() -> None:
    """In a forked process engines have no threads, and to let go of one would wait for them: keep them for good."""
    for env in _OPEN:
        env._was_forked = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(env._batch))


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_mark_forked)


def _restored(
    world: World,
    num_envs: int,
    settings: dict[str, Any],
    goals: NDArray[np.float64] | None,
    state: SimulatorState | None,
) -> WorldVectorEnv:
    env = WorldVectorEnv(world, num_envs, goal=goals, **settings)
    if state is not None:
        env.set_state(state)
    return env


def _need_batch() -> None:
    """Refuse to step worlds with a MuJoCo that cannot step many at once."""
    if importlib.util.find_spec("mujoco.batch") is None:
        raise UsageError(
            f"our worlds need MuJoCo 3.17 or later (mujoco.batch), and {mujoco.__version__} is installed; install it"
            " with: pip install 'kmyriad[worlds]'"
        )


def _parse_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        names = ", ".join(repr(member.value) for member in AutoresetMode)
        raise UsageError(f"autoreset_mode must be one of {names}; got {mode!r}") from None
