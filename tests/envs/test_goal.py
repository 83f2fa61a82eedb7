import numpy as np
import pytest

from kmyriad.envs import WORLDS
from kmyriad.envs.goal import Annulus, draw_goals
from kmyriad.envs.make import make_world
from kmyriad.errors import UsageError
from tests.conftest import random_actions


def test_reward_inside_the_radius_and_success_from_then_on(make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 1, goal=(1.0, -2.0))
    env.reset(seed=0)
    rewards, successes, distances = [], [], []
    for step in range(200):
        push = 1.0 if step < 60 else -1.0
        _, reward, _, _, info = env.step(np.array([[push, 0.0]]))
        rewards.append(reward[0])
        successes.append(info["success"][0])
        distances.append(np.hypot(*(env.positions[0, :2] - [1.0, -2.0])))
    inside = np.array(distances) <= 0.45
    np.testing.assert_array_equal(rewards, inside.astype(float))
    np.testing.assert_array_equal(successes, np.maximum.accumulate(inside))
    assert inside.any()
    assert not inside[-1]
    assert successes[-1]


def test_success_is_forgotten_at_reset(make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 1, goal=(0.0, 0.0))
    env.reset()
    assert env.step(np.zeros((1, 8)))[4]["success"][0]
    assert not env.reset()[1]["success"][0]


def test_each_replica_can_have_its_own_goal(make_vec):
    goals = [[0.0, 0.0], [50.0, 0.0], [0.5, 0.5]]
    env = make_vec("kmyriad/AntEmpty-v0", 3, goal=goals)
    env.reset()
    _, reward, _, _, info = env.step(np.zeros((3, 8)))
    assert reward.tolist() == [1.0, 0.0, 1.0]
    assert info["success"].tolist() == [True, False, True]
    env.set_goal(None)
    assert not env.step(np.zeros((3, 8)))[1].any()


def test_a_goal_in_space_counts_height(make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 2, goal=[[0, 0, 0.5], [0, 0, 3.0]])
    env.reset()
    assert env.step(np.zeros((2, 8)))[1].tolist() == [1.0, 0.0]


def test_radius_is_a_setting_and_defaults_to_the_worlds(make_vec):
    assert make_vec("kmyriad/AntEmpty-v0", 1).goal_radius == 1.0
    assert make_vec("kmyriad/PointMaze-v0", 1).goal_radius == 0.45
    env = make_vec("kmyriad/AntEmpty-v0", 1, goal=(3.0, 0.0), goal_radius=3.5)
    env.reset()
    assert env.step(np.zeros((1, 8)))[1][0] == 1.0


@pytest.mark.parametrize("env_id", [row.id for row in WORLDS.values()], ids=WORLDS)
def test_no_goal_no_reward(env_id, make_vec):
    env = make_vec(env_id, 2)
    env.reset(seed=0)
    for actions in random_actions(env, 5):
        _, reward, _, _, info = env.step(actions)
        assert not reward.any()
        assert not info["success"].any()


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("kmyriad/PointMaze-v0", {"goal": (0.0, 0.0)}, r"goal \(0, 0\) cannot be reached in terrain 'ring'.*wall"),
        ("kmyriad/PointMaze-v0", {"goal": (9.0, 0.0)}, "outside the world"),
        ("kmyriad/PointMaze-v0", {"map": ["11111", "10101", "11111"], "start": (1, 1), "goal": (1, 0)}, "no free way"),
        ("kmyriad/AntMaze-v0", {"goal": (20.0, 20.0)}, "inside a wall"),
        ("kmyriad/AntPyramid-v0", {"goal": (8.0, 0.0, -3.0)}, "below the ground, which is at z = 0.[0-9]+ there"),
        ("kmyriad/AntEmpty-v0", {"goal": (np.nan, 0.0)}, "finite numbers"),
        ("kmyriad/AntEmpty-v0", {"goal": (1.0,)}, r"goal must be \(x, y\)"),
        ("kmyriad/AntEmpty-v0", {"goal": [(1.0, 0.0)] * 5}, "num_envs = 2"),
        ("kmyriad/AntEmpty-v0", {"goal": "there"}, "goal must be"),
        ("kmyriad/AntEmpty-v0", {"goal_radius": 0.0}, "goal_radius must be between 1e-09 and 1e[+]09; got 0.0"),
    ],
)
def test_bad_goals_are_refused_in_one_sentence(env_id, settings, message, make_vec):
    with pytest.raises(UsageError, match=message) as error:
        make_vec(env_id, 2, **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("env", WORLDS)
@pytest.mark.parametrize("is_far", [False, True])
def test_drawn_goals_of_every_world_can_be_set_and_lie_in_their_ring(env, is_far, make_vec):
    world = make_world(env)
    edge = world.terrain.half_size
    annulus = Annulus(edge / 2, edge) if is_far else Annulus(0.0, edge / 2)
    goals = draw_goals(world.terrain, annulus, 20, world.goal_radius)
    distance = np.linalg.norm(goals - world.terrain.start, axis=1)
    assert (distance >= max(annulus.inner, world.goal_radius)).all()
    assert (distance <= annulus.outer).all()
    make_vec(WORLDS[env].id, 20, goal=goals)  # raises where one cannot be reached


def test_drawn_goals_are_even_over_the_area():
    world = make_world("ant-empty")
    goals = draw_goals(world.terrain, Annulus(3, 5), 4000, 0.5)
    distance = np.linalg.norm(goals, axis=1)
    assert (distance < 4).mean() == pytest.approx((16 - 9) / (25 - 9), abs=0.03)
    assert np.abs(goals.mean(axis=0)).max() < 0.2


def test_a_seed_gives_the_same_goals_again():
    world = make_world("ant-maze")
    one, same, other = (draw_goals(world.terrain, Annulus(2, 9), 5, world.goal_radius, seed) for seed in (3, 3, 4))
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
def test_goals_that_cannot_be_drawn_are_refused_in_one_sentence(annulus, count, message):
    world = make_world("ant-maze")
    with pytest.raises(UsageError, match=message) as error:
        draw_goals(world.terrain, Annulus(*annulus), count, world.goal_radius)
    assert "\n" not in str(error.value)
