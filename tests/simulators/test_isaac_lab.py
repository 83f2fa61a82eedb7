"""The contract with Isaac Lab: what of its environments is used, and what is made of it. It is not run on Isaac Sim."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kmyriad.engines.make import GoalPoint, make_engine
from kmyriad.engines.simulator_engine import SimulatorEngine
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.population.distributions import action_spec
from tests.far_device import FAR, FarDevice
from tests.simulators.isaac_lab import Direct, Managed

COUNT = 3


def engine_of(env, features=()):
    return SimulatorEngine(env, features, np.arange(COUNT))


COMMON = {
    "unwrapped",
    "unwrapped.num_envs",
    "unwrapped.device",
    "unwrapped.cfg",
    "unwrapped.cfg.auto_reset",  # asked for, and not there: that is mjlab's
    "unwrapped.single_action_space",
    "unwrapped.step_dt",
    "unwrapped.max_episode_length",
    "unwrapped.episode_length_buf",
    "unwrapped.symmetries",  # asked for, and not there: a user's own
    "unwrapped.observation_manager",  # not there in direct environments
    "unwrapped._reset_idx",
    "unwrapped.sim",
    "unwrapped.sim.forward",
    "unwrapped.scene",
    "unwrapped.scene.env_origins",
    "unwrapped.scene.articulations",
    "reset",
    "step",
    "close",
}
"""Every attribute of Isaac Lab's environments that is used; those of the first robot come with them."""
OF_ROBOTS = {"is_fixed_base", "data", "data.root_link_pos_w"}
OF_KIND = {Direct: {"unwrapped._get_observations"}, Managed: {"unwrapped.observation_manager.compute_group"}}


class Watched:
    """An object that writes down which of its attributes are asked for, and those of its parts."""

    def __init__(self, thing, path, used):
        self.__dict__.update(_thing=thing, _path=path, _used=used)

    def __getattr__(self, name):
        path = f"{self._path}.{name}".lstrip(".")
        self._used.add(path)
        found = getattr(self._thing, name)
        is_part = isinstance(found, SimpleNamespace) or name == "unwrapped"
        return Watched(found, path, self._used) if is_part else found

    def __setattr__(self, name, value):
        self._used.add(f"{self._path}.{name}".lstrip("."))
        setattr(self._thing, name, value)


def steps(engine, *actions, last=()):
    """The outcomes of actions (2,) that all replicas take; `last` has the steps that end all episodes."""
    told = []
    for step, action in enumerate(actions):
        everywhere = torch.tensor(action, dtype=torch.float32).expand(engine.count, 2)
        told.append(engine.step(everywhere, torch.full((engine.count,), step in last)))
    return told


@pytest.mark.parametrize("kind", [Direct, Managed])
def test_nothing_else_of_isaac_lab_is_used(kind):
    used, of_robots = set(), set()
    env = kind(COUNT)
    robots = env.scene.articulations
    robots["robot"] = Watched(robots["robot"], "", of_robots)
    engine = engine_of(Watched(env, "", used))
    engine.start(0)
    steps(engine, *[(1.0, 0.0)] * 12, last=(3,))
    engine.close()
    assert used == COMMON | OF_KIND[kind]
    assert of_robots == OF_ROBOTS


@pytest.mark.parametrize("kind", [Direct, Managed])
def test_what_episodes_end_with_is_read_before_the_reset(kind):
    engine = engine_of(kind(COUNT))
    engine.start(2**63 - 1)
    told = steps(engine, *[(1.0, 0.0)] * 6)
    assert [one.done.all().item() for one in told] == [False] * 5 + [True]
    assert told[5].terminated.all()
    assert torch.allclose(told[5].observation, torch.tensor([0.6, 0.0, 0.4, 6.0]), atol=1e-4)
    assert torch.allclose(told[5].features, torch.tensor([0.6, 0.0, 0.4]), atol=1e-4)
    assert torch.allclose(told[5].following, torch.tensor([0.0, 0.0, 0.4, 0.0]), atol=1e-4)
    assert torch.allclose(told[5].reward, torch.tensor(0.6), atol=1e-4)


@pytest.mark.parametrize("kind", [Direct, Managed])
def test_on_a_device_nothing_comes_back_to_the_host(kind):
    """But for what the environment itself asks: which replicas are to be reset."""
    here, actions = engine_of(kind(COUNT)), [torch.full((COUNT, 2), 0.9 - 0.1 * step) for step in range(12)]
    here.start(0)
    with FarDevice() as device:
        there = engine_of(kind(COUNT, device=FAR))
        assert there.device == "meta"
        there.start(0)
        for step, action in enumerate(actions):
            last = torch.tensor([step in (2, 8), False, step == 8])
            near = here.step(action, last)
            action, last = action.to(FAR), last.to(FAR)
            device.waits.clear()
            far = there.step(action, last)
            assert device.waits.total() <= 1 + 2 * (step <= 2)  # until it has seen that it is obeyed
            for name in ("observation", "following", "features", "xy", "reward", "done", "broken"):
                assert torch.equal(getattr(far, name).cpu(), getattr(near, name)), name


def test_robots_are_seen_from_their_own_origins():
    engine = engine_of(Managed(COUNT))
    engine.start(0)
    assert [feature.name for feature in engine.features] == ["x", "y", "z"]
    assert engine.plane.start == (0.0, 0.0)
    assert engine.plane.seconds_per_step == 0.1
    (told,) = steps(engine, (0.5, -0.5))
    assert torch.allclose(told.features, torch.tensor([0.05, -0.05, 0.4]).expand(COUNT, 3), atol=1e-4)
    assert torch.equal(told.xy, told.features[:, :2])


def test_episodes_end_when_they_are_told_to_and_others_go_on():
    env = Managed(COUNT)
    engine = engine_of(env)
    engine.start(0)
    still = torch.zeros(COUNT, 2)
    engine.step(still, torch.zeros(COUNT, dtype=torch.bool))
    told = engine.step(still, torch.tensor([False, True, False]))
    assert told.done.tolist() == [False, True, False]
    assert not told.terminated.any()
    assert env.episode_length_buf.tolist() == [2, 0, 2]


def test_an_environment_without_a_time_out_is_told_in_a_sentence():
    engine = engine_of(Managed(COUNT, has_time_out=False))
    engine.start(0)
    with pytest.raises(TrainingStoppedError, match="do not end when their time is up"):
        steps(engine, (0.0, 0.0), last=(0,))


def test_features_may_be_columns_of_the_observation():
    engine = engine_of(Managed(COUNT), ("3", "x"))
    engine.start(0)
    told = steps(engine, (0.0, 0.0), (1.0, 0.0))[1]
    assert torch.allclose(told.features, torch.tensor([2.0, 0.1]).expand(COUNT, 2), atol=1e-4)
    assert engine.columns is None
    assert engine_of(Managed(COUNT), ("0:2",)).columns == (0, 1)
    with pytest.raises(UsageError, match="unknown feature 'height'"):
        engine_of(Managed(COUNT), ("height",))


def test_a_robot_that_is_bolted_down_is_explored_by_what_it_observes():
    env = Managed(COUNT)
    env.scene.articulations["robot"].is_fixed_base = True
    assert [feature.name for feature in engine_of(env).features] == ["0", "1", "2", "3"]


def test_parts_of_a_group_stand_side_by_side():
    whole, parts = (engine_of(Managed(COUNT, parts=one)) for one in (False, True))
    assert torch.equal(whole.start(0), parts.start(0))
    told = [steps(engine, *[(1.0, 0.0)] * 6)[-1].observation for engine in (whole, parts)]
    assert torch.equal(*told)


def test_groups_that_nobody_named_are_told_in_a_sentence():
    assert engine_of(Managed(COUNT, groups=("only",))).observation_size == 4
    with pytest.raises(UsageError, match="observes the groups one, two, and none is called policy or actor"):
        engine_of(Managed(COUNT, groups=("one", "two")))


def test_actions_without_a_range_are_asked_for_one():
    engine = engine_of(Managed(COUNT))
    with pytest.raises(UsageError, match=r"action.range"):
        action_spec(engine.action_space, None)
    assert action_spec(engine.action_space, (-1.0, 1.0)) is not None


def test_a_goal_is_a_point_in_the_features():
    where = "tests.simulators.isaac_lab:managed"
    engine = make_engine(where, COUNT, horizon=10, goal=GoalPoint((0.3, 0.0), radius=0.15))
    engine.start(0)
    told = steps(engine, *[(1.0, 0.0)] * 6)
    assert [one.reward[0].item() for one in told] == [0, 1, 1, 1, 0, 0]
    assert [one.success[0].item() for one in told] == [False, True, True, True, True, True]
    assert not steps(engine, (0.0, 0.0))[0].success.any()
    with pytest.raises(UsageError, match="episodes cannot stop at a goal; use --no-stop-at-goal"):
        make_engine(where, COUNT, horizon=10, goal=GoalPoint((0.3, 0.0), ends=True))


def test_a_state_that_is_no_number_is_broken():
    env = Managed(COUNT)
    engine = engine_of(env)
    engine.start(0)
    env._places()[1] = torch.nan
    assert steps(engine, (0.0, 0.0))[0].broken.tolist() == [False, True, False]


def test_it_says_what_it_cannot_do():
    engine = engine_of(Managed(COUNT))
    assert not engine.can_be_saved
    assert engine.get_state() is None
    assert engine.world is None
    with pytest.raises(UsageError, match="draw no picture of each replica"):
        engine.render()


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("too_many", "was asked for 3 replicas and made 4"),
        ("something_else", "takes num_envs and makes no vector environment but object"),
    ],
)
def test_a_function_that_makes_something_else_is_told_in_a_sentence(function, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_engine(f"tests.simulators.isaac_lab:{function}", COUNT, horizon=10)


def test_a_wrapper_that_hides_how_episodes_end_is_refused():
    engine = make_engine("tests.simulators.isaac_lab:wrapped", COUNT, horizon=10)
    engine.start(0)
    with pytest.raises(UsageError, match="step gave 4 values instead of"):
        steps(engine, (0.0, 0.0))


def test_the_function_is_told_how_many_and_where():
    engine = make_engine("tests.simulators.isaac_lab:direct", COUNT, horizon=10, settings={"limit": 7}, device="cpu")
    assert engine.device == "cpu"
    assert engine.speaks_tensors
    engine.start(0)
    assert [one.done.any().item() for one in steps(engine, *[(0.0, 0.0)] * 7)] == [False] * 6 + [True]
