"""Pictures of a replica: headless where there is no screen, from a camera that follows or from above."""

import importlib
import os
import sys
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, nearest_name

CAMERAS = ("follow", "top")


class RenderError(RuntimeError):
    """No picture can be made on this machine; the sentence says what to install or set."""


class WorldRenderer:
    """Draws single replicas of a batch. OpenGL is opened with the first picture, not before."""

    def __init__(self, world: World, render_mode: str | None, camera: str, width: int, height: int) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UsageError(f"render_mode must be None or 'rgb_array'; got {render_mode!r}")
        if width < 1 or height < 1:
            raise UsageError(f"width and height must be at least 1 pixel; got {width} x {height}")
        _check_camera(camera)
        self._world, self._camera, self._width, self._height = world, camera, width, height
        self._context: Any = None

    def render(
        self, batch: Batch, index: int, goal: NDArray[np.float64] | None, goal_radius: float, camera: str | None
    ) -> NDArray[np.uint8]:
        """(height, width, 3), replica `index` with its goal as a translucent ball."""
        _check_camera(camera := camera or self._camera)
        self._open()
        model = self._world.model
        with silenced():
            batch.get_data(index, self._data)
            mujoco.mj_forward(model, self._data)
        view = mujoco.MjvCamera()
        view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        view.fixedcamid = model.camera(camera).id
        everything = int(mujoco.mjtCatBit.mjCAT_ALL)
        mujoco.mjv_updateScene(model, self._data, mujoco.MjvOption(), None, view, everything, self._scene)
        if goal is not None:
            self._add_goal(goal, goal_radius)
        pixels = np.empty((self._height, self._width, 3), np.uint8)
        self._context.make_current()
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, self._scene, self._opengl)
        mujoco.mjr_readPixels(pixels, None, area, self._opengl)
        return pixels[::-1].copy()

    def close(self) -> None:
        """Give OpenGL's memory back; a later picture opens it again."""
        if self._context is not None:
            self._context.make_current()
            self._opengl.free()
            self._context.free()
            self._context = None

    def _open(self) -> None:
        if self._context is not None:
            return
        model = self._world.model
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._height)
        context = _open_gl(self._width, self._height)
        context.make_current()
        self._opengl = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._opengl)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 200)
        self._data = mujoco.MjData(model)
        self._context = context

    def _add_goal(self, goal: NDArray[np.float64], radius: float) -> None:
        """A translucent ball around the goal; a goal (x, y) is drawn on the ground."""
        x, y = goal[:2]
        z = goal[2] if goal.size == 3 else float(self._world.terrain.height(x, y))
        marker = self._scene.geoms[self._scene.ngeom]
        rgba = np.array([0.1, 0.7, 0.3, 0.45], np.float32)
        size = np.full(3, radius)
        mujoco.mjv_initGeom(marker, mujoco.mjtGeom.mjGEOM_SPHERE, size, np.array([x, y, z]), np.eye(3).ravel(), rgba)
        self._scene.ngeom += 1


def _check_camera(camera: str) -> None:
    if camera not in CAMERAS:
        raise UsageError(f"unknown camera {camera!r}{nearest_name(camera, CAMERAS)}")


def _open_gl(width: int, height: int) -> Any:
    """An OpenGL context from MUJOCO_GL's back end, or from the first one that works here."""
    has_screen = sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if chosen in ("egl", "osmesa", "glfw", "cgl"):
        backends = [chosen]
    elif sys.platform == "linux":
        backends = ["egl", "osmesa"] + ["glfw"] * has_screen
    else:
        backends = ["cgl", "glfw"] if sys.platform == "darwin" else ["glfw"]
    failures = []
    for backend in backends:
        try:
            return importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        except Exception as error:  # a missing library shows up as any of a dozen exceptions
            failures.append(
                f"{backend}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
            )
    raise RenderError(
        f"cannot render: no OpenGL found ({'; '.join(failures)}); on Debian or Ubuntu install libegl1 and"
        " libgl1-mesa-dri, or set MUJOCO_GL to a back end that is there"
    )
