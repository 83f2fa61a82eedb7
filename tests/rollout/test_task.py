import pytest
import torch

from kmyriad.config import JumpstartConfig, with_settings
from kmyriad.errors import UsageError
from kmyriad.rollout.task import Task, task_of
from tests import walk_env

walk_env.register()


def test_a_goal_is_in_every_replica():
    task = Task("point-maze", {"decimation": 5}, 12, (0.0, -2.0), 0.3)
    replicas = task.replicas(3)
    assert (replicas.count, replicas.world.decimation, replicas.world.horizon) == (3, 5, 12)
    assert replicas.engine.simulation.goal_radius == 0.3
    replicas.start(0)
    step = replicas.step(torch.zeros(3, 2))  # the ball starts there
    assert step.rewards.tolist() == [1, 1, 1]
    assert step.success.all()
    assert not step.dones.any()
    stopping = task.replicas(3, ends_at_goal=True)
    stopping.start(0)
    assert stopping.step(torch.zeros(3, 2)).terminated.all()


def test_without_a_radius_the_worlds_own_holds():
    assert Task("ant-empty", {}, 12, (3.0, 0.0)).replicas(1).engine.simulation.goal_radius == 1.0


def test_an_environment_may_have_a_reward_of_its_own():
    replicas = Task(walk_env.CONTINUOUS, {}, 12, ()).replicas(2)
    replicas.start(0)
    east = replicas.step(torch.tensor([[2.0, 0.0], [-2.0, 0.0]])).rewards
    assert east == pytest.approx([0.6, -0.6], abs=0.05)


@pytest.mark.parametrize(
    ("env", "goal", "message"),
    [
        ("ant-maze", (), "ant-maze has no reward without a goal; give one, such as --goal 6 3"),
        ("kmyriad/AntMaze-v0", (), "has no reward without a goal"),
    ],
)
def test_a_world_without_a_goal_is_refused(env, goal, message):
    with pytest.raises(UsageError, match=message):
        Task(env, {}, 12, goal)


@pytest.mark.parametrize(("goal", "names"), [((0.6, 0.0), ()), ((0.6,), ()), ((0.6,), ("0",)), ((0.0,), ("1",))])
def test_a_goal_is_a_point_in_features_of_any_environment(goal, names):
    task = Task(walk_env.CONTINUOUS, {}, 12, goal, 0.1, names)
    for ends in (False, True):
        replicas = task.replicas(2, ends_at_goal=ends)
        assert replicas.tells_success
        replicas.start(0)
        first = replicas.step(torch.tensor([[2.0, 0.0], [-2.0, 2.0]]))  # 0.6 to the east, or away
        assert first.rewards.tolist() == [1, 0]
        assert first.success.tolist() == [True, False]
        assert first.terminated.tolist() == first.dones.tolist() == [ends, False]
        second = replicas.step(torch.tensor([[-2.0, 2.0], [0.0, 0.0]]))
        assert second.rewards.tolist() == [0, 0]
        assert second.success.tolist() == [not ends, False]  # it was there in this episode
        replicas.close()


@pytest.mark.parametrize(
    ("goal", "names", "message"),
    [
        ((1.0, 2.0, 3.0), (), "goal must have at most 2 numbers, one per feature .0, 1.; got 3"),
        ((1.0,), ("x",), "goal names 'x', which is not among the features; known: 0, 1"),
    ],
)
def test_goals_in_no_feature_are_refused(goal, names, message):
    with pytest.raises(UsageError, match=message):
        Task(walk_env.CONTINUOUS, {}, 12, goal, None, names).replicas(1)


def test_a_jumpstart_tells_its_task():
    settings = {"env": "ant-empty", "env_settings": {"reset_noise": 0.5}, "horizon": 60, "goal": (3.0, 1.0)}
    config = with_settings(JumpstartConfig(), settings)
    assert task_of(config) == Task("ant-empty", {"reset_noise": 0.5}, 60, (3.0, 1.0), None)
    assert task_of(with_settings(config, {"goal_radius": 0.5})).goal_radius == 0.5
