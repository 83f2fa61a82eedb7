"""Pictures of a replica: headless where there is no screen, from a camera that follows or from above."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.terrain import Terrain
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, first_line, nearest_name

if TYPE_CHECKING:
    from mujoco.batch import Batch

CAMERAS = ("follow", "top")
EVERYTHING = int(mujoco.mjtCatBit.mjCAT_ALL)


class RenderError(RuntimeError):
    """No picture can be made on this machine; the sentence says what to install or set."""


class Canvas:
    """A scene to fill and the picture of it. OpenGL is opened with the first picture, not before."""

    def __init__(self, model: mujoco.MjModel, width: int, height: int, extra_geoms: int = 200) -> None:
        if width < 1 or height < 1:
            raise UsageError(f"width and height must be at least 1 pixel; got {width} x {height}")
        self._model, self._width, self._height = model, width, height
        self._extra_geoms = extra_geoms
        self._context: Any = None
        self.scene: mujoco.MjvScene
        self.data: mujoco.MjData

    def open(self) -> None:
        """Before the scene is filled; does nothing if OpenGL is open already."""
        if self._context is not None:
            return
        model = self._model
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self._width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self._height)
        context = _open_gl(self._width, self._height)
        context.make_current()
        self._opengl = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._opengl)
        self.scene = mujoco.MjvScene(model, maxgeom=model.ngeom + self._extra_geoms)
        self.data = mujoco.MjData(model)
        self._context = context

    def add_goal(self, goal: NDArray[np.float64], radius: float, terrain: Terrain) -> None:
        """A translucent ball around the goal; a goal (x, y) is drawn on the ground."""
        x, y = goal[:2]
        z = goal[2] if goal.size == 3 else float(terrain.height(x, y))
        marker = self.scene.geoms[self.scene.ngeom]
        rgba = np.array([0.1, 0.7, 0.3, 0.45], np.float32)
        size = np.full(3, radius)
        mujoco.mjv_initGeom(marker, mujoco.mjtGeom.mjGEOM_SPHERE, size, np.array([x, y, z]), np.eye(3).ravel(), rgba)
        self.scene.ngeom += 1

    def draw(self) -> NDArray[np.uint8]:
        """(height, width, 3), the scene as it is now."""
        pixels = np.empty((self._height, self._width, 3), np.uint8)
        self._context.make_current()
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, self.scene, self._opengl)
        mujoco.mjr_readPixels(pixels, None, area, self._opengl)
        return pixels[::-1].copy()

    def close(self) -> None:
        """Give OpenGL's memory back; a later picture opens it again."""
        if self._context is not None:
            self._context.make_current()
            self._opengl.free()
            self._context.free()
            self._context = None


class WorldRenderer:
    """Draws single replicas of a batch."""

    def __init__(self, world: World, render_mode: str | None, camera: str, width: int, height: int) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UsageError(f"render_mode must be None or 'rgb_array'; got {render_mode!r}")
        _check_camera(camera)
        self._world, self._camera = world, camera
        self._canvas = Canvas(world.model, width, height)

    def render(
        self, batch: "Batch", index: int, goal: NDArray[np.float64] | None, goal_radius: float, camera: str | None
    ) -> NDArray[np.uint8]:
        """(height, width, 3), replica `index` with its goal as a translucent ball."""
        view = fixed_view(self._world, camera or self._camera)
        canvas, model = self._canvas, self._world.model
        canvas.open()
        with silenced():
            batch.get_data(index, canvas.data)
            mujoco.mj_forward(model, canvas.data)
        mujoco.mjv_updateScene(model, canvas.data, mujoco.MjvOption(), None, view, EVERYTHING, canvas.scene)
        if goal is not None:
            canvas.add_goal(goal, goal_radius, self._world.terrain)
        return canvas.draw()

    def close(self) -> None:
        """Give OpenGL's memory back; a later picture opens it again."""
        self._canvas.close()


def fixed_view(world: World, camera: str) -> mujoco.MjvCamera:
    """The model's camera `follow`, which moves with the robot, or `top`."""
    _check_camera(camera)
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FIXED
    view.fixedcamid = world.model.camera(camera).id
    return view


def _check_camera(camera: str) -> None:
    if camera not in CAMERAS:
        raise UsageError(f"unknown camera {camera!r}{nearest_name(camera, CAMERAS)}")


def _open_gl(width: int, height: int) -> Any:
    """An OpenGL context from MUJOCO_GL's back end, or from the first one that works here."""
    has_screen = sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    known = ("egl", "osmesa", "glfw", "cgl")
    if chosen in known:
        backends = [chosen]
    elif chosen:
        raise RenderError(f"MUJOCO_GL is {chosen!r}; set it to one of {', '.join(known)}, or unset it")
    elif sys.platform == "linux":
        backends = ["egl", "osmesa"] + ["glfw"] * has_screen
    else:
        backends = ["cgl", "glfw"] if sys.platform == "darwin" else ["glfw"]
    failures = []
    for backend in backends:
        try:
            return importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        except Exception as error:  # a missing library shows up as any of a dozen exceptions
            failures.append(f"{backend}: {first_line(error)}")
    raise RenderError(
        f"cannot render: no OpenGL found ({'; '.join(failures)}); on Debian or Ubuntu install libegl1 and"
        " libgl1-mesa-dri, or set MUJOCO_GL to a back end that is there"
    )
