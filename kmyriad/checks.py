"""Settings of the right type and within their limits, or one sentence: what, the value, what it should be."""

import math
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from kmyriad.errors import UsageError, nearest_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


LONGEST_SHOWN = 200
"""Characters of a value in a sentence."""


@dataclass(frozen=True)
class Between:
    """Inclusive limits of a number: `Annotated[int, Between(1, 10)]`."""

    low: float
    high: float


def check_fields(block: "DataclassInstance") -> None:
    """Bring every field of a frozen dataclass to its annotated type, or refuse it.

    Whole floats do for counts (1e6 steps), NumPy's numbers for Python's, lists for tuples.
    """
    for name, kind in _hints(type(block)).items():
        object.__setattr__(block, name, checked(name, getattr(block, name), kind))


def checked(name: str, value: Any, kind: Any) -> Any:
    """`value` as an annotated type `kind`; UsageError if it is none. What is not plain passes: its reader checks it."""
    origin, parameters = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = next((one for one in parameters[1:] if isinstance(one, Between)), None)
        return _within(name, checked(name, value, parameters[0]), limits)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in parameters:
            return None
        kinds = [one for one in parameters if one is not type(None)]
        return checked(name, value, kinds[0]) if len(kinds) == 1 else value
    if origin is Literal:
        if not isinstance(value, str) or value not in parameters:
            hint = nearest_name(value if isinstance(value, str) else "", parameters)
            raise UsageError(f"unknown {name} {shown(value)}{hint}")
        return value
    if origin is tuple:
        return _tuple(name, value, parameters)
    if origin is dict:
        return _plain_dict(name, value)
    return _scalar(name, value, kind) if kind in (bool, int, float, str) else value


def is_number(value: Any) -> bool:
    """Whether a stored value is a number, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def converted(value: Any) -> Any:
    """`value` as what JSON reads back: lists for tuples, Python's numbers for NumPy's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): converted(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return converted(value.tolist())
    if isinstance(value, list | tuple):
        return [converted(entry) for entry in value]
    return value


def shown(value: Any) -> str:
    """`value` for the end of a sentence: on one line, and only its beginning where it is long."""
    try:
        text = " ".join(repr(value).splitlines())
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    """Annotations of a dataclass's fields, kept as they take long to find."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def _within(name: str, value: Any, limits: Between | None) -> Any:
    if limits is not None and value is not None and not limits.low <= value <= limits.high:
        raise UsageError(f"{name} must be between {limits.low:g} and {limits.high:g}; got {shown(value)}")
    return value


def _tuple(name: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise UsageError(f"{name} must be a list; got {shown(value)}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise UsageError(f"{name} must have {len(kinds)} values; got {shown(value)}")
    return tuple(checked(f"each of {name}", one, kind) for one, kind in zip(value, kinds, strict=True))


def _plain_dict(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name} must be names and values; got {shown(value)}")
    plain: dict[str, Any] = converted(value)
    for key, entry in plain.items():
        if not _is_plain(entry):
            raise UsageError(f"{key!r} in {name} must be numbers, text or lists of these; got {shown(entry)}")
    return plain


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(entry) for entry in value.values())
    if isinstance(value, list):
        return all(_is_plain(entry) for entry in value)
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _scalar(name: str, value: Any, kind: type) -> Any:
    """A bool, int, float or str."""
    plain = value.item() if isinstance(value, np.generic) else value
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool) and abs(plain) <= sys.float_info.max
    if kind is bool and isinstance(plain, bool):
        return plain
    if kind is str and isinstance(plain, str):
        return plain
    if kind is int and is_number and plain == int(plain):
        return int(plain)
    if kind is float and is_number:
        return float(plain)
    words = {bool: "true or false", str: "text", int: "a whole number", float: "a finite number"}
    raise UsageError(f"{name} must be {words[kind]}; got {shown(value)}")
