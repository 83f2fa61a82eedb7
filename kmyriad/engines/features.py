"""What can be explored in anybody's environment, by name: columns of its observation, its info, its simulator.

| name | what it is |
|---|---|
| `3`, `0:2`, `-1` | columns of the observation, flattened |
| `achieved_goal`, `achieved_goal[0]` | a part of a Dict observation, or some of its columns |
| `info.x_position` | a number, or several, of the info |
| `x`, `y`, `z` | of a MuJoCo robot's root, where it slides or floats |
| `qpos[0:2]`, `qvel`, `rootz` | MuJoCo's positions and velocities; the position of a joint |
| `torso.x`, `torso` | a coordinate, or all three, of a body or site |
| `package.module:function` | what a function of observation and info returns |
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box, Dict, flatdim, flatten_space
from numpy.typing import NDArray

from kmyriad.engines.source import GIVEN, find_function
from kmyriad.envs.plane import Feature
from kmyriad.errors import UsageError, first_line, nearest_name

Kind = Literal["observation", "info", "qpos", "qvel", "body", "site", "function"]

COLUMNS = re.compile(r"-?\d*(:-?\d*)?")
"""`3`, `0:2`, or nothing for all."""
AXES = "xyz"
CELL = 1.0
"""Side of a coverage cell where nothing says how large things are: a metre, or one of whatever it is."""
CELLS = 20
"""Coverage cells along a number whose range is known."""
WIDE = 1000.0
"""Ranges beyond this say nothing about where an environment is lived in."""
STILL = 1e-6
"""A root that moves less than this is bolted down."""
DEPTH = 3
"""How deep inside an environment a simulator is looked for."""


@dataclass(frozen=True)
class Term:
    """Some numbers by name."""

    name: str
    kind: Kind
    key: str | int = ""
    """Of the info, of a body or site, of a function."""
    columns: tuple[int, ...] = ()
    """Within what `kind` and `key` say; empty for all."""
    features: tuple[Feature, ...] = ()
    """One per number, once that is known."""

    @cached_property
    def where(self) -> slice | list[int]:
        """The columns, as a slice where they follow each other: that is faster."""
        columns = self.columns
        if not columns:
            return slice(None)
        is_run = columns == tuple(range(columns[0], columns[-1] + 1))
        return slice(columns[0], columns[-1] + 1) if is_run else list(columns)


@dataclass(frozen=True)
class Seen:
    """One environment just after a reset or step, as terms are read from it."""

    flat: NDArray[Any]
    """(d,), the observation, flattened."""
    observation: Any
    """As the environment gave it."""
    info: Mapping[str, Any]
    simulator: Any
    """What has a MuJoCo `model` and `data`, or None."""


def find_simulator(env: gymnasium.Env[Any, Any]) -> Any:
    """Whatever in an environment has a MuJoCo model and data, None if nothing has: itself, or a part of it."""
    places: list[Any] = [env.unwrapped]
    for _ in range(DEPTH):
        for place in places:
            if _mujoco(place) is not None:
                return place
        parts = [part for place in places for part in getattr(place, "__dict__", {}).values()]
        places = [part for part in parts if hasattr(part, "__dict__") and not isinstance(part, type)]
    return None


def _mujoco(place: Any) -> tuple[mujoco.MjModel, mujoco.MjData] | None:
    """(model, data), also behind dm_control's wrappers."""
    model, data = (getattr(place, name, None) for name in ("model", "data"))
    model, data = getattr(model, "ptr", model), getattr(data, "ptr", data)
    return (model, data) if isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData) else None


def data_of(simulator: Any) -> mujoco.MjData:
    """As it is now: some environments make a new one when they are reset."""
    data = getattr(simulator, "data", None)
    if type(data) is mujoco.MjData:  # what most have, and every step asks
        return data
    found = _mujoco(simulator)
    assert found is not None
    return found[1]


def root_terms(simulator: Any) -> list[Term]:
    """x, y and z of a MuJoCo robot's root, as far as it floats or slides."""
    found = _mujoco(simulator)
    if found is None or not found[0].njnt:
        return []
    model = found[0]
    places: list[tuple[str, int]] = []
    for joint in np.flatnonzero(model.jnt_bodyid == model.jnt_bodyid[0]):
        address, kind = int(model.jnt_qposadr[joint]), model.jnt_type[joint]
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            places += [(axis, address + index) for index, axis in enumerate(AXES)]
        elif kind == mujoco.mjtJoint.mjJNT_SLIDE:
            along = np.flatnonzero(np.abs(model.jnt_axis[joint]) > 1 - STILL)
            places.append((AXES[along[0]] if along.size else model.joint(joint).name, address))
    if len({name for name, _ in places}) < len(places):
        return []
    return [Term(name, "qpos", columns=(column,), features=(Feature(name, "m", 1.0, CELL),)) for name, column in places]


def parse_terms(
    names: Sequence[str], space: gymnasium.Space[Any], seen: Seen, roots: Sequence[Term] = ()
) -> tuple[Term, ...]:
    """What `names` mean in an environment with this observation space; without any, what is sensible to explore.

    That is the position of a robot that moves about (`roots`), else what a goal environment calls achieved, else all
    that it observes.
    """
    by_name = {term.name: term for term in roots}
    parts = observation_parts(space)
    if names:
        terms = [by_name[name] if name in by_name else _parse(name, parts, seen, [*by_name]) for name in names]
    elif roots:
        terms = [*roots]
    elif "achieved_goal" in parts:
        terms = [Term("achieved_goal", "observation", columns=parts["achieved_goal"])]
    else:
        terms = [Term("", "observation", columns=tuple(range(len(seen.flat))))]
    return tuple(_told(term, space, seen) for term in terms)


def read_terms(terms: Sequence[Term], seen: Seen, out: NDArray[np.float64]) -> None:
    """Write all numbers of `terms` side by side into `out` (f,)."""
    start = 0
    for term in terms:
        values = _read(term, seen)
        out[start : start + values.size] = values
        start += values.size


def merged(terms: Sequence[Term]) -> list[Term]:
    """The same numbers in fewer terms: neighbours of one kind are read at once."""
    together: list[Term] = []
    for term in terms:
        last = together[-1] if together else None
        if last is not None and (last.kind, last.key) == (term.kind, term.key) and last.columns and term.columns:
            together[-1] = replace(last, columns=last.columns + term.columns, features=last.features + term.features)
        else:
            together.append(term)
    return together


def columns_of(terms: Sequence[Term]) -> tuple[int, ...] | None:
    """Where in the flattened observation the numbers of `terms` are; None where one of them is not."""
    if any(term.kind != "observation" for term in terms):
        return None
    return tuple(column for term in terms for column in term.columns)


def observation_parts(space: gymnasium.Space[Any], name: str = "") -> dict[str, tuple[int, ...]]:
    """Columns of the flattened observation by the names of a Dict's parts, `outer.inner` for those within."""
    if not isinstance(space, Dict):
        return {}
    parts: dict[str, tuple[int, ...]] = {}
    start = 0
    for key, part in space.spaces.items():
        full = f"{name}.{key}" if name else str(key)
        size = flatdim(part)
        parts[full] = tuple(range(start, start + size))
        inner = observation_parts(part, full)
        parts |= {key: tuple(start + column for column in columns) for key, columns in inner.items()}
        start += size
    return parts


def _parse(name: str, parts: Mapping[str, tuple[int, ...]], seen: Seen, roots: Sequence[str]) -> Term:
    if name.startswith(GIVEN) or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name):
        return Term(name, "function", name)
    base, index = _indexed(name)
    if base == "":
        return Term(name, "observation", columns=_columns(name, index, len(seen.flat)))
    if base in parts:
        inner = _columns(name, index, len(parts[base]))
        return Term(name, "observation", columns=tuple(parts[base][column] for column in inner))
    if base.startswith("info."):
        return _of_info(name, base.removeprefix("info."), index, seen)
    if seen.simulator is not None:
        term = _of_simulator(name, base, index, data_of(seen.simulator), _mujoco(seen.simulator))
        if term is not None:
            return term
    known = [f"0 to {len(seen.flat) - 1} (columns of the observation)", *parts, *roots]
    known += [f"info.{key}" for key in seen.info]
    known += ["qpos", "qvel", "names of joints, bodies and sites"] if seen.simulator is not None else []
    raise UsageError(f"unknown feature {name!r}{nearest_name(name, known)}")


def _indexed(name: str) -> tuple[str, str]:
    """(what is indexed, the index): `qpos[0:2]` is `qpos` and `0:2`, `3` is the observation's `3`."""
    if COLUMNS.fullmatch(name):
        return "", name
    match = re.fullmatch(r"(.+)\[([-\d:]+)\]", name)
    return (match[1], match[2]) if match else (name, "")


def _columns(name: str, index: str, size: int) -> tuple[int, ...]:
    """The columns that an index (`2`, `0:3`, nothing for all) chooses of `size`."""
    first, colon, last = index.partition(":")
    everything = range(size)
    try:
        if index and not colon:
            chosen: Sequence[int] = (everything[int(first)],)
        else:
            chosen = everything[slice(int(first) if first else None, int(last) if last else None)]
    except (ValueError, IndexError):
        chosen = ()
    if not len(chosen):
        raise UsageError(f"feature {name!r} has no such columns; there are {size}, from 0 to {size - 1}")
    return tuple(chosen)


def _of_info(name: str, key: str, index: str, seen: Seen) -> Term:
    if key not in seen.info:
        raise UsageError(f"unknown feature {name!r}{nearest_name(name, [f'info.{one}' for one in seen.info])}")
    try:
        values = np.atleast_1d(np.asarray(seen.info[key], np.float64)).ravel()
    except (TypeError, ValueError):
        raise UsageError(f"feature {name!r} is no number but {type(seen.info[key]).__name__}; choose another") from None
    return Term(name, "info", key, _columns(name, index, values.size))


def _of_simulator(name: str, base: str, index: str, data: mujoco.MjData, found: Any) -> Term | None:
    model = found[0]
    if base in ("qpos", "qvel"):
        kind: Kind = "qpos" if base == "qpos" else "qvel"
        return Term(name, kind, columns=_columns(name, index, getattr(data, base).size))
    if base in [model.joint(joint).name for joint in range(model.njnt)]:
        joint = model.joint(base)
        size = {mujoco.mjtJoint.mjJNT_FREE: 7, mujoco.mjtJoint.mjJNT_BALL: 4}.get(mujoco.mjtJoint(joint.type[0]), 1)
        inner = _columns(name, index, size)
        return Term(name, "qpos", columns=tuple(int(joint.qposadr[0]) + column for column in inner))
    thing, dot, axis = base.rpartition(".")
    if not (dot and axis in AXES and len(axis) == 1):
        thing, axis = base, ""
    for kind, count, view in (("body", model.nbody, model.body), ("site", model.nsite, model.site)):
        if thing in [view(place).name for place in range(count)]:
            columns = (AXES.index(axis),) if axis else _columns(name, index, 3)
            return Term(name, "body" if kind == "body" else "site", view(thing).id, columns)
    return None


def _read(term: Term, seen: Seen) -> NDArray[np.float64]:
    """(k,), the numbers of a term."""
    match term.kind:
        case "observation":
            values: Any = seen.flat
        case "info":
            values = np.atleast_1d(np.asarray(seen.info.get(str(term.key), math.nan), np.float64)).ravel()
        case "qpos":
            values = data_of(seen.simulator).qpos
        case "qvel":
            values = data_of(seen.simulator).qvel
        case "body":
            values = data_of(seen.simulator).xpos[term.key]
        case "site":
            values = data_of(seen.simulator).site_xpos[term.key]
        case "function":
            made = find_function(str(term.key))(seen.observation, seen.info)
            values = np.atleast_1d(np.asarray(made, np.float64)).ravel()
    return values[term.where]


def _told(term: Term, space: gymnasium.Space[Any], seen: Seen) -> Term:
    """`term` with a feature for each of its numbers: how it is called, its unit, and how large things are in it."""
    if term.features:
        return term
    try:
        size = _read(term, seen).size
    except Exception as error:  # a function of somebody's own
        raise UsageError(f"feature {term.name!r} raised {type(error).__name__}: {first_line(error)}") from error
    if size == 0:
        raise UsageError(f"feature {term.name!r} has no numbers; choose another")
    one = Feature(term.name, "", 0.0, CELL)
    if term.kind in ("body", "site"):
        found = _mujoco(seen.simulator)
        assert found is not None
        extent = float(found[0].stat.extent)
        names = [f"{term.name.split('[')[0]}.{AXES[column]}" for column in term.columns] if size > 1 else [term.name]
        cell = CELL if _has_moving_root(seen) else extent / CELLS
        return replace(term, features=tuple(Feature(name, "m", 1.0, cell) for name in names))
    if term.kind == "observation":
        return replace(term, features=tuple(_of_column(term, column, space) for column in term.columns))
    if term.kind == "qpos":
        return replace(term, features=tuple(_of_position(term, column, seen) for column in term.columns))
    base, columns = term.name.split("[")[0], term.columns or tuple(range(size))
    names = [term.name] if size == 1 else [f"{base}[{index}]" for index in columns]
    return replace(term, features=tuple(replace(one, name=name) for name in names))


def _of_column(term: Term, column: int, space: gymnasium.Space[Any]) -> Feature:
    """A column of the observation: its cell is a part of its range, where that is known."""
    flat = flatten_space(space)
    assert isinstance(flat, Box)
    low, high = float(flat.low[column]), float(flat.high[column])
    cell = (high - low) / CELLS if 0 < high - low <= WIDE else CELL
    if COLUMNS.fullmatch(term.name):
        return Feature(str(column), "", 0.0, cell)
    if len(term.columns) == 1:
        return Feature(term.name, "", 0.0, cell)
    base, parts = term.name.split("[")[0], observation_parts(space)
    return Feature(f"{base}[{column - parts[base][0]}]", "", 0.0, cell)


def _of_position(term: Term, column: int, seen: Seen) -> Feature:
    """One of MuJoCo's positions: of a slide in metres, of a hinge in radians."""
    found = _mujoco(seen.simulator)
    assert found is not None
    model = found[0]
    joint = int(np.flatnonzero(model.jnt_qposadr <= column)[-1])
    offset, kind = column - int(model.jnt_qposadr[joint]), model.jnt_type[joint]
    is_length = kind == mujoco.mjtJoint.mjJNT_SLIDE or (kind == mujoco.mjtJoint.mjJNT_FREE and offset < 3)
    is_angle = kind == mujoco.mjtJoint.mjJNT_HINGE
    low, high = model.jnt_range[joint]
    if model.jnt_limited[joint] and (is_length or is_angle):
        cell = float(high - low) / CELLS
    else:
        cell = CELL if is_length else math.pi / 10 if is_angle else 0.1
    name = term.name if len(term.columns) == 1 else f"qpos[{column}]"
    return Feature(name, "m" if is_length else "rad" if is_angle else "", 1.0 if is_length else 0.0, cell)


def _has_moving_root(seen: Seen) -> bool:
    found = _mujoco(seen.simulator)
    return found is not None and bool(found[0].njnt) and found[0].jnt_type[0] in (
        mujoco.mjtJoint.mjJNT_FREE,
        mujoco.mjtJoint.mjJNT_SLIDE,
    )  # fmt: skip
