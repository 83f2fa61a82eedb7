"""Which head already does what a task asks for: a race that spends episodes on those still in the running."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from kmyriad.errors import UsageError
from kmyriad.population.population import Population
from kmyriad.rollout.collect import collect
from kmyriad.rollout.randomness import SELECTION, generator, reset_seed
from kmyriad.rollout.task import Task

EPISODES_PER_ROUND = 5


@dataclass(frozen=True)
class Trials:
    """Episodes of several heads."""

    success: NDArray[np.bool_]
    """(h, e)."""
    shortfall: NDArray[np.floating]
    """(h, e), how far from success: metres from the goal at the closest, or minus the return."""
    steps: NDArray[np.int64]
    """(h, e), until success; anything where there was none."""


Play = Callable[[Sequence[int], int, int], Trials]
"""`play(heads, episodes, round)`: fresh episodes."""


@dataclass(frozen=True)
class Standing:
    """What is known about one head."""

    head: int
    episodes: int
    successes: int
    shortfall: float
    """The mean over episodes."""
    steps: float | None
    """The mean over successes; None without any."""
    interval: tuple[float, float]
    """Of the success rate, at the race's confidence (Clopper & Pearson 1934)."""

    @property
    def success(self) -> float:
        return self.successes / self.episodes if self.episodes else 0.0

    @property
    def described(self) -> str:
        low, high = self.interval
        return f"success {self.success:.2f} ({low:.2f} to {high:.2f}) in {self.episodes} episodes"


@dataclass(frozen=True)
class Ranking:
    standings: list[Standing]
    """The best head first: by success rate, then by shortfall, then by number."""
    episodes: int
    """Played in all."""
    is_certain: bool
    """Whether all others were shown to succeed less often than the first, at the race's confidence."""

    @property
    def best(self) -> int:
        return self.standings[0].head

    @property
    def is_by_shortfall(self) -> bool:
        """No head ever succeeded, so that only the shortfall ranks them."""
        return all(standing.successes == 0 for standing in self.standings)


def race(
    play: Play, heads: Sequence[int], *, budget: int, confidence: float = 0.95, per_round: int = EPISODES_PER_ROUND
) -> Ranking:
    """Rank `heads` by success rate with at most `budget` episodes.

    A round is `per_round` episodes of every head, then of that half of the heads in the running whose rates may be
    highest (upper bounds, as in LUCB, Kalyanakrishnan et al. 2012). A head is out once its rate lies below the leader's
    beyond doubt: with probability `confidence` the best head is never out (a union bound over heads and rounds). The
    race ends when one is left or the budget is spent.
    """
    if not heads:
        raise UsageError("there are no heads to choose from; give at least one")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    if budget < len(heads):
        raise UsageError(f"a budget of {budget} episodes is less than one for each of {len(heads)} heads; raise it")
    record = {head: _Record() for head in heads}
    running = active = list(heads)
    left = budget
    rounds = max(1, math.ceil(budget / per_round))
    doubt = (1 - confidence) / (len(heads) * rounds)
    round_index = 0
    while left and (len(running) > 1 or not round_index):
        active = active[:left]
        episodes = min(per_round, left // len(active))
        played = play(active, episodes, round_index)
        for row, head in enumerate(active):
            record[head].add(played, row)
        left -= episodes * len(active)
        round_index += 1
        running = _in_the_running(record, running, doubt)
        hopeful = sorted(running, key=lambda head: (-record[head].interval(doubt)[1], record[head].mean_shortfall))
        active = hopeful[: math.ceil(len(hopeful) / 2)]
    return _ranking(record, running, 1 - confidence)


def rank_episodes(played: Trials, confidence: float = 0.95) -> Ranking:
    """Rank heads by episodes that all of them have played before."""
    record = {head: _Record() for head in range(len(played.success))}
    for head, one in record.items():
        one.add(played, head)
    running = _in_the_running(record, list(record), (1 - confidence) / len(record))
    return _ranking(record, running, 1 - confidence)


def trials(task: Task, population: Population, seed: int, threads: int | None = None) -> Play:
    """What `selection.race` calls to let heads of `population` try the task, all in one vector environment."""
    seed = int(generator(seed, SELECTION).integers(2**62))  # other noise than training sees

    def play(heads: Sequence[int], episodes: int, round_index: int) -> Trials:
        replicas = task.replicas(len(heads) * episodes, threads)
        replicas.start(reset_seed(seed, round_index))
        trajectory = collect(replicas, population.select(heads), task.horizon, seed, round_index)
        replicas.close()
        if task.goal and trajectory.xy is not None:
            shortfall: NDArray[np.floating] = distances(trajectory.xy, trajectory.sound, task.goal).min(axis=-1)
        else:
            shortfall = -trajectory.rewards.sum(axis=-1)
        return Trials(np.asarray(trajectory.success.any(axis=-1)), shortfall, first_steps(trajectory.success))

    return play


def distances(xy: NDArray[np.float32], sound: NDArray[np.bool_], goal: Sequence[float]) -> NDArray[np.floating[Any]]:
    """(m, e, T), metres, seen from above: how far from a goal episodes (m, e, T, 2) were."""
    return np.where(sound, np.linalg.norm(xy - np.asarray(goal[:2], np.float32), axis=-1), np.inf)


def first_steps(success: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(...), how many steps until `success` (..., T) is true for the first time; 1 where it never is."""
    return success.argmax(axis=-1) + 1


def _in_the_running(record: dict[int, "_Record"], heads: Sequence[int], doubt: float) -> list[int]:
    """Those of `heads` whose success rate may be the highest."""
    leader = max(record[head].interval(doubt)[0] for head in heads)
    return [head for head in heads if record[head].interval(doubt)[1] >= leader]


def _ranking(record: dict[int, "_Record"], running: list[int], doubt: float) -> Ranking:
    standings = [one.standing(head, doubt) for head, one in record.items()]
    order = sorted(standings, key=lambda s: (-s.success, s.shortfall, s.head))
    order.sort(key=lambda s: s.head not in running)  # who is out stays behind, however lucky its few episodes were
    return Ranking(order, sum(s.episodes for s in standings), len(running) == 1)


class _Record:
    """Episodes of one head."""

    def __init__(self) -> None:
        self.success: list[bool] = []
        self.shortfall: list[float] = []
        self.steps: list[int] = []

    def add(self, played: Trials, row: int) -> None:
        self.success += played.success[row].tolist()
        self.shortfall += played.shortfall[row].tolist()
        self.steps += played.steps[row][played.success[row]].tolist()

    @property
    def mean_shortfall(self) -> float:
        return float(np.mean(self.shortfall)) if self.shortfall else math.inf

    def interval(self, doubt: float) -> tuple[float, float]:
        return success_interval(sum(self.success), len(self.success), doubt)

    def standing(self, head: int, doubt: float) -> Standing:
        steps = float(np.mean(self.steps)) if self.steps else None
        return Standing(head, len(self.success), sum(self.success), self.mean_shortfall, steps, self.interval(doubt))


def success_interval(successes: int, episodes: int, doubt: float) -> tuple[float, float]:
    """The exact two-sided interval of a success rate that misses it with probability `doubt` at most."""
    if episodes == 0:
        return 0.0, 1.0
    low = float(beta.ppf(doubt / 2, successes, episodes - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - doubt / 2, successes + 1, episodes - successes)) if successes < episodes else 1.0
    return low, high
