"""The ground the Ant walks on: Empty, Maze, Pyramid and Cave, all made of boxes.

A terrain is plain data. The same boxes become MuJoCo geoms (`add_to_spec`) and answer `height(x, y)`, so plots, goal
checks and tests see exactly the ground that the physics sees.

Boxes and not a height field: sphere-box and capsule-box contacts are analytic, while a height field runs the convex
collider on every prism under a geom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kmyriad.envs.maze import GridMap, generate_maze

FOUNDATION = 1.0
"""Metres every box reaches below the surface it carries. A geom that sinks into a thin box is pushed out through the
nearest face, which may be the bottom one; with a deep foundation the nearest face is the top."""

TILE = 8.0
"""Side of one tile of the Pyramid and Cave chequerboard, metres (Isaac Lab's rough terrain uses the same)."""

BORDER = 1.0
"""Flat ground kept along each side of a tile with a pyramid or a pit, metres."""

STEP_HEIGHT = (0.05, 0.15)
"""Range a step's height is drawn from, metres."""

STEP_WIDTH = (0.35, 0.55)
"""Range a step's tread is drawn from, metres."""

STEPS = (3, 4)
"""Fewest and most steps of a pyramid or a pit."""

SLOPE_RUN = (1.4, 2.2)
"""Range of the horizontal length of a slope into a pit, metres."""

MAZE_CELL = 4.0
"""Width of the maze's corridors and walls, metres (Gymnasium-Robotics' AntMaze has the same)."""

MAZE_WALL_HEIGHT = 4.0
"""Metres. AntMaze has 2, but this ant weighs 0.9 kg and random actions alone throw it two metres high."""

ARENA_BYTES = 2**20
"""MuJoCo's working memory per simulation. Its default of 14 MiB is a thousand times what one robot's contacts need and
keeps a process from holding a thousand single environments."""

FAR = 60.0
"""Distance from the origin, in metres, to which the Cave's ground goes on; then it drops to an endless plain."""


@dataclass(frozen=True)
class Box:
    """A solid box; with `slope`, its top face drops along `downhill` by `slope` metres per metre.

    `low` and `high` are the corners (x, y); `top` is the height of the top face (at the uphill edge when it slopes).
    """

    low: tuple[float, float]
    high: tuple[float, float]
    top: float
    bottom: float
    slope: float = 0.0
    downhill: tuple[int, int] = (1, 0)
    is_wall: bool = False

    def height(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Height of the top face over (x, y); minus infinity where the box is not."""
        inside = (x >= self.low[0]) & (x <= self.high[0]) & (y >= self.low[1]) & (y <= self.high[1])
        dx, dy = self.downhill
        uphill_x = self.low[0] if dx > 0 else self.high[0]
        uphill_y = self.low[1] if dy > 0 else self.high[1]
        run = dx * (x - uphill_x) + dy * (y - uphill_y)
        return np.where(inside, self.top - self.slope * run, -np.inf)


@dataclass(frozen=True)
class Terrain:
    """What the world is made of. Episodes start on flat ground at z = 0."""

    name: str
    boxes: tuple[Box, ...]
    half_size: float
    """Half the side of the square worth looking at, in metres: what plots and the top camera show."""
    plane: float = 0.0
    """Height of the endless plane below everything: the ground itself, but for the Cave, which digs below z = 0."""
    walls: GridMap | None = None
    """The wall map of a maze."""

    @property
    def start(self) -> tuple[float, float]:
        """(x, y) where episodes begin: the origin, or the start cell of a wall map."""
        return (0.0, 0.0) if self.walls is None else self.walls.centre(self.walls.start)

    def height(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Height of the solid surface (walls included) over points (x, y), any shape, metres."""
        x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
        height = np.full(x.shape, self.plane)
        for box in self.boxes:
            np.maximum(height, box.height(x, y), out=height)
        return height

    def is_wall(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether points (x, y) lie inside a wall (or outside a walled world)."""
        x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
        return np.zeros(x.shape, bool) if self.walls is None else self.walls.is_wall(x, y)

    @cached_property
    def height_map(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """(xs, ys, heights[y, x]) on a 0.1 m grid over the terrain: a plain array to plot."""
        axis = np.arange(-self.half_size + 0.05, self.half_size, 0.1)
        return axis, axis, self.height(axis[None, :], axis[:, None])

    def add_to_spec(self, spec: mujoco.MjSpec) -> None:
        """Add ground, light and a top view to `spec`.

        The geoms go straight into the world body, so that MuJoCo keeps one static bounding tree for all of them.
        """
        _add_scenery(spec, self.half_size)
        spec.worldbody.add_geom(
            name="ground",
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            size=[2 * FAR, 2 * FAR, 1],
            pos=[0, 0, self.plane],
            material="ground",
        )
        for box in self.boxes:
            centre, half_size, quaternion = _pose(box)
            looks = {"rgba": _colour(box)} if box.is_wall or box.top or box.slope else {"material": "ground"}
            spec.worldbody.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX, pos=centre, size=half_size, quat=quaternion, **looks
            )


def _colour(box: Box) -> tuple[float, float, float, float]:
    """Walls are slate; steps go from dark (deep) to light (high)."""
    if box.is_wall:
        return 0.36, 0.42, 0.52, 1.0
    height = box.top - (box.slope * max(box.high[0] - box.low[0], box.high[1] - box.low[1]) / 8 if box.slope else 0)
    light = float(np.clip(0.62 + 0.45 * height, 0.3, 0.9))
    return light, 0.9 * light, 0.75 * light, 1.0


def _add_scenery(spec: mujoco.MjSpec, half_size: float) -> None:
    """Sky, light, the chequered ground material (2 m squares) and the camera `top`, which sees the whole terrain."""
    texture, material = mujoco.mjtTexture, mujoco.mjtTextureRole.mjTEXROLE_RGB
    sky = spec.add_texture(name="sky", type=texture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT)
    sky.width, sky.height, sky.rgb1, sky.rgb2 = 64, 64, [0.85, 0.9, 0.95], [0.6, 0.7, 0.8]
    checks = spec.add_texture(name="checks", type=texture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER)
    checks.width, checks.height, checks.rgb1, checks.rgb2 = 128, 128, [0.78, 0.80, 0.82], [0.68, 0.70, 0.72]
    ground = spec.add_material(name="ground", texrepeat=[0.5, 0.5], texuniform=True)
    ground.textures[material] = "checks"
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = [0.4] * 3, [0.2] * 3
    spec.visual.headlight.specular = [0.0] * 3
    spec.visual.map.zfar = 20  # in units of the model's extent
    spec.stat.extent, spec.stat.center = max(half_size / 2, 2.0), [0, 0, 0]
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0, 0, 30],
        dir=[0.45, 0.3, -1],
        diffuse=[0.42] * 3,
        specular=[0.0] * 3,
        castshadow=False,  # MuJoCo's shadow map shows stripes on ground this large
    )
    spec.worldbody.add_camera(name="top", pos=[0, 0, 1.05 * half_size / np.tan(np.deg2rad(22.5))], fovy=45)


def _pose(box: Box) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Centre, half sizes and quaternion of the MuJoCo box whose top face is the box's (perhaps sloping) top face."""
    low, high = np.array(box.low), np.array(box.high)
    half = (high - low) / 2
    depth = (box.top - box.bottom) / 2
    if not box.slope:
        return np.array([*(low + half), box.top - depth]), np.array([*half, depth]), np.array([1.0, 0, 0, 0])
    along = 0 if box.downhill[0] else 1
    angle = np.arctan(box.slope)
    run = half[along]
    half[along] = run / np.cos(angle)
    axis = np.array([-box.downhill[1], box.downhill[0], 0.0])  # turns the outward axis `downhill` downwards
    normal = np.array([*(np.sin(angle) * np.array(box.downhill)), np.cos(angle)])
    middle_of_top = np.array([*((low + high) / 2), box.top - box.slope * run])
    quaternion = np.array([np.cos(angle / 2), *(np.sin(angle / 2) * axis)])
    return middle_of_top - depth * normal, np.array([*half, depth]), quaternion


def empty(size: int, seed: int) -> Terrain:
    """Flat ground without end."""
    return Terrain("empty", (), half_size=size * TILE / 2)


def maze(size: int, seed: int) -> Terrain:
    """Corridors between walls, with loops; `size` rooms along each side."""
    return maze_of(generate_maze(size, MAZE_CELL, seed))


def maze_of(grid: GridMap) -> Terrain:
    """A maze with a given wall map."""
    return walled("maze", grid, MAZE_WALL_HEIGHT, merge=True)


def walled(name: str, grid: GridMap, wall_height: float, merge: bool) -> Terrain:
    """Flat ground with the walls of `grid` on it."""
    boxes = tuple(
        Box(low, high, top=wall_height, bottom=0.0, is_wall=True) for low, high in grid.wall_rectangles(merge)
    )
    return Terrain(name, boxes, half_size=max(grid.extent), walls=grid)


def pyramid(size: int, seed: int) -> Terrain:
    """Stepped pyramids, each with its own number, width and height of steps, and its top off the middle."""
    rng = np.random.default_rng(seed)
    boxes = []
    for low, high in _plots(size):
        top = 0.0
        for _ in range(rng.integers(STEPS[0], STEPS[1] + 1)):
            top += rng.uniform(*STEP_HEIGHT)
            boxes.append(Box(tuple(low), tuple(high), top, bottom=-FOUNDATION))
            low, high = low + rng.uniform(*STEP_WIDTH, 2), high - rng.uniform(*STEP_WIDTH, 2)
    return Terrain("pyramid", tuple(boxes), half_size=size * TILE / 2)


def cave(size: int, seed: int) -> Terrain:
    """Pits whose sides are stairs or slopes, drawn side by side, down to a floor below the ground around."""
    rng = np.random.default_rng(seed)
    boxes = _ground_around_pits(size)
    for low, high in _plots(size):
        boxes += _pit(low, high, rng)
    return Terrain("cave", tuple(boxes), half_size=size * TILE / 2, plane=-2 * FOUNDATION)


def _plots(size: int) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Corners (low, high) of the pyramids or pits: the odd squares of a chequerboard whose middle square is the start.

    Every second tile stays flat: half the boxes, hence half the collision tests, and flat ways between the obstacles.
    """
    half = size // 2
    centres = [np.array([i, j]) * TILE for j in range(-half, half + 1) for i in range(-half, half + 1) if (i + j) % 2]
    reach = TILE / 2 - BORDER
    return [(centre - reach, centre + reach) for centre in centres]


def _ground_around_pits(size: int) -> list[Box]:
    """The ground z = 0 of the chequerboard, without a gap or an overlap: two coplanar boxes would double contacts.

    Long strips between the columns of tiles, and in each column the runs between its pits. Fewer boxes, and none that
    spans the terrain in both directions, keep MuJoCo's bounding tree tight.
    """
    far = max(FAR, size * TILE / 2)
    half = size // 2
    reach = TILE / 2 - BORDER
    columns = [(i * TILE - reach, i * TILE + reach) for i in range(-half, half + 1)]
    lefts, rights = [left for left, _ in columns], [right for _, right in columns]
    rectangles = [((left, -far), (right, far)) for left, right in zip([-far, *rights], [*lefts, far], strict=True)]
    for i, (left, right) in enumerate(columns, start=-half):
        bottom = -far
        for j in range(-half, half + 1):
            if (i + j) % 2:  # a pit: ground up to it, then go on behind it
                rectangles.append(((left, bottom), (right, j * TILE - reach)))
                bottom = j * TILE + reach
        rectangles.append(((left, bottom), (right, far)))
    return [Box(low, high, top=0.0, bottom=-2 * FOUNDATION) for low, high in rectangles]


def _pit(low: NDArray[np.float64], high: NDArray[np.float64], rng: np.random.Generator) -> list[Box]:
    """A pit in the opening `low`..`high`.

    Its ground is the highest of four sides and a floor, so each side may span the whole opening.
    """
    levels = -np.cumsum(rng.uniform(*STEP_HEIGHT, rng.integers(STEPS[0], STEPS[1] + 1)))
    depth = -float(levels[-1])
    boxes = [Box(tuple(low), tuple(high), top=-depth, bottom=-depth - FOUNDATION)]
    for downhill in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        if rng.random() < 0.5:
            run = rng.uniform(*SLOPE_RUN)
            corners = _side(low, high, downhill, 0.0, run)
            boxes.append(Box(*corners, top=0.0, bottom=-FOUNDATION, slope=depth / run, downhill=downhill))
            continue
        tread_start = 0.0
        for level in levels[:-1].tolist():
            tread_end = tread_start + rng.uniform(*STEP_WIDTH)
            corners = _side(low, high, downhill, tread_start, tread_end)
            boxes.append(Box(*corners, top=level, bottom=level - FOUNDATION))
            tread_start = tread_end
    return boxes


def _side(
    low: NDArray[np.float64], high: NDArray[np.float64], inwards: tuple[int, int], start: float, end: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Corners of the strip that lies between `start` and `end` metres inwards from one side of a rectangle."""
    low, high = low.copy(), high.copy()
    axis = 0 if inwards[0] else 1
    if inwards[axis] > 0:
        low[axis], high[axis] = low[axis] + start, low[axis] + end
    else:
        low[axis], high[axis] = high[axis] - end, high[axis] - start
    return tuple(low), tuple(high)


TERRAINS: dict[str, Callable[[int, int], Terrain]] = {"empty": empty, "maze": maze, "pyramid": pyramid, "cave": cave}
