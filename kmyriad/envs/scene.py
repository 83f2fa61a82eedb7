"""Several robots in one picture: the same terrain, each robot where its replica is and in a colour of its own."""

import math
from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.rendering import EVERYTHING, Canvas
from kmyriad.envs.world import World

ROBOTS = int(mujoco.mjtCatBit.mjCAT_DYNAMIC)
STATE = mujoco.mjtState.mjSTATE_INTEGRATION

STEEP, SLANTED = -88.0, -42.0
"""Degrees that the camera looks down: steep among walls, which would hide the robots."""

Box = NDArray[np.float64]
"""(2, 2), the lower and the upper corner (x, y) of a piece of ground, metres."""


class SceneRenderer:
    """Draws up to `count` robots of `world` together."""

    def __init__(self, world: World, count: int, width: int, height: int) -> None:
        # Videos have thousands of small pictures: rounder robots would double the time, and nobody would see it.
        quality = world.model.vis.quality
        quality.numslices, quality.numstacks, quality.numquads = 20, 10, 1
        self._world = world
        drawn = world.model.ngeom + world.model.nsite
        self._canvas = Canvas(world.model, width, height, extra_geoms=count * drawn + 1)

    def render(
        self,
        physics: NDArray[np.float64],
        colours: Sequence[ArrayLike],
        view: mujoco.MjvCamera,
        goal: NDArray[np.float64] | None = None,
        goal_radius: float = 1.0,
    ) -> NDArray[np.uint8]:
        """(height, width, 3), from `view`.

        Robots stand as in the rows of `physics` (n, nstate), see `SimulatorState`; each has its colour of `colours`
        (r, g, b), 0 to 1. A camera that moves with its robot follows the first.
        """
        canvas, model, option = self._canvas, self._world.model, mujoco.MjvOption()
        canvas.open()
        for index, (state, colour) in enumerate(zip(physics, colours, strict=True)):
            with silenced():
                mujoco.mj_setState(model, canvas.data, state, STATE)
                mujoco.mj_forward(model, canvas.data)
            first = canvas.scene.ngeom if index else 0
            if index:
                mujoco.mjv_addGeoms(model, canvas.data, option, mujoco.MjvPerturb(), ROBOTS, canvas.scene)
            else:
                mujoco.mjv_updateScene(model, canvas.data, option, None, view, EVERYTHING, canvas.scene)
            for geom in canvas.scene.geoms[first : canvas.scene.ngeom]:
                if geom.category == ROBOTS:
                    geom.rgba[:3] = colour
        if goal is not None:
            canvas.add_goal(goal, goal_radius, self._world.terrain)
        return canvas.draw()

    def close(self) -> None:
        """Give OpenGL's memory back."""
        self._canvas.close()


def view_of(box: Box, world: World, aspect: float) -> mujoco.MjvCamera:
    """A camera that sees the whole of `box` in a picture of this aspect (width / height)."""
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FREE
    view.azimuth, view.elevation = 90.0, SLANTED if world.terrain.walls is None else STEEP
    view.lookat[:] = [*box.mean(axis=0), 0.0]
    half_width, half_depth = (box[1] - box[0]) / 2
    slope = math.tan(math.radians(world.model.vis.global_.fovy / 2))
    tilt = math.radians(-view.elevation)
    reach = max(half_width / (aspect * slope), half_depth * math.sin(tilt) / slope)
    view.distance = reach + half_depth * math.cos(tilt)
    return view
