"""Worlds on MuJoCo Warp: physics, observations and rewards of all replicas as tensors on one device.

Torch and Warp see the same memory: `bind("qpos")` is MuJoCo Warp's own array as a tensor. The physics steps of a
control step are captured once as a graph and replayed, so arrays are written into and never replaced. On the CPU, where
the tests run, that is the same code as on a GPU; what is particular to CUDA (streams, determinism) is written after
Warp's documentation and was never run.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import gymnasium
import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kmyriad.engines.engine import Outcome, State
from kmyriad.engines.make import CONSTRAINTS, CONTACTS
from kmyriad.envs.goal import distance_to_goals, parse_goals
from kmyriad.envs.plane import features_of_world, plane_of_world, xy_of
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import Source, World, start_state, world_spaces
from kmyriad.errors import UsageError

INACCURATE = mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS
"""Limits at which the solver stops as MuJoCo's own does. Every other overflow leaves out a part of the physics."""

STATE = ("time", "qpos", "qvel", "act", "qacc_warmstart")
"""What the future of the physics depends on, besides the controls that every step brings."""

POSITION = ("x", "y")

wp.config.log_level = wp.LOG_WARNING  # or it tells of every kernel that it loads


class WarpPhysics:
    """A `Physics`: `count` simulations of a model on a device."""

    def __init__(self, model: mujoco.MjModel, count: int, decimation: int, device: torch.device) -> None:
        self._device = device
        wp.init()
        model = copy.deepcopy(model)
        model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # it never does, and refuses the flag
        with _in_order(device):
            self._model = mjw.put_model(model)
            self._model.opt.warn_overflow = 0
            if device.type == "cuda":  # or the order of sums is the threads'
                self._model.opt.deterministic = mjw.DeterminismType.ALL
            self._data = mjw.make_data(model, nworld=count, nconmax=CONTACTS, njmax=CONSTRAINTS)
            mjw.step(self._model, self._data)  # loads the kernels, which a capture cannot wait for
        # In Warp's own stream: torch's default one cannot be captured.
        with wp.ScopedDevice(wp.device_from_torch(device)), wp.ScopedCapture() as capture:
            for _ in range(decimation):
                mjw.step(self._model, self._data)
        self._graph = capture.graph
        self._bound: dict[str, Tensor] = {}

    def bind(self, name: str) -> Tensor:
        if name not in self._bound:
            self._bound[name] = wp.to_torch(getattr(self._data, name))
        return self._bound[name]

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """By name: (n, ...) each, live."""
        return {name: self.bind(name) for name in STATE if getattr(self._data, name).size}

    @property
    def lost(self) -> Tensor:
        """(n,), whether a part of the physics was left out since `forgive`."""
        return (self.bind("overflow") & ~int(INACCURATE)) != 0

    def forgive(self) -> None:
        """Forget overflows."""
        self.bind("overflow").zero_()

    def step(self) -> None:
        """One control step of all."""
        with _in_order(self._device) as stream:
            wp.capture_launch(self._graph, stream=stream)

    def forward(self) -> None:
        """Compute what follows from positions, velocities and controls; the state stays as it is, warm start aside."""
        with _in_order(self._device):
            mjw.forward(self._model, self._data)


def _numbered(device: torch.device) -> torch.device:
    """A device with its number, as Warp wants to have it: `cuda` is the current one."""
    has_one = device.type != "cuda" or device.index is not None
    return device if has_one else torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _in_order(device: torch.device) -> Iterator[Any]:
    """What Warp does within is done on a torch device, there in torch's stream, which it gives (None on the CPU)."""
    with wp.ScopedDevice(wp.device_from_torch(device)):
        if device.type != "cuda":
            yield None
            return
        stream = wp.stream_from_torch(device)
        with wp.ScopedStream(stream):
            yield stream


class WarpEngine:
    """An `Engine` of replicas of a world that speaks tensors.

    Reward, success and divergence are as in `vector_env.WorldVectorEnv`. The physics of a replica that diverged begins
    anew at once, so that it cannot harm others; it shows what it last did until its episode is over.
    """

    speaks_tensors = True
    obeys_limit = True
    can_be_saved = True
    simulation: WorldVectorEnv | None = None

    def __init__(
        self,
        world: World,
        features: Sequence[str],
        numbers: NDArray[np.int64],
        device: str = "cpu",
        *,
        goal: ArrayLike | None = None,
        goal_radius: float | None = None,
        ends_at_goal: bool = False,
    ) -> None:
        check_world(world)
        count = len(numbers)
        at = _numbered(torch.device(device))
        self._world, self.count, self.device, self._numbers = world, count, str(at), numbers.tolist()
        self.world: World | None = world
        self.action_space: gymnasium.Space[Any]
        self.observation_space, self.action_space = world_spaces(world)
        self.observation_size = world.features.observation_size
        self._names = tuple(features)
        self.features, self.columns = features_of_world(world, features)
        self.symmetries, self.plane = world.symmetries, plane_of_world(world)
        self._has_xy = all(name in world.features for name in POSITION)
        self._radius = world.goal_radius if goal_radius is None else goal_radius
        self._ends_at_goal = ends_at_goal
        goals = parse_goals(goal, count, world.terrain, self._radius)
        self.tells_success = goals is not None

        self._physics = WarpPhysics(world.model, count, world.decimation, at)
        self._goals = None if goals is None else torch.as_tensor(goals, dtype=torch.float32, device=at)
        self._bounds = torch.as_tensor(world.features.observation_bounds, device=at)
        self._seen = torch.zeros(count, self.observation_size, device=at)
        self._success = torch.zeros(count, dtype=torch.bool, device=at)
        self._diverged = torch.zeros(count, dtype=torch.bool, device=at)
        self._seed = np.zeros(count, np.uint64)
        self._episode = np.zeros(count, np.int64)
        if not world.has_reset_noise:
            everyone = torch.ones_like(self._success)
            self._first_seen = self._compute_start(everyone, np.arange(count))[:1].clone()
            self._first_state = {name: live[:1].clone() for name, live in self._physics.state.items()}

    def start(self, seed: int) -> Tensor:
        self._seed[:] = [(seed + number) % 2**64 for number in self._numbers]
        self._episode[:] = 0
        everyone = torch.ones_like(self._success)
        self._begin(everyone, everyone, self._seen)
        return self._seen.clone()

    def step(self, actions: Tensor, last: Tensor) -> Outcome:
        controls = actions.clamp(-1.0, 1.0)
        self._physics.bind("ctrl").copy_(controls)
        self._physics.forgive()
        self._world.before_step(self._physics)
        self._physics.step()
        reached = torch.empty_like(self._seen)
        self._world.observe(self._physics, controls, reached)
        broke = self._physics.lost | ~(reached.abs() <= self._bounds).all(dim=1)
        self._diverged |= broke
        reached = torch.where(self._diverged[:, None], self._seen, reached)
        features = self._read(self._names, reached)
        xy = self._read(POSITION, reached) if self._has_xy else xy_of(features)
        reward = self._reward()
        terminated = self._success & self._ends_at_goal
        done = terminated | last
        success = self._success.clone() if self.tells_success else None
        broken = self._diverged.clone()
        self._begin(done, done | broke, reached)
        return Outcome(reached, self._seen.clone(), features, xy, reward, terminated, done, success, broken)

    def get_state(self) -> State:
        everything = ((name, torch.as_tensor(array)) for name, array in self._all())
        return {name: array.cpu().numpy().copy() for name, array in everything}

    def set_state(self, state: State) -> bool:
        for name, array in self._all():
            if name not in state or state[name].shape != tuple(array.shape):
                raise ValueError(f"the replicas' {name} is missing or has another shape")
        for name, array in self._all():
            torch.as_tensor(array).copy_(torch.as_tensor(state[name]))
        return True

    def render(self) -> list[NDArray[np.uint8]]:
        raise UsageError("engine warp draws no pictures; use engine auto")

    def close(self) -> None:
        pass

    def _all(self) -> Iterator[tuple[str, Any]]:
        """Name and live array of everything that the future depends on."""
        yield from self._physics.state.items()
        yield from {"observation": self._seen, "success": self._success, "diverged": self._diverged}.items()
        yield from {"seed": self._seed, "episode": self._episode}.items()

    def _read(self, names: Sequence[str], observation: Tensor) -> Tensor:
        """(n, f), the named features."""
        bind = self._physics.bind
        sources: dict[Source, Tensor] = {"observation": observation, "qpos": bind("qpos"), "qvel": bind("qvel")}
        return self._world.features.read(names, sources)

    def _reward(self) -> Tensor:
        if self._goals is None:
            return torch.zeros_like(self._seen[:, 0])
        inside = distance_to_goals(self._world.positions(self._physics), self._goals) <= self._radius
        inside &= ~self._diverged
        self._success |= inside
        return inside.float()

    def _begin(self, episodes: Tensor, physics: Tensor, reached: Tensor) -> None:
        """Begin new `episodes` (n,) and anew the `physics` (n,), masks both; others go on from what they `reached`.

        Without noise every start is the same, and nothing here waits for the device.
        """
        if self._world.has_reset_noise:
            starts, begins = torch.stack([physics, episodes]).cpu().numpy()  # the one wait of a step
            ids = np.flatnonzero(starts)
            seen = self._compute_start(physics, ids) if ids.size else reached
            self._episode += begins
        else:
            seen = self._first_seen
            for name, live in self._physics.state.items():
                _write(live, physics, self._first_state[name])
        self._seen.copy_(torch.where(episodes[:, None], seen, reached))
        self._success &= ~episodes
        self._diverged &= ~episodes

    def _compute_start(self, mask: Tensor, ids: NDArray[np.intp]) -> Tensor:
        """Put the physics of replicas `ids`, which `mask` (n,) says too, at a start; (n, d), what they see there."""
        starts = [start_state(self._world, int(self._seed[index]), int(self._episode[index])) for index in ids]
        where = torch.as_tensor(ids, device=mask.device)
        warm = self._physics.bind("qacc_warmstart").clone()
        for name, live in {**self._physics.state, "ctrl": self._physics.bind("ctrl")}.items():
            if name in ("qpos", "qvel"):
                values = np.stack([start[name == "qvel"] for start in starts])
                live.index_copy_(0, where, torch.as_tensor(values, dtype=torch.float32, device=live.device))
            else:
                _write(live, mask, torch.zeros_like(live[:1]))
        self._physics.forward()
        # It has warm-started everyone anew, and what others do must not depend on who begins when.
        _write(self._physics.bind("qacc_warmstart"), ~mask, warm)
        seen = torch.empty_like(self._seen)
        self._world.observe(self._physics, torch.zeros_like(self._physics.bind("ctrl")), seen)
        return seen


def _write(live: Tensor, mask: Tensor, values: Tensor) -> None:
    """Write `values`, (n, ...) or (1, ...), into the rows of `live` (n, ...) that `mask` (n,) says."""
    live.copy_(torch.where(mask.view(-1, *[1] * (live.ndim - 1)), values, live))


def check_world(world: World) -> None:
    """Refuse a world that MuJoCo Warp cannot step for us."""
    model = world.model
    name = str(model.names, "utf-8").split("\0", 1)[0] or "this world"
    if not world.speaks_tensors:
        raise UsageError(
            f"{name} has no observation on tensors (speaks_tensors), which engine warp needs; use engine auto"
        )
    sizes = [1, model.nq, model.nv, model.na, model.nv, model.nu, model.nv, 6 * model.nbody, model.neq]
    if mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION) != sum(sizes):
        raise UsageError(
            f"{name} has a state beyond positions, velocities and activations (mocap bodies, user data, delays), which"
            " engine warp cannot reset; use engine auto"
        )
