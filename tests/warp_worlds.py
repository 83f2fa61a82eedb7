"""A world of one's own for MuJoCo Warp: a box on a rail."""

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from kmyriad.envs.arrays import namespace_of
from kmyriad.envs.terrain import TERRAINS, Terrain
from kmyriad.envs.world import Feature, FeatureTable


@dataclass(frozen=True)
class Slider:
    terrain: Terrain
    with_mocap: bool

    speaks_tensors = True
    features = FeatureTable([Feature("x", 1, "m", "position", 1e3), Feature("speed", 1, "m/s", "velocity", 1e3)])
    decimation, horizon, goal_radius, symmetries, has_reset_noise = 5, 100, 0.5, (), False

    @cached_property
    def model(self):
        spec = mujoco.MjSpec()
        spec.modelname = "slider"
        spec.option.timestep = 0.02
        self.terrain.add_to_spec(spec)
        body = spec.worldbody.add_body(name="box", pos=[0, 0, 0.3])
        body.add_joint(name="x", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0]).damping[0] = 1
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0])
        motor = spec.add_actuator(name="x", target="x", ctrlrange=[-1, 1])
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
        motor.set_to_motor()
        if self.with_mocap:
            spec.worldbody.add_body(name="hand", mocap=True)
        return spec.compile()

    def initial_state(self, rng):
        return np.zeros(1), np.zeros(1)

    def before_step(self, batch):
        pass

    def positions(self, batch):
        x = batch.bind("qpos")
        xp = namespace_of(x)
        return xp.column_stack([x, xp.zeros_like(x), xp.zeros_like(x)])

    def observe(self, batch, last_action, out):
        out[:, :1], out[:, 1:] = batch.bind("qpos"), batch.bind("qvel")


def slider(size: int = 1, with_mocap: bool = False) -> Slider:
    return Slider(TERRAINS["empty"](size, 0), with_mocap)
