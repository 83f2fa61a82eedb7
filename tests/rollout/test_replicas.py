import numpy as np
import pytest
import torch

from kmyriad.config import Rollouts
from kmyriad.engines.make import GoalPoint
from kmyriad.envs import WORLDS
from kmyriad.envs.symmetry import SignedOrder, Symmetry
from kmyriad.errors import UsageError
from kmyriad.population.distributions import action_spec
from kmyriad.rollout.replicas import make_replicas
from tests import walk_env

walk_env.register()

SAVABLE_OR_NOT = pytest.mark.parametrize("env", ["point-maze", walk_env.CONTINUOUS])


def stand(replicas, steps):
    """(replicas, steps), where episodes end while nobody moves."""
    still = torch.zeros(replicas.count, *replicas.action_space.shape)
    return np.stack([replicas.step(still).dones for _ in range(steps)], axis=1)


def first_ends(replicas, agents, steps):
    """Per agent and replica, the step in which its first episode ends."""
    return stand(replicas, steps).argmax(axis=1).reshape(agents, -1).tolist()


@SAVABLE_OR_NOT
def test_segments_begin_with_episodes_that_end_at_different_steps(env):
    replicas = make_replicas(env, 6, horizon=9)
    replicas.begin(Rollouts(agents=2, replicas=6, horizon=9, steps=3), seed=0)
    assert replicas.episode_steps.tolist() == [0, 3, 6] * 2
    assert first_ends(replicas, 2, 9) == [[8, 5, 2]] * 2


@SAVABLE_OR_NOT
def test_agents_of_few_replicas_have_episodes_at_different_steps(env):
    replicas = make_replicas(env, 6, horizon=12)
    # 6 steps between an agent's replicas: two segments
    replicas.begin(Rollouts(agents=3, replicas=6, horizon=12, steps=3), seed=0)
    assert first_ends(replicas, 3, 12) == [[11, 5], [8, 2], [11, 5]]


@SAVABLE_OR_NOT
def test_segments_need_not_divide_the_horizon(env):
    replicas = make_replicas(env, 2, horizon=10)
    replicas.begin(Rollouts(agents=2, replicas=2, horizon=10, steps=4), seed=0)
    assert replicas.episode_steps.tolist() == [0, 4]
    assert np.argwhere(stand(replicas, 20)).tolist() == [[0, 9], [0, 19], [1, 5], [1, 15]]


@SAVABLE_OR_NOT
def test_segments_go_on_and_whole_horizons_begin_with_a_reset(env):
    replicas = make_replicas(env, 4, horizon=10)
    assert not replicas.are_running
    segments = Rollouts(agents=2, replicas=4, horizon=10, steps=5)
    replicas.begin(segments, seed=0)
    assert replicas.are_running
    stand(replicas, 3)
    before, observation = replicas.episode_steps.clone(), replicas.observation.clone()
    replicas.begin(segments, seed=1)
    np.testing.assert_array_equal(replicas.episode_steps, before)
    np.testing.assert_array_equal(replicas.observation, observation)
    replicas.begin(Rollouts(agents=2, replicas=4, horizon=10, steps=10), seed=1)
    assert not replicas.episode_steps.any()
    assert first_ends(replicas, 2, 10) == [[9, 9]] * 2


@SAVABLE_OR_NOT
def test_episodes_end_at_their_limit_which_may_be_below_the_horizon(env):
    replicas = make_replicas(env, 3, horizon=9)
    assert replicas.episode_limit == 9
    replicas.episode_limit = 4
    replicas.begin(Rollouts(agents=1, replicas=3, horizon=9, steps=2), seed=0)
    assert replicas.episode_steps.tolist() == [0, 1, 2]  # spread over the limit
    ends = [np.flatnonzero(row).tolist() for row in stand(replicas, 8)]
    assert ends == [[3, 7], [2, 6], [1, 5]]
    assert replicas.episode_steps.tolist() == [0, 1, 2]


def test_our_worlds_can_be_put_back_to_the_bit():
    replicas, other = (make_replicas("point-maze", 4, horizon=10, settings={"reset_noise": 1.0}) for _ in range(2))
    assert replicas.can_be_saved
    assert replicas.world is replicas.engine.simulation.world
    replicas.begin(Rollouts(agents=2, replicas=4, horizon=10, steps=5), seed=0)
    stand(replicas, 3)
    other.set_state(replicas.get_state())
    assert other.are_running
    np.testing.assert_array_equal(other.episode_steps, replicas.episode_steps)
    push = torch.ones(4, 2)
    for _ in range(12):
        ours, theirs = replicas.step(push), other.step(push)
        for name, value in vars(ours).items():
            np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)


def test_environments_of_others_have_no_world():
    replicas = make_replicas(walk_env.CONTINUOUS, 2, horizon=10)
    assert (replicas.world, replicas.symmetries) == (None, ())
    assert replicas.features == ("0", "1")
    assert replicas.feature_scale == (0.0, 0.0)
    assert replicas.plane.labels == ("observation 0", "observation 1")


@SAVABLE_OR_NOT
def test_a_state_of_other_replicas_is_no_state(env):
    replicas, fewer = (make_replicas(env, count, horizon=10) for count in (3, 2))
    fewer.start(0)
    with pytest.raises(ValueError, match="the replicas have another number"):
        replicas.set_state(fewer.get_state())


def test_a_goal_may_be_smaller_than_a_coverage_cell():
    goal = GoalPoint((3.0, 0.0), radius=0.25)
    replicas = make_replicas("ant-empty", 1, horizon=5, goal=goal)
    assert (replicas.engine.simulation.goal_radius, replicas.cell) == (0.25, (1.0, 1.0))
    assert make_replicas("point-maze", 1, horizon=5).cell == (0.45, 0.45)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_brings_its_features(name):
    for env in (name, WORLDS[name].id):
        replicas = make_replicas(env, 1, horizon=5)
        assert replicas.features == WORLDS[name].features
        assert replicas.feature_size == len(WORLDS[name].features)
        assert replicas.world.horizon == 5
        assert replicas.plane.labels == ("x (m)", "y (m)")


def test_symmetries_are_those_that_keep_to_the_features():
    ant = make_replicas("ant-empty", 1, horizon=5)
    assert [symmetry.name for symmetry in ant.symmetries] == ["mirror of x", "mirror of y"]
    group, of_features = ant.views()
    assert [order.signs.tolist() for order in of_features] == [[1, 1, 1], [-1, 1, 1], [1, -1, 1], [-1, -1, 1]]
    assert len(group) == 4
    for features, count in ((("yaw", "x"), 2), (("joint_positions",), 2), (("x", "quaternion"), 0)):
        assert len(make_replicas("ant-empty", 1, horizon=5, features=features).symmetries) == count


def test_any_environment_may_declare_symmetries(monkeypatch):
    flip = SignedOrder(np.arange(2), np.array([-1, -1], np.float32))
    declared = (Symmetry(flip, SignedOrder(np.arange(2), np.array([-1, -1], np.float32)), "half turn"),)
    monkeypatch.setattr(walk_env.Walk, "symmetries", declared, raising=False)
    replicas = make_replicas(walk_env.CONTINUOUS, 2, horizon=10)
    assert [symmetry.name for symmetry in replicas.symmetries] == ["half turn"]
    assert len(replicas.views()[0]) == 2
    monkeypatch.setattr(walk_env.Walk, "symmetries", (Symmetry(flip, SignedOrder.unchanged(5), "odd"),))
    with pytest.raises(UsageError, match="symmetry 'odd' must give all 2 numbers of the action a place and a sign"):
        _ = make_replicas(walk_env.CONTINUOUS, 2, horizon=10).symmetries


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("ant-mazes", {}, "unknown environment 'ant-mazes' .did you mean 'ant-maze'"),
        ("ant-empty", {"features": ("hight",)}, "unknown feature 'hight'"),
        (walk_env.CONTINUOUS, {"features": ("2",)}, "feature '2' has no such columns; there are 2, from 0 to 1"),
        ("point-maze", {"settings": {"mapp": "u"}}, "unknown setting 'mapp' .did you mean 'map'"),
        ("point-maze", {"settings": {"map": 7}}, "map must be rows of 0"),
        ("point-maze", {"settings": {"decimation": "x"}}, "decimation must be a whole number; got 'x'"),
        ("point-maze", {"settings": {"horizon": 7}}, "horizon is no setting of the environment here"),
        (walk_env.CONTINUOUS, {"settings": {"max_episode_steps": 7}}, "max_episode_steps is no setting"),
    ],
)
def test_bad_environments_are_refused(env, settings, message):
    with pytest.raises(UsageError, match=message) as error:
        make_replicas(env, 2, horizon=5, **settings)
    assert "\n" not in str(error.value)


def test_unbounded_actions_are_refused():
    replicas = make_replicas(walk_env.UNBOUNDED, 2, horizon=5)
    with pytest.raises(UsageError, match="unbounded"):
        action_spec(replicas.action_space)
