"""One environment of anybody's as plain numbers: observation and features out, actions in, a goal if there is one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, flatten, flatten_space
from numpy.typing import NDArray

from kmyriad.engines.features import Seen, Term, data_of, find_simulator, merged, read_terms
from kmyriad.envs.arrays import Array, like, namespace_of
from kmyriad.envs.vector_env import DIVERGED_WARNINGS
from kmyriad.errors import UsageError

Env = gymnasium.Env[Any, Any]

NOT_TOLD = -1.0


@dataclass(frozen=True)
class Goal:
    """A point in features to come to: reward 1 within reach of it, else 0."""

    features: tuple[int, ...]
    """Which features it is a point in."""
    point: tuple[float, ...]
    radii: tuple[float, ...]
    """How far in each of them is as far as 1."""
    ends: bool
    """Whether it ends the episode."""

    def distance(self, features: Array) -> Array:
        """(...), from features (..., f), in radii: at most 1 is there."""
        xp = namespace_of(features)
        offsets = features[..., list(self.features)] - like(np.array(self.point), features)
        return xp.sqrt(xp.square(offsets / like(np.array(self.radii), features)).sum(axis=-1))


@dataclass(frozen=True)
class Layout:
    """Where everything of a step stands in one row of numbers, so that it can cross processes in shared memory."""

    observation: int
    features: int

    @cached_property
    def reached(self) -> slice:
        return slice(0, self.observation)

    @cached_property
    def following(self) -> slice:
        return slice(self.observation, 2 * self.observation)

    @cached_property
    def explored(self) -> slice:
        return slice(2 * self.observation, 2 * self.observation + self.features)

    @property
    def flags(self) -> int:
        """Of REWARD and what comes after it."""
        return 2 * self.observation + self.features

    @property
    def width(self) -> int:
        return self.flags + 5


REWARD, TERMINATED, DONE, SUCCESS, BROKEN = range(5)
"""Places after `Layout.flags`."""


class Replica:
    """An environment with the features and the goal that are asked for."""

    def __init__(self, make: Callable[[], Env], terms: Sequence[Term], goal: Goal | None) -> None:
        self.env = make()
        self.space = self.env.observation_space
        self._is_flat = isinstance(self.space, Box) and len(self.space.shape) == 1
        self._act = action_of(self.env.action_space)
        self._simulator = find_simulator(self.env)
        self._terms, self._goal = merged(terms), goal
        features = sum(len(term.features) for term in terms)
        self.layout = Layout(flat_space(self.space).shape[0], features)
        self._solved = False
        self._warnings: NDArray[np.int32] | None = None
        """MuJoCo's counters, live."""

    def reset(self, seed: int | None, row: NDArray[np.float64]) -> None:
        """Begin an episode and write what is seen into `row`, as what follows."""
        observation, _ = self.env.reset(seed=seed)
        self._solved = False
        if self._simulator is not None:  # which may have new data after a reset
            self._warnings = data_of(self._simulator).warning.number
        row[self.layout.following] = self._flat(observation)

    def step(self, action: NDArray[Any], last: bool, next_seed: int | None, row: NDArray[np.float64]) -> None:
        """Take a step, and begin the next episode where this one ends, or is told to: all of it goes into `row`."""
        layout, flags = self.layout, self.layout.flags
        observation, reward, terminated, truncated, info = self.env.step(self._act(action))
        flat = self._flat(observation)
        if flat.shape != (layout.observation,):
            raise ValueError(f"its observation has shape {flat.shape} instead of {(layout.observation,)}")
        row[layout.reached] = row[layout.following] = flat
        read_terms(self._terms, Seen(flat, observation, info, self._simulator), row[layout.explored])
        success = info.get("success", info.get("is_success"))
        if self._goal is not None:
            is_there = bool(self._goal.distance(row[layout.explored]) <= 1)
            reward, success = float(is_there), is_there
            terminated = terminated or (is_there and self._goal.ends)
        self._solved |= bool(success)
        done = terminated or truncated or last
        # After these MuJoCo has put the robot back to its start, in the middle of an episode.
        is_broken = self._warnings is not None and any(map(self._warnings.item, DIVERGED_WARNINGS))
        # One by one: as a slice they would be made into an array first, in every step.
        row[flags + REWARD], row[flags + TERMINATED], row[flags + DONE] = reward, terminated, done
        row[flags + SUCCESS], row[flags + BROKEN] = NOT_TOLD if success is None else self._solved, is_broken
        if done:
            self.reset(next_seed, row)

    def seen(self, observation: Any, info: dict[str, Any]) -> Seen:
        """What features are read from."""
        return Seen(self._flat(observation), observation, info, self._simulator)

    def _flat(self, observation: Any) -> NDArray[Any]:
        return np.asarray(observation if self._is_flat else flatten(self.space, observation))


def flat_space(space: gymnasium.Space[Any]) -> Box:
    """Of the flattened observation; UsageError if there is none that a network of vectors can take."""
    parts = list(space.spaces.values()) if isinstance(space, gymnasium.spaces.Dict) else [space]
    for part in parts:
        if isinstance(part, Box) and len(part.shape) >= 2 and math.prod(part.shape) > 1000:
            raise UsageError(
                f"observation {part} is an image, and policies here see vectors; wrap the environment so that it shows"
                " an encoding, or leave the image out"
            )
    try:
        flat = flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, Box):
        raise UsageError(f"observation space {space} has no fixed number of values; wrap the environment")
    return flat


def action_of(space: gymnasium.Space[Any]) -> Callable[[NDArray[Any]], Any]:
    """From the numbers (a,) that policies give to what `space` holds."""
    if isinstance(space, Box):
        shape, kind = space.shape, space.dtype
        return lambda numbers: numbers.reshape(shape).astype(kind, copy=False)
    if isinstance(space, Discrete):
        first = int(space.start)
        return lambda numbers: int(numbers[0]) + first
    if isinstance(space, MultiDiscrete):
        nvec_shape, starts, whole = space.nvec.shape, space.start, space.dtype
        return lambda numbers: (numbers.reshape(nvec_shape).astype(whole) + starts).astype(whole)
    if isinstance(space, MultiBinary):
        shape_of_bits = space.shape
        return lambda numbers: numbers.reshape(shape_of_bits).astype(np.int8)
    raise UsageError(f"action space {space} is not supported; it must be a Box, Discrete, MultiDiscrete or MultiBinary")


def action_size(space: gymnasium.Space[Any]) -> int:
    """Numbers of one action as `action_of` takes it."""
    if isinstance(space, Discrete):
        return 1
    return int(np.prod(space.nvec.shape if isinstance(space, MultiDiscrete) else space.shape or (1,)))
