import numpy as np
import pytest

from kmyriad.evaluation.measures import covered_cells, measure, visit
from kmyriad.population.distributions import action_spec
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Visits
from kmyriad.rollout.replicas import make_replicas


def wandering(centres, episodes=40, steps=50, seed=0):
    """Episodes that each stay around a place of their own, near their agent's centre."""
    rng = np.random.default_rng(seed)
    centres = np.asarray(centres, np.float32)[:, None, None, :]
    places = rng.normal(0, 1, (len(centres), episodes, 1, 2))
    xy = (centres + places + rng.normal(0, 0.1, (len(centres), episodes, steps, 2))).astype(np.float32)
    return Visits(xy, xy, np.ones(xy.shape[:3], bool))


def test_agents_that_are_alike_show_the_floor():
    row = measure(wandering([(0, 0)] * 4), cell=1.0)
    assert np.mean(row["kl_between_agents"]) == pytest.approx(row["kl_floor"], abs=0.15)


def test_agents_that_part_are_far_above_the_floor():
    row = measure(wandering([(0, 0), (9, 0), (0, 9), (9, 9)]), cell=1.0)
    assert min(row["kl_between_agents"]) > row["kl_floor"] + 1
    assert row["covered_cells"] > 3 * max(row["covered_cells_per_agent"])
    assert row["entropy"] > max(row["entropy_per_agent"]) + 1


def test_one_agent_has_no_kl_and_broken_steps_do_not_count():
    visits = wandering([(0, 0)])
    visits.xy[0, 0, 10:] = 1e6
    visits.valid[0, 0, 10:] = False
    row = measure(visits, cell=1.0)
    assert "kl_between_agents" not in row
    assert row["particles"] == 40 * 50 - 40
    assert row["covered_cells"] == row["covered_cells_per_agent"][0] < 100


def test_covered_cells_are_counted_with_their_signs():
    points = np.array([(0.1, 0.1), (0.9, 0.2), (-0.1, 0.1), (-0.1, -0.1), (5.0, 5.0)], np.float32)
    assert covered_cells(points, 1.0) == 4
    assert covered_cells(points, 0.5) == 5


def test_visits_are_whole_episodes_from_reset_and_the_same_again():
    replicas = make_replicas("point-maze", 6, horizon=10)
    population = Population(
        3, replicas.observation_size, action_spec(replicas.action_space), trunk_hidden=(8,), agent_hidden=8
    )
    visits, again = (visit(population, replicas, 10, seed=5) for _ in range(2))
    assert visits.features.shape == visits.xy.shape == (3, 2, 10, 2)
    np.testing.assert_array_equal(visits.features, again.features)
    replicas.close()
