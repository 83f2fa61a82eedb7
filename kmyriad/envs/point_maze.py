"""PointMaze: a force-driven ball among walls, with the dynamics of Gymnasium-Robotics' PointMaze."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import mujoco
import numpy as np
from numpy.typing import NDArray

from kmyriad.checks import Between
from kmyriad.envs.arrays import Array, namespace_of
from kmyriad.envs.maze import map_of
from kmyriad.envs.terrain import ARENA_BYTES, Terrain, walled
from kmyriad.envs.world import Feature, FeatureTable, Physics

CELL = 1.0
WALL_HEIGHT = 0.4
"""Metres, as in Gymnasium-Robotics."""

BALL_RADIUS = 0.1
MAX_SPEED = 5.0
"""Each velocity is clipped to this before a control step, m/s."""

CELL_RESET_NOISE = 0.25
"""Part of a cell by which each start coordinate is moved at most at reset noise 1, as in Gymnasium-Robotics."""

FEATURES = FeatureTable(
    [
        Feature("x", 1, "m", "position", 1e4),
        Feature("y", 1, "m", "position", 1e4),
        Feature("vx", 1, "m/s", "velocity", 1e3),
        Feature("vy", 1, "m/s", "velocity", 1e3),
    ]
)


def point_maze_world(
    *,
    map: object = "ring",
    start: tuple[int, int] | None = None,
    timestep: Annotated[float, Between(1e-6, 1.0)] = 0.01,
    decimation: Annotated[int, Between(1, 10_000)] = 1,
    horizon: Annotated[int, Between(1, 10_000_000)] = 600,
    reset_noise: Annotated[float, Between(0.0, 1e3)] = 0.0,
) -> "PointMaze":
    """The ball in a maze.

    Args:
        map: u, medium, large or ring, or rows of 0 (free) and 1 (wall).
        start: (row, column) of the cell where episodes begin; a named map brings its own.
        timestep: of the physics, seconds.
        decimation: physics steps per control step.
        horizon: control steps per episode.
        reset_noise: 0 starts every episode in the middle of the start cell; 1 is Gymnasium-Robotics' +-0.25 cell.
    """
    grid = map_of(map, CELL, start)
    name = map if isinstance(map, str) else "own map"
    return PointMaze(walled(name, grid, WALL_HEIGHT, merge=False), timestep, decimation, horizon, reset_noise)


@dataclass(frozen=True)
class PointMaze:
    """A `World`: the ball in a walled terrain."""

    terrain: Terrain
    timestep: float
    decimation: int
    horizon: int
    reset_noise: float

    features = FEATURES
    speaks_tensors = True
    goal_radius = 0.45
    symmetries = ()

    @cached_property
    def model(self) -> mujoco.MjModel:
        return build_spec(self.terrain, self.timestep).compile()

    @property
    def has_reset_noise(self) -> bool:
        return self.reset_noise > 0

    def initial_state(self, rng: np.random.Generator | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        qpos = np.array(self.terrain.start)
        if rng is not None:
            reach = self.reset_noise * CELL_RESET_NOISE * CELL
            qpos += rng.uniform(-reach, reach, 2)
        return qpos, np.zeros(2)

    def before_step(self, batch: Physics) -> None:
        qvel = batch.bind("qvel")
        namespace_of(qvel).clip(qvel, -MAX_SPEED, MAX_SPEED, out=qvel)

    def positions(self, batch: Physics) -> Array:
        qpos = batch.bind("qpos")
        xp = namespace_of(qpos)
        return xp.column_stack([qpos, xp.zeros_like(qpos[:, 0])])

    def observe(self, batch: Physics, last_action: Array, out: Array) -> None:
        out[:, :2] = batch.bind("qpos")
        out[:, 2:] = batch.bind("qvel")


def build_spec(terrain: Terrain, timestep: float) -> mujoco.MjSpec:
    """The ball's MuJoCo model: two slides without gravity, motors of 100 N."""
    spec = mujoco.MjSpec()
    spec.modelname = f"point_{terrain.name}"
    spec.memory = ARENA_BYTES
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.iterations = 20
    spec.option.gravity = [0, 0, 0]
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    spec.default.geom.friction = [0.5, 0.1, 0.1]
    spec.default.geom.condim = 1
    spec.default.geom.margin = 0.002
    spec.default.geom.density = 1000
    spec.default.geom.contype, spec.default.geom.conaffinity = 0, 1
    terrain.add_to_spec(spec)
    floor = spec.geom("ground")  # to be seen, not touched: the ball's centre moves in the plane z = 0
    floor.pos, floor.contype, floor.conaffinity = [0, 0, -BALL_RADIUS], 0, 0

    ball = spec.worldbody.add_body(name="ball")
    for name, axis in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        joint = ball.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
        joint.damping[0] = 1
        motor = spec.add_actuator(name=name, target=name, ctrlrange=[-1, 1])
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
        motor.set_to_motor()
        motor.ctrllimited = True
        motor.gear[0] = 100
    ball.add_geom(
        type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[BALL_RADIUS, 0, 0], contype=1, conaffinity=0, rgba=[0.93, 0.55, 0.2, 1]
    )
    ball.add_camera(
        name="follow", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, pos=[0, -0.9, 3.5], xyaxes=[1, 0, 0, 0, 0.97, 0.25]
    )
    return spec
