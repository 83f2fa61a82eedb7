"""Settings to worlds to environments: what the registered ids call."""

import inspect
from collections.abc import Callable
from typing import Any

from kmyriad.envs.ant import Ant
from kmyriad.envs.maze import Cell, GridMap, Rows, named_map, parse_map
from kmyriad.envs.point_maze import CELL, WALL_HEIGHT, PointMaze
from kmyriad.envs.single_env import MujocoEnv
from kmyriad.envs.terrain import MAZE_CELL, TERRAINS, maze_of, walled
from kmyriad.envs.vector_env import MujocoVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, nearest_name


def ant_world(
    terrain: str = "empty",
    *,
    size: int = 5,
    terrain_seed: int = 0,
    map: str | Rows | None = None,
    timestep: float = 1 / 60,
    decimation: int = 5,
    horizon: int = 600,
    armature: float = 0.05,
    density: float = 5.0,
    reset_noise: float = 0.0,
) -> Ant:
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
    """
    if terrain not in TERRAINS:
        raise UsageError(f"unknown terrain {terrain!r}{nearest_name(terrain, TERRAINS)}")
    if size < 1 or size % 2 == 0 or (size == 1 and terrain != "empty"):
        raise UsageError(f"size must be an odd number of at least 3, so that the start is in the middle; got {size}")
    if map is not None and terrain != "maze":
        raise UsageError(f"map goes with terrain 'maze' only; got map={map!r} with terrain {terrain!r}")
    _check_settings(timestep, decimation, horizon, reset_noise)
    _check_positive("armature", armature)
    _check_positive("density", density)
    if terrain_seed < 0:
        raise UsageError(f"terrain_seed must be 0 or above; got {terrain_seed}")
    ground = TERRAINS[terrain](size, terrain_seed) if map is None else maze_of(_parse_map(map, MAZE_CELL, None))
    return Ant(ground, timestep, decimation, horizon, armature, density, reset_noise)


def point_maze_world(
    *,
    map: str | Rows = "ring",
    start: Cell | None = None,
    timestep: float = 0.01,
    decimation: int = 1,
    horizon: int = 600,
    reset_noise: float = 0.0,
) -> PointMaze:
    """The ball in a maze.

    Args:
        map: u, medium, large or ring, or rows of 0 (free) and 1 (wall).
        start: (row, column) of the cell where episodes begin; a named map brings its own.
        timestep: of the physics, seconds.
        decimation: physics steps per control step.
        horizon: control steps per episode.
        reset_noise: 0 starts every episode in the middle of the start cell; 1 is Gymnasium-Robotics' +-0.25 cell.
    """
    _check_settings(timestep, decimation, horizon, reset_noise)
    grid = _parse_map(map, CELL, start)
    name = map if isinstance(map, str) else "own map"
    return PointMaze(walled(name, grid, WALL_HEIGHT, merge=False), timestep, decimation, horizon, reset_noise)


def make_ant(**settings: Any) -> MujocoEnv:
    """`gymnasium.make("kmyriad/Ant...-v0", **settings)`: settings of `ant_world` and of `MujocoEnv`."""
    return _make(ant_world, settings)


def make_ant_vector(**settings: Any) -> MujocoVectorEnv:
    """`gymnasium.make_vec("kmyriad/Ant...-v0", num_envs, **settings)`: of `ant_world` and of `MujocoVectorEnv`."""
    return _make_vector(ant_world, settings)


def make_point_maze(**settings: Any) -> MujocoEnv:
    """`gymnasium.make("kmyriad/PointMaze-v0", **settings)`: settings of `point_maze_world` and of `MujocoEnv`."""
    return _make(point_maze_world, settings)


def make_point_maze_vector(**settings: Any) -> MujocoVectorEnv:
    """`gymnasium.make_vec("kmyriad/PointMaze-v0", num_envs, **settings)`."""
    return _make_vector(point_maze_world, settings)


def _make(make_world: Callable[..., World], settings: dict[str, Any]) -> MujocoEnv:
    world_settings, env_settings = _split(settings, make_world, MujocoEnv)
    return MujocoEnv(make_world(**world_settings), **env_settings)


def _make_vector(make_world: Callable[..., World], settings: dict[str, Any]) -> MujocoVectorEnv:
    if "max_episode_steps" in settings:  # Gymnasium's name for the horizon
        settings["horizon"] = settings.pop("max_episode_steps")
    world_settings, env_settings = _split(settings, make_world, MujocoVectorEnv)
    return MujocoVectorEnv(make_world(**world_settings), **env_settings)


def _split(
    settings: dict[str, Any], make_world: Callable[..., World], environment: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the world, and settings of the environment around it, told apart by name."""
    of_world = set(inspect.signature(make_world).parameters)
    of_environment = set(inspect.signature(environment).parameters) - {"world"}
    for name in settings:
        if name not in of_world | of_environment:
            raise UsageError(f"unknown setting {name!r}{nearest_name(name, sorted(of_world | of_environment))}")
    world_settings = {name: value for name, value in settings.items() if name in of_world}
    return world_settings, {name: value for name, value in settings.items() if name not in of_world}


def _parse_map(map: str | Rows, cell_size: float, start: Cell | None) -> GridMap:
    return named_map(map, cell_size, start) if isinstance(map, str) else parse_map(map, cell_size, start)


def _check_settings(timestep: float, decimation: int, horizon: int, reset_noise: float) -> None:
    """The settings that every world has."""
    _check_positive("timestep", timestep)
    for name, count in (("decimation", decimation), ("horizon", horizon)):
        if count < 1:
            raise UsageError(f"{name} must be at least 1; got {count}")
    if not 0 <= reset_noise < float("inf"):
        raise UsageError(f"reset_noise must be 0 (always the same start) or above; got {reset_noise}")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} must be a number above 0; got {value}")
