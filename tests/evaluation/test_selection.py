import json

import numpy as np
import pytest
from scipy.stats import binom

from kmyriad.errors import UsageError
from kmyriad.evaluation.selection import Trials, race, rank_episodes, ranking_as_json, success_interval


class Agents:
    """Agents with known success probabilities and closest approaches."""

    def __init__(self, probabilities, closest=None, seed=0):
        self.probabilities = np.asarray(probabilities, float)
        self.closest = np.asarray(closest if closest is not None else 10 * (1 - self.probabilities), float)
        self.rng = np.random.default_rng(seed)
        self.played = np.zeros(len(self.probabilities), int)

    def __call__(self, agents, episodes, round_index):
        self.played[list(agents)] += episodes
        success = self.rng.random((len(agents), episodes)) < self.probabilities[list(agents), None]
        steps = np.where(success, 10 + 10 * np.array(agents)[:, None], 1)
        return Trials(success, np.repeat(self.closest[list(agents), None], episodes, axis=1), steps)


def test_the_best_is_found_as_often_as_promised():
    """Whenever the race is certain it is right, but for the promised doubt; and it mostly is certain here."""
    rng = np.random.default_rng(1)
    right = certain = 0
    for trial in range(200):
        probabilities = rng.permutation([0.75, 0.4, 0.3, 0.3, 0.1, 0.05, 0, 0, 0, 0])
        ranking = race(Agents(probabilities, seed=trial), range(10), budget=800, confidence=0.9)
        assert ranking.episodes <= 800
        certain += ranking.is_certain
        right += probabilities[ranking.best] == 0.75
    assert certain > 170
    assert right >= 0.9 * 200


def test_how_long_success_takes_is_told():
    ranking = race(Agents([1.0, 1.0, 0.0]), range(3), budget=60)
    assert {standing.agent: standing.steps for standing in ranking.standings} == {0: 10.0, 1: 20.0, 2: None}


def test_even_agents_are_not_told_apart():
    wrongly_certain = sum(race(Agents([0.5] * 4, seed=t), range(4), budget=400).is_certain for t in range(200))
    assert wrongly_certain <= 0.05 * 200


def test_episodes_go_where_they_matter():
    agents = Agents([0.6, 0.5, 0, 0, 0, 0, 0, 0])
    race(agents, range(8), budget=600)
    assert agents.played[:2].min() > 2 * agents.played[2:].max()


def test_without_any_success_the_nearest_wins():
    ranking = race(Agents([0, 0, 0], closest=[3.0, 1.0, 2.0]), range(3), budget=60)
    assert [standing.agent for standing in ranking.standings] == [1, 2, 0]
    assert ranking.is_by_shortfall
    assert not ranking.is_certain


def test_ties_go_to_the_first_every_time():
    rankings = [race(Agents([0, 0, 0], closest=[1.0, 1.0, 1.0]), range(3), budget=60) for _ in range(3)]
    assert all([s.agent for s in ranking.standings] == [0, 1, 2] for ranking in rankings)


def test_one_agent_plays_one_round():
    ranking = race(Agents([0.5]), [0], budget=100)
    assert ranking.episodes == 5
    assert ranking.is_certain


def test_episodes_played_before_are_ranked_as_they_are():
    success = np.zeros((3, 40), bool)
    success[0, :3] = success[2, :37] = True
    steps = np.where(success, 7, 1)
    ranking = rank_episodes(Trials(success, np.full((3, 40), 2.0), steps))
    assert [standing.agent for standing in ranking.standings] == [2, 0, 1]
    assert (ranking.episodes, ranking.is_certain, ranking.best) == (120, True, 2)
    told = json.loads(json.dumps(ranking_as_json(ranking, horizon=50)))
    assert (told["env_steps"], told["is_certain"]) == (6000, True)
    assert told["standings"][1] == {
        "agent": 0,
        "episodes": 40,
        "successes": 3,
        "shortfall": 2.0,
        "steps": 7.0,
        "success_steps": [7, 7, 7],
        "by_return": False,
        "interval": pytest.approx(list(success_interval(3, 40, 0.05))),
        "success": 3 / 40,
    }
    assert not rank_episodes(Trials(success[:2], np.full((2, 40), 2.0), steps[:2])).is_certain


@pytest.mark.parametrize("budget", [5, 7, 13, 99])
def test_the_budget_holds_even_where_it_does_not_divide(budget):
    agents = Agents([0.5, 0.4, 0.3, 0.2, 0.1])
    assert race(agents, range(5), budget=budget).episodes == agents.played.sum() <= budget


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
        ({"agents": []}, "no agents to choose from"),
        ({"budget": 2}, "less than one for each of 3 agents"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence(settings, message):
    with pytest.raises(UsageError, match=message):
        race(**({"play": Agents([0, 0, 0]), "agents": range(3), "budget": 30} | settings))
