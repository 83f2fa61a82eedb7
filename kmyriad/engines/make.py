"""The engine for an environment, by what it is and can."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from kmyriad.engines.engine import Engine
from kmyriad.engines.gym_engine import GymEngine, Spread, probe
from kmyriad.engines.replica import Goal
from kmyriad.engines.source import Source, find_source
from kmyriad.engines.vector_engine import VectorEngine
from kmyriad.engines.world_engine import WorldEngine
from kmyriad.envs import WORLDS, short_name
from kmyriad.envs.make import make_vector_env, make_world
from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.plane import Feature
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import UsageError, first_line, nearest_name, need

EngineName = Literal["auto", "serial", "processes", "vector", "warp"]

CONTACTS, CONSTRAINTS = 64, 256
"""For which each replica of engine warp has room. With more, MuJoCo Warp leaves some out and says so: the replica has
diverged."""

OURS = ("horizon", "max_episode_steps", "threads", "autoreset_mode", "num_envs", "world", "vectorization_mode")
"""What replicas decide themselves, whatever an environment calls its settings."""


@dataclass(frozen=True)
class GoalPoint:
    """A goal as it is asked for: a point in the first features, or in those named."""

    point: tuple[float, ...]
    names: tuple[str, ...] = ()
    radius: float | None = None
    """None for the environment's own."""
    ends: bool = False
    """Whether it ends the episode."""


def make_engine(
    env: str,
    count: int,
    *,
    horizon: int,
    features: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    goal: GoalPoint | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    device: str = "cpu",
    numbers: NDArray[np.int64] | None = None,
) -> Engine:
    """`count` replicas of whatever `env` names, with `features` to be explored (empty: what is sensible for it).

    `device` is for engines that can live on one: the torch device of the policies. `numbers` (count,) are those of the
    replicas in a run of several processes, which their seeds depend on; by default from 0 on.
    """
    numbers = np.arange(count) if numbers is None else numbers
    settings = dict(settings or {})
    for name in OURS:
        if name in settings:
            raise UsageError(f"{name} is no setting of the environment here; give the run's own, such as --horizon")
    if engine == "warp":
        return _of_warp(env, count, horizon, features, settings, goal, device, numbers)
    if short_name(env) in WORLDS:
        return _of_world(short_name(env), count, horizon, features, settings, goal, threads, numbers)
    source = find_source(env)
    if source.makes_many or (engine in ("auto", "vector") and _has_own_vector(source, features)):
        return _of_vector(env, source, count, horizon, features, settings, goal, device, numbers)
    if engine == "vector":
        raise UsageError(f"{env} has no vector version of its own; use engine auto")
    return _of_singles(env, source, count, features, settings, goal, threads, engine, numbers)


def resolved(goal: GoalPoint | None, features: Sequence[Feature]) -> Goal | None:
    """The goal in terms of these features."""
    if goal is None:
        return None
    names = [feature.name for feature in features]
    asked = goal.names or tuple(names[: len(goal.point)])
    if len(goal.point) != len(asked) or len(goal.point) > len(names):
        raise UsageError(f"goal must have at most {len(names)} numbers, one per feature ({', '.join(names)}); got"
                         f" {len(goal.point)}")  # fmt: skip
    for name in asked:
        if name not in names:
            raise UsageError(f"goal names {name!r}, which is not among the features{nearest_name(name, names)}")
    places = tuple(names.index(name) for name in asked)
    radii = tuple(goal.radius or features[place].cell for place in places)
    return Goal(places, goal.point, radii, goal.ends)


def _of_world(
    name: str,
    count: int,
    horizon: int,
    features: Sequence[str],
    settings: dict[str, Any],
    goal: GoalPoint | None,
    threads: int | None,
    numbers: NDArray[np.int64],
) -> Engine:
    settings |= _goal_in_world(name, goal)
    env = make_vector_env(
        name, count, horizon=horizon, threads=threads, autoreset_mode=AutoresetMode.DISABLED, **settings
    )
    return WorldEngine(env, tuple(features) or WORLDS[name].features, numbers)


def _of_warp(
    env: str,
    count: int,
    horizon: int,
    features: Sequence[str],
    settings: dict[str, Any],
    goal: GoalPoint | None,
    device: str,
    numbers: NDArray[np.int64],
) -> Engine:
    """One of our worlds, or what a function makes that is a `World`."""
    need("engine warp", "warp", "warp", "mujoco_warp")
    from kmyriad.engines.warp_engine import WarpEngine  # late: it takes seconds, and torch

    name = short_name(env)
    if name in WORLDS:
        world: Any = make_world(name, horizon=horizon, **settings)
        features = tuple(features) or WORLDS[name].features
    else:
        world = _made(env, find_source(env).make, **settings)
    if not isinstance(world, World):
        raise UsageError(f"engine warp steps worlds, and {env} makes {type(world).__name__}; use engine auto")
    return WarpEngine(world, features or _explored(world), numbers, device, **_goal_in_world(env, goal))


def _explored(world: World) -> Sequence[str]:
    """What is sensible to explore in somebody's world: where the robot is, else all that it observes."""
    return [axis for axis in "xyz" if axis in world.features] or tuple(world.features)


def _goal_in_world(env: str, goal: GoalPoint | None) -> dict[str, Any]:
    """A goal as settings of a world's engine."""
    if goal is None:
        return {}
    if goal.names not in ((), ("x", "y"), ("x", "y", "z")):
        raise UsageError(f"a goal in {env} is x y, or x y z; got {' '.join(goal.names)}")
    return {"goal": goal.point, "goal_radius": goal.radius, "ends_at_goal": goal.ends}


def _of_singles(
    env: str,
    source: Source,
    count: int,
    features: Sequence[str],
    settings: dict[str, Any],
    goal: GoalPoint | None,
    threads: int | None,
    engine: EngineName,
    numbers: NDArray[np.int64],
) -> Engine:
    def make() -> Any:
        with silenced():
            return source.make(**settings)

    first = _made(env, make)
    if not isinstance(first, gymnasium.Env) and isinstance(first, World):
        replicas = WorldVectorEnv(
            first, count, threads=threads, autoreset_mode=AutoresetMode.DISABLED, **_goal_in_world(env, goal)
        )
        return WorldEngine(replicas, features or _explored(first), numbers)
    if not isinstance(first, gymnasium.Env):
        raise UsageError(f"{env} makes no Gymnasium environment but {type(first).__name__}; mend or wrap it")
    known = _made(env, partial(probe, lambda: first, features))
    spread: Spread = engine if engine == "serial" or engine == "processes" else "auto"
    told = [feature for term in known.terms for feature in term.features]
    return GymEngine(make, count, known, resolved(goal, told), spread, threads, numbers)


def _of_vector(
    env: str,
    source: Source,
    count: int,
    horizon: int,
    features: Sequence[str],
    settings: dict[str, Any],
    goal: GoalPoint | None,
    device: str,
    numbers: NDArray[np.int64],
) -> Engine:
    if source.makes_many and source.takes_device:
        settings = {"device": device} | settings
    make = source.make if source.makes_many else partial(source.make_vector or source.make, max_episode_steps=horizon)
    made = _made(env, make, num_envs=count, **settings)
    if not isinstance(made, gymnasium.vector.VectorEnv):
        return _of_simulator(env, made, count, features, goal, numbers)
    if made.num_envs != count:
        raise UsageError(_wrong_count(env, count, made.num_envs))
    engine = VectorEngine(made, features, numbers)
    return engine if goal is None else VectorEngine(made, features, numbers, resolved(goal, engine.features))


def _made(env: str, make: Callable[..., Any], **settings: Any) -> Any:
    """What a function of somebody's makes of settings; whatever it raises instead is one sentence."""
    try:
        return make(**settings)
    except UsageError:
        raise
    except Exception as error:  # what somebody's environment raises is anyone's guess
        raise UsageError(f"{env} cannot be made: {type(error).__name__}: {first_line(error)}") from error


def _of_simulator(
    env: str, made: Any, count: int, features: Sequence[str], goal: GoalPoint | None, numbers: NDArray[np.int64]
) -> Engine:
    """Mjlab's environments and Isaac Lab's, which are vector environments of their own kind."""
    from kmyriad.engines.simulator_engine import SimulatorEngine, is_simulator  # late: it takes torch

    if not is_simulator(made):
        raise UsageError(f"{env} takes num_envs and makes no vector environment but {type(made).__name__}; mend it")
    if made.unwrapped.num_envs != count:
        raise UsageError(_wrong_count(env, count, made.unwrapped.num_envs))
    engine = SimulatorEngine(made, features, numbers)
    aim = resolved(goal, engine.features)
    if aim is not None:
        engine.aim(aim)
    return engine


def _wrong_count(env: str, asked: int, made: int) -> str:
    return f"{env} was asked for {asked} replicas and made {made}; mend it"


def _has_own_vector(source: Source, features: Sequence[str]) -> bool:
    """Whether it has a vector version, and that can tell the features."""
    return source.make_vector is not None and all(name.lstrip("-").replace(":", "").isdecimal() for name in features)
