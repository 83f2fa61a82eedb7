"""Settings to worlds to environments: what the registered ids call."""

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any, get_type_hints

from kmyriad.checks import Between, checked
from kmyriad.envs import WORLDS, short_name
from kmyriad.envs.single_env import WorldEnv
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, nearest_name


def make_world(world: str, **settings: Any) -> World:
    """One of `WORLDS`, by its short name or Gymnasium id: its terrain, model and features, without an engine."""
    maker = _maker(world)
    return maker(**_told_apart(world, settings, {})[0])


def make_env(world: str, **settings: Any) -> WorldEnv:
    """`gymnasium.make(id, **settings)`: settings of the world and of `WorldEnv`."""
    of_world, of_env = _told_apart(world, settings, _parameters(WorldEnv.__init__))
    return WorldEnv(_maker(world)(**of_world), **of_env)


def make_vector_env(world: str, num_envs: int, **settings: Any) -> WorldVectorEnv:
    """`gymnasium.make_vec(id, num_envs, **settings)`: settings of the world and of `WorldVectorEnv`."""
    num_envs = checked("num_envs", num_envs, Annotated[int, Between(1, 10_000_000)])
    if "max_episode_steps" in settings:  # Gymnasium's name for the horizon
        if "horizon" in settings:
            raise UsageError("max_episode_steps and horizon are the same thing here; give horizon only")
        settings["horizon"] = settings.pop("max_episode_steps")
    of_world, of_env = _told_apart(world, settings, _parameters(WorldVectorEnv.__init__))
    return WorldVectorEnv(_maker(world)(**of_world), num_envs, **of_env)


def _maker(world: str) -> Callable[..., World]:
    """The function that makes a world."""
    name = short_name(world)
    if name not in WORLDS:
        raise UsageError(f"unknown world {world!r}{nearest_name(str(world), WORLDS)}")
    module, function = WORLDS[name].maker.split(":")
    return getattr(import_module(module), function)


def _told_apart(
    world: str, settings: dict[str, Any], env_parameters: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the world, and settings of the environment around it, each of its annotated type."""
    world_parameters = _parameters(_maker(world))
    settings = WORLDS[short_name(world)].settings | settings
    for name in settings:
        if name not in world_parameters | env_parameters:
            raise UsageError(f"unknown setting {name!r}{nearest_name(name, sorted(world_parameters | env_parameters))}")
    told = {name: checked(name, value, (world_parameters | env_parameters)[name]) for name, value in settings.items()}
    of_world = {name: value for name, value in told.items() if name in world_parameters}
    return of_world, {name: value for name, value in told.items() if name not in world_parameters}


@cache
def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and annotations of a function's settings."""
    hints = get_type_hints(function, include_extras=True)
    names = inspect.signature(function).parameters
    return {name: hints[name] for name in names if name not in ("self", "world", "num_envs")}
