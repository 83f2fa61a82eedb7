"""What `env` may be: a world, a Gymnasium id, a function in a module, or an object given in Python."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium

from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError, first_line, nearest_name

Environment = gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]
Factory = Callable[..., Environment]

GIVEN = "given:"
"""Names of objects begin with it: they can be made only in the process that they were given in."""

_given: dict[str, Factory | Environment] = {}


@dataclass(frozen=True)
class Source:
    """How an environment is made."""

    make: Factory
    """From its settings by keyword; with `num_envs` among them if `makes_many`."""
    makes_many: bool = False
    """Whether it makes a vector environment of a number of replicas."""
    takes_device: bool = False
    """Whether `device` is among its settings too: where its tensors are to be."""
    make_vector: Factory | None = None
    """Its own vector version, from `num_envs` and settings, where it has one beside single environments."""
    own_horizon: int | None = None
    """Steps after which its episodes end, where that is known without making it."""


def name_of(env: Any) -> str:
    """The name of an environment for a run's settings: as it is, or of a function or object.

    A function that a module has is named after it, and can be found again anywhere. Anything else is kept here, and
    runs of it can be opened only while this process lasts, or once it was given again.
    """
    if isinstance(env, str):
        return env
    if not callable(env) and not isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise UsageError(
            f"env must be a name, a function that makes an environment, or an environment; got {type(env).__name__}"
        )
    name = getattr(env, "__qualname__", type(env).__qualname__)
    module = getattr(env, "__module__", "__main__")
    if callable(env) and module != "__main__" and _in_module(module, name) is env:
        return f"{module}:{name}"
    name = GIVEN + name.replace("<", "").replace(">", "")
    _given[name] = env
    return name


def find_function(name: str) -> Callable[..., Any]:
    """The function that `package.module:function`, or `name_of` of a function, names."""
    found = _given.get(name) if name.startswith(GIVEN) else _in_module(*name.split(":", 1))
    if not callable(found):
        raise UsageError(f"{name} is no function that can be found here; give it again in Python, or in a module")
    return found


def find_source(env: str) -> Source:
    """How to make what `env` names; UsageError if nothing goes by that name."""
    if env.startswith(GIVEN):
        return _given_source(env)
    module, colon, name = env.partition(":")
    if colon and short_name(env) not in WORLDS:
        return _source_in(env, module, name)
    return _registered(WORLDS[env].id if env in WORLDS else env)


def own_horizon(env: str) -> int | None:
    """Steps after which the episodes of `env` end by themselves; None where it does not say, or is none."""
    try:
        return None if short_name(env) in WORLDS else find_source(env).own_horizon
    except UsageError:  # told where it is made
        return None


def _given_source(env: str) -> Source:
    if env not in _given:
        raise UsageError(
            f"{env} was an object given in Python and cannot be made from its name here; give it again in Python, or"
            " train in an environment that a module has (package.module:function)"
        )
    found = _given[env]
    if isinstance(found, gymnasium.Env):
        raise UsageError("one environment cannot be many replicas; give a function that makes a new one each time")
    if isinstance(found, gymnasium.vector.VectorEnv):
        return Source(partial(_ready, found), makes_many=True)
    return _of_function(found)


def _ready(env: Environment, num_envs: int, **settings: Any) -> Environment:
    """The vector environment that was given, if it is one of so many replicas."""
    assert isinstance(env, gymnasium.vector.VectorEnv)
    if settings:
        raise UsageError(f"an environment that is there already takes no settings; leave {', '.join(settings)} out")
    if env.num_envs != num_envs:
        raise UsageError(
            f"the vector environment given has {env.num_envs} replicas and {num_envs} are asked for; ask for"
            f" replicas={env.num_envs}, or give a function of num_envs that makes as many as it is asked for"
        )
    return env


def _source_in(env: str, module: str, name: str) -> Source:
    """`module:function`, or `module:Id-v0` that importing the module registers."""
    found = _in_module(module, name)
    if callable(found):
        return _of_function(found)
    if found is not None:
        raise UsageError(f"{env} is no function that makes an environment, but {type(found).__name__}; name another")
    try:
        return _registered(name)
    except UsageError:
        raise UsageError(
            f"unknown environment {env!r}: module {module} has no function {name!r}, and registers no such id"
        ) from None


def _in_module(module: str, name: str) -> Any:
    """What a module has by that name, None if nothing; modules of the current folder can be named too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: Any = import_module(module)
    except Exception as error:  # whatever the module does when it is imported
        raise UsageError(
            f"module {module!r} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _of_function(function: Factory) -> Source:
    try:
        settings = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin, which has none
        settings = set()
    return Source(function, makes_many="num_envs" in settings, takes_device="device" in settings)


def _registered(env_id: str) -> Source:
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error:
        hint = nearest_name(env_id, [*WORLDS, *gymnasium.registry]).split("; known")[0]
        raise UsageError(
            f"unknown environment {env_id!r}{hint}; use one of {', '.join(WORLDS)}, an id registered with Gymnasium, or"
            " package.module:function"
        ) from None
    # Replicas end episodes themselves, at the run's horizon.
    single = partial(gymnasium.make, spec.id, max_episode_steps=-1, disable_env_checker=True)
    vector = partial(gymnasium.make_vec, spec.id, vectorization_mode="vector_entry_point")
    return Source(
        single, make_vector=vector if spec.vector_entry_point is not None else None, own_horizon=spec.max_episode_steps
    )
