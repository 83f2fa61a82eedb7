import math

import numpy as np
import pytest

from kmyriad.objective.information import distance_from, information, own_trajectory_share


def walks(agents, replicas, centres, seed=0, steps=100):
    """(m, p, L, 2): slow walks around the agents' centres, each replica in a corner of its own."""
    rng = np.random.default_rng(seed)
    starts = rng.normal(size=(agents, replicas, 1, 2))
    return (
        np.asarray(centres)[:, None, None] + starts + 0.01 * rng.normal(size=(agents, replicas, steps, 2)).cumsum(2)
    ).astype(np.float32)


def told(features, points=20_000):
    return information(features, np.ones(features.shape[:3], bool), points, np.random.default_rng(0))


def test_agents_that_are_alike_have_nothing_in_common_with_their_states():
    """Though every trajectory is far from every other one."""
    assert told(walks(5, 20, np.zeros((5, 2)))) < 0.1


def test_agents_far_apart_tell_all():
    assert told(walks(5, 20, 100 * np.random.default_rng(1).normal(size=(5, 2)))) == pytest.approx(
        math.log(5), abs=0.15
    )


def test_it_grows_with_the_distance_and_stays_below_ln_m():
    centres = np.random.default_rng(1).normal(size=(4, 2))
    found = [told(walks(4, 30, scale * centres)) for scale in (0, 1, 3, 10)]
    assert found == sorted(found)
    assert found[-1] <= math.log(4)


def test_one_agent_or_one_replica_tells_nothing():
    assert told(walks(1, 20, np.zeros((1, 2)))) is None
    assert told(walks(3, 1, np.zeros((3, 2)))) is None
    nothing = walks(3, 4, np.zeros((3, 2)))
    valid = np.ones(nothing.shape[:3], bool)
    valid[1] = False
    assert information(nothing, valid, 1000, np.random.default_rng(0)) is None


def test_neighbours_of_the_own_trajectory():
    features, rng = walks(3, 10, np.zeros((3, 2))), np.random.default_rng(0)
    valid = np.ones(features.shape[:3], bool)
    assert own_trajectory_share(features, valid, 5, rng) > 0.9
    shuffled = rng.permutation(features.reshape(-1, 2)).reshape(features.shape)
    assert own_trajectory_share(shuffled, valid, 5, rng) == pytest.approx(1 / 30, abs=0.02)
    valid[:] = False
    assert own_trajectory_share(features, valid, 5, rng) is None


def test_distance_is_from_the_start_over_valid_states():
    features = np.array([[[[3, 4], [0, 0], [99, 0]]]], np.float32)
    assert distance_from(np.zeros(2, np.float32), features, np.array([[[True, True, False]]])) == pytest.approx(2.5)
    assert distance_from(np.zeros(2, np.float32), features, np.zeros((1, 1, 3), bool)) is None
