import numpy as np
import pytest
from scipy.stats import binom

from kmyriad.errors import UsageError
from kmyriad.evaluation.selection import Trials, race, success_interval


class Heads:
    """Heads with known success probabilities and closest approaches."""

    def __init__(self, probabilities, closest=None, seed=0):
        self.probabilities = np.asarray(probabilities, float)
        self.closest = np.asarray(closest if closest is not None else 10 * (1 - self.probabilities), float)
        self.rng = np.random.default_rng(seed)
        self.played = np.zeros(len(self.probabilities), int)

    def __call__(self, heads, episodes, round_index):
        self.played[list(heads)] += episodes
        success = self.rng.random((len(heads), episodes)) < self.probabilities[list(heads), None]
        steps = np.where(success, 10 + 10 * np.array(heads)[:, None], 1)
        return Trials(success, np.repeat(self.closest[list(heads), None], episodes, axis=1), steps)


def test_the_best_is_found_as_often_as_promised():
    """Whenever the race is certain it is right, but for the promised doubt; and it mostly is certain here."""
    rng = np.random.default_rng(1)
    right = certain = 0
    for trial in range(200):
        probabilities = rng.permutation([0.75, 0.4, 0.3, 0.3, 0.1, 0.05, 0, 0, 0, 0])
        ranking = race(Heads(probabilities, seed=trial), range(10), budget=800, confidence=0.9)
        assert ranking.episodes <= 800
        certain += ranking.is_certain
        right += probabilities[ranking.best] == 0.75
    assert certain > 170
    assert right >= 0.9 * 200


def test_how_long_success_takes_is_told():
    ranking = race(Heads([1.0, 1.0, 0.0]), range(3), budget=60)
    assert {standing.head: standing.steps for standing in ranking.standings} == {0: 10.0, 1: 20.0, 2: None}


def test_even_heads_are_not_told_apart():
    wrongly_certain = sum(race(Heads([0.5] * 4, seed=t), range(4), budget=400).is_certain for t in range(200))
    assert wrongly_certain <= 0.05 * 200


def test_episodes_go_where_they_matter():
    heads = Heads([0.6, 0.5, 0, 0, 0, 0, 0, 0])
    race(heads, range(8), budget=600)
    assert heads.played[:2].min() > 2 * heads.played[2:].max()


def test_without_any_success_the_nearest_wins():
    ranking = race(Heads([0, 0, 0], closest=[3.0, 1.0, 2.0]), range(3), budget=60)
    assert [standing.head for standing in ranking.standings] == [1, 2, 0]
    assert ranking.is_by_shortfall
    assert not ranking.is_certain


def test_ties_go_to_the_first_every_time():
    rankings = [race(Heads([0, 0, 0], closest=[1.0, 1.0, 1.0]), range(3), budget=60) for _ in range(3)]
    assert all([s.head for s in ranking.standings] == [0, 1, 2] for ranking in rankings)


def test_one_head_plays_one_round():
    ranking = race(Heads([0.5]), [0], budget=100)
    assert ranking.episodes == 5
    assert ranking.is_certain


@pytest.mark.parametrize("budget", [5, 7, 13, 99])
def test_the_budget_holds_even_where_it_does_not_divide(budget):
    heads = Heads([0.5, 0.4, 0.3, 0.2, 0.1])
    assert race(heads, range(5), budget=budget).episodes == heads.played.sum() <= budget


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.5, 0.9, 1.0])
def test_intervals_cover_the_rate(rate):
    """Exactly: the probability of all outcomes whose interval holds the rate."""
    covered = sum(
        binom.pmf(successes, 20, rate)
        for successes in range(21)
        if success_interval(successes, 20, 0.1)[0] <= rate <= success_interval(successes, 20, 0.1)[1]
    )
    assert covered >= 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": []}, "no heads to choose from"),
        ({"budget": 2}, "less than one for each of 3 heads"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence(settings, message):
    with pytest.raises(UsageError, match=message):
        race(**({"play": Heads([0, 0, 0]), "heads": range(3), "budget": 30} | settings))
