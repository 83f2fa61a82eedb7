"""The Ant: a 0.9 kg quadruped with eight torque-driven joints, on any terrain.

Body and observations follow Isaac Lab's Ant, which the paper uses; the paper's 62 observations are Isaac's 60 and the
torso's x and y.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, get_args

import mujoco
import numpy as np
from numpy.typing import NDArray

from kmyriad.checks import Between
from kmyriad.envs.arrays import Array, like, namespace_of
from kmyriad.envs.maze import map_of
from kmyriad.envs.symmetry import SignedOrder, Symmetry
from kmyriad.envs.terrain import ARENA_BYTES, MAZE_CELL, TERRAINS, Terrain, maze_of
from kmyriad.envs.world import Feature, FeatureTable, Physics
from kmyriad.errors import UsageError, nearest_name

LEGS = {"front_left": (1, 1), "front_right": (-1, 1), "back_left": (-1, -1), "back_right": (1, -1)}
"""Leg names (those of Isaac's asset) and the signs of their x and y. Joints and actions go leg by leg: hip, ankle."""

TORSO_RADIUS = 0.25
LIMB_RADIUS = 0.08
SEGMENT, SHANK = 0.2, 0.4
"""Lengths along x and along y, metres, of a leg's two inner segments and of its shank."""

HIP_RANGE = (-40.0, 40.0)
ANKLE_RANGE = (30.0, 100.0)
"""Degrees; the ankles of the legs with negative x are mirrored."""

Cone = Literal["pyramidal", "elliptic"]
CONES = get_args(Cone)
"""In the order of MuJoCo's mjtCone."""

START_HEIGHT = 0.5
START_ANKLE = np.deg2rad(45)
EFFORT = 7.5
"""Newton metres at an action of 1."""

TARGET = np.array([1000.0, 0.0])
"""The far point that the default Isaac task walks to; two observations refer to it and the paper keeps them."""

ISAAC_RESET_NOISE = (0.2, 0.1)
"""Joint positions (rad) and velocities (rad/s) are moved by up to this much at reset noise 1."""

FEATURES = FeatureTable(
    [
        Feature("x", 1, "m", "torso position", 1e4),
        Feature("y", 1, "m", "torso position", 1e4),
        Feature("z", 1, "m", "torso height above the start's ground", 1e4),
        Feature("linear_velocity", 3, "m/s", "torso, in the body frame", 1e3),
        Feature("angular_velocity", 3, "rad/s", "torso, in the body frame", 1e3),
        Feature("yaw", 1, "rad", "torso", np.pi),
        Feature("roll", 1, "rad", "torso", np.pi),
        Feature("angle_to_target", 1, "rad", "from the heading to the far target (1000, 0)", np.pi),
        Feature("up", 1, "", "body up . world up: 1 upright, -1 on its back", 1.0),
        Feature("heading", 1, "", "body x . direction to the far target", 1.0),
        Feature("joint_positions", 8, "", "-1 and 1 at the joint's limits; hip and ankle, leg by leg", 1e3),
        Feature("joint_velocities", 8, "5 rad/s", "hip and ankle, leg by leg, times 0.2", 1e3),
        Feature("feet_wrenches", 24, "10 N, 10 N m", "force and torque of the leg on each foot, times 0.1", 1e4),
        Feature("last_action", 8, "", "as applied: clipped to [-1, 1]", 1.0),
    ],
    extra=[
        Feature("quaternion", 4, "", "torso orientation, w x y z", 1.01, "qpos", 3),
        Feature("joint_angles", 8, "rad", "hip and ankle, leg by leg", 1e3, "qpos", 7),
        Feature("world_velocity", 3, "m/s", "torso, in the world frame", 1e3, "qvel", 0),
    ],
)


def mirror(axis: int) -> Symmetry:
    """The Ant where x (axis 0) or y (axis 1) has the other sign: legs in each other's places, rotations reversed.

    Exact but for the bearing of the far target, to which x is no matter of sign.
    """
    along = np.where(np.arange(3) == axis, -1, 1)  # vectors
    about = -along  # axes of rotation
    legs = list(LEGS.values())
    twins = [legs.index((x * along[0], y * along[1])) for x, y in legs]
    joints = SignedOrder.of_blocks(twins, (about[2], about[1]))  # hips turn about z, ankles about y (and x)
    parts = {
        "x": along[:1],
        "y": along[1:2],
        "linear_velocity": along,
        "angular_velocity": about,
        "yaw": about[2:],
        "roll": about[:1],
        "angle_to_target": about[2:],
    }
    orders = {name: SignedOrder.of_blocks([0], signs) for name, signs in parts.items()}
    orders |= dict.fromkeys(("joint_positions", "joint_velocities", "last_action"), joints)
    orders["feet_wrenches"] = SignedOrder.of_blocks(twins, (*along, *about))
    whole = SignedOrder.unchanged(FEATURES.observation_size)
    for name, part in orders.items():
        place = FEATURES[name].slice
        whole.order[place], whole.signs[place] = place.start + part.order, part.signs
    return Symmetry(whole, joints, f"mirror of {'xy'[axis]}")


def ant_world(
    terrain: str = "empty",
    *,
    size: Annotated[int, Between(1, 101)] = 5,
    terrain_seed: Annotated[int, Between(0, 2**63 - 1)] = 0,
    map: object = None,
    timestep: Annotated[float, Between(1e-6, 1.0)] = 1 / 60,
    decimation: Annotated[int, Between(1, 10_000)] = 5,
    horizon: Annotated[int, Between(1, 10_000_000)] = 600,
    armature: Annotated[float, Between(1e-9, 1e3)] = 0.05,
    density: Annotated[float, Between(1e-6, 1e6)] = 5.0,
    reset_noise: Annotated[float, Between(0.0, 1e3)] = 0.0,
    cone: Cone = "pyramidal",
) -> "Ant":
    """The Ant on a terrain.

    Args:
        terrain: empty, maze, pyramid or cave.
        size: tiles (maze: rooms) along each side of the terrain; odd, so that one is in the middle.
        terrain_seed: what the maze, the pyramids and the pits are drawn from; not touched by `reset(seed=...)`.
        map: for the maze, a named map or rows of 0/1 instead of a drawn one.
        timestep: of the physics, seconds.
        decimation: physics steps per control step.
        horizon: control steps per episode.
        armature: of every joint, kg m^2. Isaac's 0.01 diverges at 1/60 s under strong feedback.
        density: of every limb, kg/m^3.
        reset_noise: 0 starts every episode in the paper's single s0; 1 is Isaac's default (joints +-0.2 rad,
            velocities +-0.1 rad/s).
        cone: of the contacts' friction. Elliptic is a sixth slower on the CPU, and the one in which MuJoCo and MuJoCo
            Warp agree; pyramidal ones they draw differently.
    """
    if terrain not in TERRAINS:
        raise UsageError(f"unknown terrain {terrain!r}{nearest_name(terrain, TERRAINS)}")
    if size % 2 == 0 or (size == 1 and terrain != "empty"):
        raise UsageError(f"size must be an odd number of at least 3, so that the start is in the middle; got {size}")
    if map is not None and terrain != "maze":
        raise UsageError(f"map goes with terrain 'maze' only; got map={map!r} with terrain {terrain!r}")
    ground = TERRAINS[terrain](size, terrain_seed) if map is None else maze_of(map_of(map, MAZE_CELL))
    return Ant(ground, timestep, decimation, horizon, armature, density, reset_noise, cone)


@dataclass(frozen=True)
class Ant:
    """A `World`: the Ant on `terrain`."""

    terrain: Terrain
    timestep: float
    decimation: int
    horizon: int
    armature: float
    density: float
    reset_noise: float
    cone: Cone = "pyramidal"

    features = FEATURES
    speaks_tensors = True
    goal_radius = 1.0
    symmetries = (mirror(0), mirror(1))

    @cached_property
    def model(self) -> mujoco.MjModel:
        return build_spec(self.terrain, self.timestep, self.armature, self.density, self.cone).compile()

    @property
    def has_reset_noise(self) -> bool:
        return self.reset_noise > 0

    def initial_state(self, rng: np.random.Generator | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ankles = np.array([START_ANKLE * x for x, _ in LEGS.values()])
        joints = np.stack([np.zeros(len(LEGS)), ankles], axis=1).ravel()
        velocities = np.zeros(6 + joints.size)
        if rng is not None:
            angle, speed = self.reset_noise * np.array(ISAAC_RESET_NOISE)
            low, high = self._joint_ranges.T
            joints = np.clip(joints + rng.uniform(-angle, angle, joints.size), low, high)
            velocities[6:] = rng.uniform(-speed, speed, joints.size)
        return np.array([*self.terrain.start, START_HEIGHT, 1, 0, 0, 0, *joints]), velocities

    @cached_property
    def _joint_ranges(self) -> NDArray[np.float64]:
        """(8, 2), radians."""
        return self.model.jnt_range[1:]

    def before_step(self, batch: Physics) -> None:
        pass

    def positions(self, batch: Physics) -> Array:
        return batch.bind("qpos")[:, :3]

    def observe(self, batch: Physics, last_action: Array, out: Array) -> None:
        qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
        xp = namespace_of(qpos)
        x, y = qpos[:, 0], qpos[:, 1]
        qw, qx, qy, qz = qpos[:, 3:7].T
        # Rows of the rotation matrix that are needed: the columns are the body's axes seen from the world.
        forward = (1 - 2 * (qy * qy + qz * qz), 2 * (qx * qy + qw * qz), 2 * (qx * qz - qw * qy))
        left = (2 * (qx * qy - qw * qz), 1 - 2 * (qx * qx + qz * qz), 2 * (qy * qz + qw * qx))
        up = (2 * (qx * qz + qw * qy), 2 * (qy * qz - qw * qx), 1 - 2 * (qx * qx + qy * qy))
        vx, vy, vz = qvel[:, :3].T
        yaw = xp.arctan2(forward[1], forward[0])
        bearing = xp.arctan2(TARGET[1] - y, TARGET[0] - x)
        low, high = like(self._joint_ranges, qpos).T

        out[:, 0:3] = qpos[:, :3]
        for column, axis in enumerate((forward, left, up), start=3):
            out[:, column] = axis[0] * vx + axis[1] * vy + axis[2] * vz
        out[:, 6:9] = qvel[:, 3:6]  # MuJoCo keeps a free joint's angular velocity in the body frame
        out[:, 9] = yaw
        out[:, 10] = xp.arctan2(left[2], up[2])
        out[:, 11] = np.pi - (np.pi - (bearing - yaw)) % (2 * np.pi)  # wrapped into (-pi, pi]
        xp.clip(up[2], -1, 1, out=out[:, 12])
        xp.clip(forward[0] * xp.cos(bearing) + forward[1] * xp.sin(bearing), -1, 1, out=out[:, 13])
        out[:, 14:22] = (2 * qpos[:, 7:] - (low + high)) / (high - low)
        out[:, 22:30] = 0.2 * qvel[:, 6:]
        out[:, 30:54] = 0.1 * batch.bind("sensordata")  # what the leg does to the foot, as Isaac has it
        out[:, 54:62] = last_action


def build_spec(
    terrain: Terrain, timestep: float, armature: float, density: float, cone: Cone = "pyramidal"
) -> mujoco.MjSpec:
    """The Ant's MuJoCo model, built part by part.

    Armature 0.01 (Isaac's) with 1/60 s steps goes to NaN under strong feedback; 0.05 holds (docs/physics.md).
    """
    spec = mujoco.MjSpec()
    spec.modelname = f"ant_{terrain.name}"
    spec.memory = ARENA_BYTES
    spec.option.timestep = timestep
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = CONES.index(cone)
    # Autoreset would teleport a diverged ant to the start unseen. Islands only cost time: one robot is one island.
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET | mujoco.mjtDisableBit.mjDSBL_ISLAND
    spec.default.joint.armature = armature
    spec.default.joint.damping[0] = 0.1
    # Robot geoms have only a contype and terrain geoms only an affinity: the robot does not collide with itself.
    spec.default.geom.friction = [1.0, 0.005, 0.0001]
    spec.default.geom.contype, spec.default.geom.conaffinity = 0, 1
    terrain.add_to_spec(spec)

    torso = spec.worldbody.add_body(name="torso", pos=[0, 0, START_HEIGHT])
    torso.add_freejoint(name="root")
    _add_limb(torso, mujoco.mjtGeom.mjGEOM_SPHERE, [TORSO_RADIUS, 0, 0], density)
    # From behind; among walls nearly from above, or they would hide the robot.
    pose = {"pos": [0, -3.6, 2.6], "xyaxes": [1, 0, 0, 0, 0.58, 0.81]}
    steep_pose = {"pos": [0, -1.5, 7], "xyaxes": [1, 0, 0, 0, 0.97, 0.23]}
    mode = mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM
    torso.add_camera(name="follow", mode=mode, **(pose if terrain.walls is None else steep_pose))
    for name, (x, y) in LEGS.items():
        segment, shank = np.array([x, y]) * SEGMENT, np.array([x, y]) * SHANK
        _add_capsule(torso, segment, density)
        leg = torso.add_body(name=f"{name}_leg", pos=[*segment, 0])
        leg.add_joint(name=f"{name}_hip", axis=[0, 0, 1], range=HIP_RANGE, limited=True)
        _add_capsule(leg, segment, density)
        foot = leg.add_body(name=f"{name}_foot", pos=[*segment, 0])
        ankle_range = ANKLE_RANGE if x > 0 else (-ANKLE_RANGE[1], -ANKLE_RANGE[0])
        foot.add_joint(name=f"{name}_ankle", axis=[-x * y, 1, 0], range=ankle_range, limited=True)
        _add_capsule(foot, shank, density)
        foot.add_site(name=f"{name}_ankle")
        for joint in ("hip", "ankle"):
            motor = spec.add_actuator(name=f"{name}_{joint}", target=f"{name}_{joint}", ctrlrange=[-1, 1])
            motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
            motor.set_to_motor()
            motor.ctrllimited = True
            motor.gear[0] = EFFORT
        for kind in (mujoco.mjtSensor.mjSENS_FORCE, mujoco.mjtSensor.mjSENS_TORQUE):
            spec.add_sensor(type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=f"{name}_ankle")
    return spec


def _add_capsule(body: mujoco.MjsBody, end: NDArray[np.float64], density: float) -> None:
    """A limb from the body's origin to `end` (x, y)."""
    _add_limb(body, mujoco.mjtGeom.mjGEOM_CAPSULE, [LIMB_RADIUS, 0, 0], density, fromto=[0, 0, 0, *end, 0])


def _add_limb(body: mujoco.MjsBody, kind: mujoco.mjtGeom, size: list[float], density: float, **shape: object) -> None:
    body.add_geom(type=kind, size=size, density=density, contype=1, conaffinity=0, rgba=[0.93, 0.55, 0.2, 1], **shape)
