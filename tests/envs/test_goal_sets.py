import gymnasium
import numpy as np
import pytest

from kmyriad.envs import IDS
from kmyriad.envs.goal import Annulus, draw_goals
from kmyriad.errors import UsageError


def world_of(env):
    vector = gymnasium.make_vec(IDS[env], 1)
    vector.close()
    return vector.world, vector.goal_radius


@pytest.mark.parametrize("env", IDS)
@pytest.mark.parametrize("is_far", [False, True])
def test_goals_of_every_world_can_be_set_and_lie_in_their_ring(env, is_far):
    world, radius = world_of(env)
    edge = world.terrain.half_size
    annulus = Annulus(edge / 2, edge) if is_far else Annulus(0.0, edge / 2)
    goals = draw_goals(world.terrain, annulus, 20, radius)
    distance = np.linalg.norm(goals - world.terrain.start, axis=1)
    assert (distance >= max(annulus.inner, radius)).all()
    assert (distance <= annulus.outer).all()
    gymnasium.make_vec(IDS[env], 20, goal=goals).close()  # raises where one cannot be reached


def test_goals_are_even_over_the_area():
    world, _ = world_of("ant-empty")
    goals = draw_goals(world.terrain, Annulus(3, 5), 4000, 0.5)
    distance = np.linalg.norm(goals, axis=1)
    assert (distance < 4).mean() == pytest.approx((16 - 9) / (25 - 9), abs=0.03)
    assert np.abs(goals.mean(axis=0)).max() < 0.2


def test_a_seed_gives_the_same_goals_again():
    world, radius = world_of("ant-maze")
    one, same, other = (draw_goals(world.terrain, Annulus(2, 9), 5, radius, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("annulus", "count", "message"),
    [
        ((5, 3), 1, "0 <= inner < outer"),
        ((0, float("inf")), 1, "0 <= inner < outer"),
        ((500, 600), 1, "no 1 goals can be reached between 500 and 600 m"),
        ((0, 0.1), 1, "no 1 goals can be reached"),
        ((1, 5), 0, "at least 1"),
    ],
)
def test_bad_input_is_one_sentence(annulus, count, message):
    world, radius = world_of("ant-maze")
    with pytest.raises(UsageError, match=message):
        draw_goals(world.terrain, Annulus(*annulus), count, radius)
