"""Replicas of anybody's single environment, in this process or shared out over several.

Every episode has a seed of its own, a function of the run's seed, the replica and the episode's number, so replicas do
the same in any number of processes. And an episode is a function of its seed and its actions: to put replicas back into
the middle of their episodes, these are played again. Where an environment does not repeat itself, that shows.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from numpy.typing import NDArray

from kmyriad.engines.engine import Outcome, State
from kmyriad.engines.features import STILL, Seen, Term, columns_of, parse_terms, read_terms, root_terms
from kmyriad.engines.replica import (
    BROKEN,
    DONE,
    NOT_TOLD,
    REWARD,
    SUCCESS,
    TERMINATED,
    Env,
    Goal,
    Layout,
    Replica,
    action_size,
    flat_space,
)
from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.plane import plane_of_features, xy_of
from kmyriad.envs.symmetry import Symmetry
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import TrainingStoppedError, UsageError, first_line

Spread = Literal["auto", "serial", "processes"]

OVERHEAD = 5e-4
"""Seconds that a step of several processes takes longer than their environments do."""
TRIAL_STEPS = 20
"""Steps of one environment that tell how long its steps take, and whether its root moves."""
CLOSING = 5.0
"""Seconds that processes have to answer before they are ended: an interrupt may have taken an answer already."""
LARGEST_SEED = 2**31
"""Seeds of episodes lie below: every environment takes those."""


@dataclass(frozen=True)
class Probe:
    """What is known about an environment after a short trial of one replica."""

    observation_space: gymnasium.spaces.Box
    """Flattened."""
    action_space: gymnasium.Space[Any]
    terms: tuple[Term, ...]
    start: NDArray[np.float64]
    """(f,), the features where the trial began."""
    seconds: float
    """Of one step, the fastest of the trial."""
    seconds_per_step: float | None
    """In the environment's own time."""
    symmetries: tuple[Symmetry, ...]
    """That it declares in an attribute of that name."""


def probe(make: Callable[[], Env], names: Sequence[str]) -> Probe:
    """Make one environment and try it: what cannot work is told in a sentence."""
    replica = Replica(make, (), None)
    env, seconds = replica.env, []
    try:
        observation, info = env.reset(seed=0)
        seen = replica.seen(observation, dict(info))
        roots = root_terms(seen.simulator)
        before = _read(roots, seen)
        env.action_space.seed(0)
        for _ in range(TRIAL_STEPS):
            action = env.action_space.sample()
            started = time.perf_counter()
            observation, _, terminated, truncated, info = env.step(action)
            seconds.append(time.perf_counter() - started)
            seen = replica.seen(observation, {**seen.info, **info})
            if terminated or truncated:
                break
        moves = np.abs(_read(roots, seen) - before) > STILL
        terms = parse_terms(names, replica.space, seen, [term for term, does in zip(roots, moves, strict=True) if does])
        observation, info = env.reset(seed=0)
        start = _read(terms, replica.seen(observation, {**seen.info, **info}))
    except UsageError:
        raise
    except Exception as error:  # what somebody's environment raises is anyone's guess
        raise UsageError(f"the environment failed its trial: {type(error).__name__}: {first_line(error)}") from error
    finally:
        env.close()
    fps, dt = (env.metadata or {}).get("render_fps"), getattr(env.unwrapped, "dt", None)
    step_time = dt if isinstance(dt, int | float) and dt > 0 else 1 / fps if fps else None
    symmetries = tuple(getattr(env.unwrapped, "symmetries", ()))
    flat, begin = flat_space(replica.space), np.nan_to_num(start)
    return Probe(flat, env.action_space, terms, begin, min(seconds), step_time, symmetries)


def _read(terms: Sequence[Term], seen: Seen) -> NDArray[np.float64]:
    """(f,), all numbers of `terms`."""
    values = np.zeros(sum(len(term.features) for term in terms))
    read_terms(terms, seen, values)
    return values


class GymEngine:
    """An `Engine` of single environments that `make` makes."""

    device = "cpu"
    speaks_tensors = False
    obeys_limit = True
    can_be_saved = True
    world: World | None = None
    simulation: WorldVectorEnv | None = None

    def __init__(
        self,
        make: Callable[[], Env],
        count: int,
        known: Probe,
        goal: Goal | None,
        spread: Spread,
        threads: int | None,
        numbers: NDArray[np.int64],
    ) -> None:
        self.count, self.action_space, self._numbers = count, known.action_space, numbers.tolist()
        self.observation_space, self.observation_size = known.observation_space, known.observation_space.shape[0]
        self.features = tuple(feature for term in known.terms for feature in term.features)
        self.plane = plane_of_features(self.features, known.start, known.seconds_per_step)
        self.symmetries, self.columns = known.symmetries, columns_of(known.terms)
        self.tells_success = goal is not None
        self._layout = Layout(self.observation_size, len(self.features))
        self._action_size = action_size(known.action_space)
        processes = _processes(spread, count, known.seconds, threads)
        self._per_chunk = -(-count // processes)
        chunk = partial(Chunk, make, known.terms, goal, self._layout, self._action_size, self._per_chunk, count)
        self._own = chunk(0, is_alone=False)
        self._others: AsyncVectorEnv | None = None
        self._pending = AsyncState.DEFAULT
        """What the others have been asked for and not told yet."""
        chunks = [partial(chunk, index) for index in range(-(-count // self._per_chunk))]
        if len(chunks) > 1:
            self._others = AsyncVectorEnv(chunks[1:], copy=False, autoreset_mode=AutoresetMode.DISABLED)
        self._rows = np.zeros((len(chunks) * self._per_chunk, self._layout.width))
        self._sent = np.zeros((len(chunks) * self._per_chunk, self._action_size + 2))
        self._seed = 0
        self._episode = np.zeros(count, np.int64)
        self._next_seeds = np.zeros(count, np.int64)
        self._age = np.zeros(count, np.int64)
        self._actions = np.zeros((count, 0, self._action_size), np.float32)

    def start(self, seed: int) -> NDArray[np.float32]:
        self._seed, self._episode[:], self._age[:] = seed, 0, 0
        return self._restart()

    def step(self, actions: NDArray[Any], last: NDArray[np.bool_]) -> Outcome:
        sent, size = self._sent[: self.count], self._action_size
        sent[:, :size] = actions.reshape(self.count, size)
        sent[:, size], sent[:, size + 1] = last, self._next_seeds
        self._remember(sent[:, :size])
        rows = self._exchange()
        layout, flags = self._layout, self._layout.flags
        done = rows[:, flags + DONE] > 0
        self._age += 1
        self._age[done] = 0
        self._episode[done] += 1
        self._draw_seeds(np.flatnonzero(done))
        told = rows[:, flags + SUCCESS]
        self.tells_success |= bool((told > NOT_TOLD).any())
        features = rows[:, layout.explored].astype(np.float32)
        return Outcome(
            rows[:, layout.reached].astype(np.float32),
            rows[:, layout.following].astype(np.float32),
            features,
            xy_of(features),
            rows[:, flags + REWARD].copy(),
            rows[:, flags + TERMINATED] > 0,
            done,
            told > 0 if self.tells_success else None,
            rows[:, flags + BROKEN] > 0,
        )

    def get_state(self) -> State:
        length = int(self._age.max(initial=0))
        return {
            "seed": np.array(self._seed, np.int64),
            "episode": self._episode.copy(),
            "age": self._age.copy(),
            "actions": self._actions[:, :length].copy(),
            "seen": self._rows[: self.count, self._layout.following].astype(np.float32),
        }

    def set_state(self, state: State) -> bool:
        ages, actions = state["age"], state["actions"]
        fits = ages.shape == (self.count,) and actions.shape[::2] == (self.count, self._action_size)
        if not fits or actions.shape[1] < ages.max(initial=0) or state["episode"].shape != ages.shape:
            raise ValueError("the replicas' episodes have another shape")
        self._seed, self._episode[:], self._age[:] = int(state["seed"]), state["episode"], ages
        self._actions = actions.copy()
        self._restart()
        for step in range(int(ages.max(initial=0))):  # all of them arrive at the same time
            moving = step >= ages.max() - ages
            sent = self._sent[: self.count]
            at = np.where(moving, step - (ages.max() - ages), 0)
            sent[:, : self._action_size] = actions[np.arange(self.count), at]
            sent[:, self._action_size], sent[:, self._action_size + 1] = np.where(moving, 0, PAUSED), 0
            self._exchange()
        seen = self._rows[: self.count, self._layout.following].astype(np.float32)
        return bool(np.array_equal(seen, state["seen"], equal_nan=True))

    def render(self) -> list[NDArray[np.uint8]]:
        if self._others is not None:
            raise UsageError("pictures are drawn in one process; ask for engine serial")
        return self._own.pictures()

    def close(self) -> None:
        if self._others is not None:
            self._others._state = self._pending  # an interrupt may have come before it noted that itself
            try:
                with warnings.catch_warnings(action="ignore"):  # Gymnasium's words about a step that was interrupted
                    self._others.close(timeout=CLOSING)
            except (EOFError, ConnectionError):  # of one that has ended already
                self._others.close(terminate=True)
        self._own.close()

    def _restart(self) -> NDArray[np.float32]:
        """Reset all replicas with the seeds of their episodes."""
        seeds = np.zeros(len(self._rows), np.int64)
        seeds[: self.count] = [
            episode_seed(self._seed, number, episode)
            for number, episode in zip(self._numbers, self._episode.tolist(), strict=True)
        ]
        self._draw_seeds(np.arange(self.count))
        options = {"seeds": seeds}
        with _alive():
            if self._others is None:
                told = [self._own.reset(options=options)]
            else:
                self._pending = AsyncState.WAITING_RESET
                self._others.reset_async(options=options)
                told = [self._own.reset(options=options), self._others.reset_wait()]
                self._pending = AsyncState.DEFAULT
        self._receive(told)
        return self._rows[: self.count, self._layout.following].astype(np.float32)

    def _exchange(self) -> NDArray[np.float64]:
        """(n, width), what a step of every replica gave for what is to be sent to it."""
        sent = self._sent.reshape(-1, self._per_chunk, self._sent.shape[1])
        with _alive():
            if self._others is None:
                told: list[tuple[Any, ...]] = [self._own.step(sent[0])]
            else:
                self._pending = AsyncState.WAITING_STEP
                self._others.step_async(sent[1:])
                told = [self._own.step(sent[0]), self._others.step_wait()]
                self._pending = AsyncState.DEFAULT
        self._receive(told)
        return self._rows[: self.count]

    def _receive(self, told: Sequence[tuple[Any, ...]]) -> None:
        """Keep the rows that a step or a reset gave, here and in the other processes."""
        for _, *_, info in told:
            for sentence in np.atleast_1d(np.asarray(info.get("error", ()), object)):
                if isinstance(sentence, str) and sentence:
                    raise TrainingStoppedError(f"{sentence}; mend the environment and resume from the last checkpoint")
        np.concatenate([rows.reshape(-1, self._layout.width) for rows, *_ in told], out=self._rows)

    def _draw_seeds(self, replicas: NDArray[np.intp]) -> None:
        """Of the next episodes of some replicas."""
        for replica in replicas.tolist():
            episode = int(self._episode[replica]) + 1
            self._next_seeds[replica] = episode_seed(self._seed, self._numbers[replica], episode)

    def _remember(self, actions: NDArray[np.float64]) -> None:
        """Keep the actions of the episodes under way."""
        longest = int(self._age.max(initial=0)) + 1
        if longest > self._actions.shape[1]:
            grown = np.zeros((self.count, max(longest, 2 * self._actions.shape[1]), self._action_size), np.float32)
            grown[:, : self._actions.shape[1]] = self._actions
            self._actions = grown
        self._actions[np.arange(self.count), self._age] = actions


@contextmanager
def _alive() -> Iterator[None]:
    """Tell in one sentence if a process with replicas has ended, as the system does when memory runs out."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise TrainingStoppedError(
            "a process with replicas of the environment has ended; see that there is memory enough, or use engine"
            " serial, and resume from the last checkpoint"
        ) from error


PAUSED = 2.0
"""In place of whether a step is the last: this replica takes none."""


class Chunk(gymnasium.Env[NDArray[np.float64], NDArray[np.float64]]):
    """Some replicas as one environment, whose observation is everything about all of them, a row each.

    So Gymnasium's own AsyncVectorEnv runs all but the first in processes of their own, while the asking process steps
    that itself. Replicas are made by the first reset: there.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        terms: Sequence[Term],
        goal: Goal | None,
        layout: Layout,
        action_size: int,
        size: int,
        count: int,
        index: int,
        is_alone: bool = True,
    ) -> None:
        self._is_alone = is_alone
        """Whether it has a process of its own."""
        self._make = partial(Replica, make, terms, goal)
        self._first, self._size, self._count = index * size, size, count
        self._replicas: list[Replica] = []
        self._rows = np.zeros((size, layout.width))
        self._steps = np.zeros(size, np.int64)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, self._rows.shape, np.float64)
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (size, action_size + 2), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        assert options is not None
        if not self._replicas:
            if self._is_alone:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
            with silenced():
                self._replicas = [self._make() for _ in range(min(self._size, self._count - self._first))]
        self._steps[:] = 0
        for index, replica in enumerate(self._replicas):
            try:
                replica.reset(int(options["seeds"][self._first + index]), self._rows[index])
            except Exception as error:
                return self._rows, self._failed(index, "reset", error)
        return self._rows, {}

    def step(self, action: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        numbers = action[:, :-2].astype(np.float32)
        ends, seeds = action[:, -2].tolist(), action[:, -1].tolist()
        with silenced():
            for index, replica in enumerate(self._replicas):
                if ends[index] == PAUSED:
                    continue
                self._steps[index] += 1
                try:
                    replica.step(numbers[index], ends[index] > 0, int(seeds[index]), self._rows[index])
                except Exception as error:  # what somebody's environment raises is anyone's guess
                    return self._rows, 0.0, False, False, self._failed(index, "step", error)
        return self._rows, 0.0, False, False, {}

    def pictures(self) -> list[NDArray[np.uint8]]:
        """What each replica's own `render` draws."""
        return [replica.env.render() for replica in self._replicas]  # type: ignore[misc]

    def close(self, **_: Any) -> None:
        for replica in self._replicas:
            replica.env.close()

    def _failed(self, index: int, what: str, error: Exception) -> dict[str, Any]:
        """One sentence for the process that asked."""
        said = first_line(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {first_line(error)}"
        when = f" in its step {self._steps[index]}" if what == "step" else ""
        return {"error": f"the environment's {what} of replica {self._first + index}{when} raised {said}"}


def episode_seed(seed: int, replica: int, episode: int) -> int:
    """The seed of a replica's episode: splitmix64 of all three, which is fast and mixes well."""
    mixed = seed
    for part in (replica, episode):
        mixed = (mixed + 0x9E3779B97F4A7C15 * (part + 1)) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed % LARGEST_SEED


def _processes(spread: Spread, count: int, seconds: float, threads: int | None) -> int:
    """How many processes share the replicas out: as many as there are cores, if that pays."""
    cores = min(threads or len(os.sched_getaffinity(0)), count)
    if spread == "processes":
        return max(cores, 2)
    saved = seconds * count * (1 - 1 / cores)
    return cores if spread == "auto" and saved > OVERHEAD else 1
