"""Which head already does what a task asks for: a race that spends episodes on those still in the running."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from kmyriad.errors import UsageError

Play = Callable[[Sequence[int], int, int], tuple[NDArray[np.bool_], NDArray[np.floating]]]
"""`play(heads, episodes, round)`: (success (h, e), closest approach to the goal in metres (h, e)) of fresh episodes."""

EPISODES_PER_ROUND = 10


@dataclass(frozen=True)
class Standing:
    """What is known about one head."""

    head: int
    episodes: int
    successes: int
    closest: float
    """Metres, the mean over episodes of how near it came to the goal."""
    interval: tuple[float, float]
    """Of the success rate, at the race's confidence (Clopper & Pearson 1934)."""

    @property
    def success(self) -> float:
        return self.successes / self.episodes if self.episodes else 0.0


@dataclass(frozen=True)
class Ranking:
    standings: list[Standing]
    """The best head first: by success rate, then by closest approach, then by number."""
    episodes: int
    """Played in all."""
    is_certain: bool
    """Whether all others were shown to succeed less often than the first, at the race's confidence."""

    @property
    def best(self) -> int:
        return self.standings[0].head

    @property
    def is_by_distance(self) -> bool:
        """No head ever succeeded, so that only closest approach ranks them."""
        return all(standing.successes == 0 for standing in self.standings)


def race(
    play: Play, heads: Sequence[int], *, budget: int, confidence: float = 0.95, per_round: int = EPISODES_PER_ROUND
) -> Ranking:
    """Rank `heads` by success rate with at most `budget` episodes.

    Rounds of `per_round` episodes for each head still in the running. A head is out once its rate lies below the
    leader's beyond doubt: with probability `confidence` the best head is never out (a union bound over heads and
    rounds). The race ends when one is left or the budget is spent.
    """
    if not heads:
        raise UsageError("there are no heads to choose from; give at least one")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    if budget < len(heads):
        raise UsageError(f"a budget of {budget} episodes is less than one for each of {len(heads)} heads; raise it")
    record = {head: _Record() for head in heads}
    running, left = list(heads), budget
    rounds = max(1, math.ceil(budget / per_round))
    doubt = (1 - confidence) / (len(heads) * rounds)
    round_index = 0
    while left >= len(running) and (len(running) > 1 or not round_index):
        episodes = min(per_round, left // len(running))
        success, closest = play(running, episodes, round_index)
        for row, head in enumerate(running):
            record[head].add(success[row], closest[row])
        left -= episodes * len(running)
        round_index += 1
        leader = max(record[head].interval(doubt)[0] for head in running)
        running = [head for head in running if record[head].interval(doubt)[1] >= leader]
    standings = [record[head].standing(head, 1 - confidence) for head in heads]
    order = sorted(standings, key=lambda s: (-s.success, s.closest, s.head))
    order.sort(key=lambda s: s.head not in running)  # who is out stays behind, however lucky its few episodes were
    return Ranking(order, budget - left, len(running) == 1)


class _Record:
    """Episodes of one head."""

    def __init__(self) -> None:
        self.success: list[bool] = []
        self.closest: list[float] = []

    def add(self, success: NDArray[np.bool_], closest: NDArray[np.floating]) -> None:
        self.success += success.tolist()
        self.closest += closest.tolist()

    def interval(self, doubt: float) -> tuple[float, float]:
        return success_interval(sum(self.success), len(self.success), doubt)

    def standing(self, head: int, doubt: float) -> Standing:
        closest = float(np.mean(self.closest)) if self.closest else math.inf
        return Standing(head, len(self.success), sum(self.success), closest, self.interval(doubt))


def success_interval(successes: int, episodes: int, doubt: float) -> tuple[float, float]:
    """The exact two-sided interval of a success rate that misses it with probability `doubt` at most."""
    if episodes == 0:
        return 0.0, 1.0
    low = float(beta.ppf(doubt / 2, successes, episodes - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - doubt / 2, successes + 1, episodes - successes)) if successes < episodes else 1.0
    return low, high
