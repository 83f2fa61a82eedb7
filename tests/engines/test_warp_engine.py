"""Worlds on MuJoCo Warp, on its CPU device: the first time it compiles for a minute (WARP_CACHE_PATH keeps that).

`make test-warp` installs it and runs these.
"""

import dataclasses
import importlib.util

import numpy as np
import pytest
import torch

import kmyriad as km
from kmyriad.cli import main
from kmyriad.engines.make import CONSTRAINTS, CONTACTS, GoalPoint, make_engine
from kmyriad.envs.make import make_world
from kmyriad.training.memory import WARP_REPLICA
from tests.far_device import FAR, FarDevice, FarTensor
from tests.warp_worlds import Slider

needs_warp = pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is None, reason="MuJoCo Warp is an extra")
TERRAINS = ("ant-empty", "ant-maze", "ant-pyramid", "ant-cave")


def make(world, count=8, *, engine="warp", goal=None, features=(), horizon=1000, **settings):
    return make_engine(
        world, count, horizon=horizon, features=features, settings=settings, goal=goal, engine=engine, threads=1
    )


def actions_for(engine, steps, seed=0):
    """(steps, n, a)."""
    shape = (steps, engine.count, *engine.action_space.shape)
    return torch.as_tensor(np.random.default_rng(seed).uniform(-1, 1, shape), dtype=torch.float32)


def never(engine):
    return torch.zeros(engine.count, dtype=torch.bool)


def only(engine, *replicas):
    mask = never(engine)
    mask[list(replicas)] = True
    return mask


def physics(engine):
    return engine._physics.state


def spread(engine, seed=0):
    """Let the robots of an engine on the CPU fall onto many places of the terrain."""
    env, rng = engine.simulation, np.random.default_rng(seed)
    terrain = env.world.terrain
    xy = rng.uniform(-terrain.half_size, terrain.half_size, (100_000, 2))
    xy = xy[~terrain.is_wall(*xy.T)][: engine.count]
    env._qpos[:, :2], env._qpos[:, 2] = xy, 0.6 + terrain.height(*xy.T)


@pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is not None, reason="MuJoCo Warp is there")
def test_without_the_extra_it_is_one_sentence(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", "ant-empty", "--engine", "warp", "--total-steps", "1000"])
    assert ended.value.code == 2
    assert "engine warp needs the package warp, which is not installed; install it with" in capsys.readouterr().err


@pytest.mark.parametrize("world", [*TERRAINS, "point-maze"])
def test_a_world_observes_tensors_as_it_does_arrays(world):
    """One code serves both; tensors have single precision."""

    class Tensors:
        def bind(self, name):
            return torch.as_tensor(np.array(env._batch.bind(name)), dtype=torch.float32)

    engine = make(world, 16, engine="auto", reset_noise=1.0)
    env = engine.simulation
    engine.start(3)
    for action in actions_for(engine, 5):
        env.step(action.numpy())
    last_action = torch.as_tensor(env._last_action, dtype=torch.float32)
    observation = torch.empty(16, engine.observation_size)
    env.world.observe(Tensors(), last_action, observation)
    assert np.allclose(observation, env._observation, rtol=1e-5, atol=1e-5)
    assert np.allclose(env.world.positions(Tensors()), env.positions, atol=1e-6)
    engine.close()


@needs_warp
@pytest.mark.warp
@pytest.mark.parametrize("world", TERRAINS)
def test_a_step_is_that_of_mujoco(world):
    """With elliptic friction cones; pyramidal ones MuJoCo Warp draws along other tangents, on planes."""
    ours = make(world, 32, engine="auto", cone="elliptic", decimation=1)
    theirs = make(world, 32, cone="elliptic", decimation=1)
    env, state = ours.simulation, physics(theirs)
    seen = ours.start(0)
    assert np.allclose(theirs.start(0), seen, atol=1e-5)
    spread(ours)
    touches, worst = 0, 0.0
    for action in actions_for(ours, 150):
        for name in ("qpos", "qvel", "qacc_warmstart"):
            state[name].copy_(torch.as_tensor(np.array(env._batch.bind(name))))
        reached, told = ours.step(action.numpy(), np.zeros(32, bool)), theirs.step(action, never(theirs))
        assert not told.broken.any()
        assert not reached.broken.any()
        apart = np.abs(reached.observation - told.observation.numpy())
        apart[:, 9:12] = 0  # angles, where -pi is pi
        worst = max(worst, float(np.abs(env._qvel - state["qvel"].numpy()).max()), float(apart.max()))
        touches += int((np.abs(env._observation[:, 30:54]).max(axis=1) > 0.05).sum())
    assert touches > 1000
    assert worst < 2e-3
    ours.close()


@needs_warp
@pytest.mark.warp
def test_single_replicas_begin_again_and_others_do_not_notice():
    engine, undisturbed = make("ant-maze"), make("ant-maze")
    first = engine.start(0)
    undisturbed.start(0)
    moves = actions_for(engine, 12)
    for step, action in enumerate(moves):
        outcome = engine.step(action, only(engine, 2, 5) if step == 6 else never(engine))
        other = undisturbed.step(action, never(engine))
        if step == 6:
            assert outcome.done.tolist() == only(engine, 2, 5).tolist()
            assert torch.equal(outcome.following[2], first[2])
            assert torch.equal(outcome.observation[2], other.observation[2])
    untouched = ~only(engine, 2, 5)
    assert torch.equal(outcome.observation[untouched], other.observation[untouched])
    fresh = make("ant-maze")
    fresh.start(0)
    for action in moves[7:]:
        again = fresh.step(action, never(engine))
    assert torch.equal(outcome.observation[[2, 5]], again.observation[[2, 5]])


@needs_warp
@pytest.mark.warp
def test_a_replica_does_the_same_whoever_is_beside_it():
    """As in several processes: noise and physics are those of the replica's number."""
    numbers = np.array([0, 1, 5])
    settings = {"horizon": 100, "settings": {"reset_noise": 1.0}, "engine": "warp"}
    everyone, some = make_engine("ant-cave", 8, **settings), make_engine("ant-cave", 3, numbers=numbers, **settings)
    assert torch.equal(everyone.start(4)[numbers], some.start(4))
    for step, action in enumerate(actions_for(everyone, 30)):
        last = only(everyone, 1, 2) if step in (10, 20) else never(everyone)
        whole, part = everyone.step(action, last), some.step(action[numbers], last[numbers])
        assert torch.equal(whole.observation[numbers], part.observation)
        assert torch.equal(whole.following[numbers], part.following)


@needs_warp
@pytest.mark.warp
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_on_a_device_the_host_waits_for_noise_alone(noise, monkeypatch):
    """The physics stay where they are, and everything around them is on a device that cannot be looked into."""
    from kmyriad.engines import warp_engine

    class FarPhysics(warp_engine.WarpPhysics):
        def __init__(self, model, count, decimation, device):
            super().__init__(model, count, decimation, torch.device("cpu"))
            self._far = {}

        def bind(self, name):
            return self._far.setdefault(name, FarTensor(super().bind(name)))

    goal = GoalPoint((1.0, 0.0))
    here = make("ant-pyramid", goal=goal, reset_noise=noise)
    here.start(0)
    monkeypatch.setattr(warp_engine, "WarpPhysics", FarPhysics)
    with FarDevice() as device:
        there = make_engine(
            "ant-pyramid", 8, horizon=1000, goal=goal, settings={"reset_noise": noise}, engine="warp", device="meta"
        )
        there.start(0)
        for step, action in enumerate(actions_for(here, 8)):
            last = only(here, 1, 2) if step in (3, 5) else never(here)
            near, far_action, far_last = here.step(action, last), action.to(FAR), last.to(FAR)
            device.waits.clear()
            far = there.step(far_action, far_last)
            assert device.waits.total() == (noise > 0)
            for name in ("observation", "following", "features", "xy", "reward", "done", "success", "broken"):
                assert torch.equal(getattr(far, name).cpu(), getattr(near, name)), name


@needs_warp
@pytest.mark.warp
def test_noise_at_the_start_is_that_of_the_cpu():
    ours, theirs = make("ant-empty", engine="auto", reset_noise=1.0), make("ant-empty", reset_noise=1.0)
    assert np.allclose(ours.start(7), theirs.start(7), atol=1e-4)
    kept = make("ant-empty", reset_noise=1.0)
    kept.start(7)
    for step, action in enumerate(actions_for(theirs, 6)):
        last = only(theirs, 1, 4) if step in (2, 4) else never(theirs)
        told, outcome = ours.step(action.numpy(), last.numpy()), theirs.step(action, last)
        undisturbed = kept.step(action, never(theirs))
        assert np.allclose(told.following[[1, 4]][last[[1, 4]]], outcome.following[[1, 4]][last[[1, 4]]], atol=1e-4)
    assert torch.equal(outcome.observation[[0, 2, 3, 5]], undisturbed.observation[[0, 2, 3, 5]])
    ours.close()


@needs_warp
@pytest.mark.warp
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_what_follows_a_saved_state_is_equal_to_the_bit(noise):
    engine = make("ant-pyramid", goal=GoalPoint((3.0, 0.0)), reset_noise=noise)
    engine.start(1)
    moves = actions_for(engine, 40)
    lasts = [only(engine, 3) if step in (5, 25, 33) else never(engine) for step in range(40)]
    for action, last in zip(moves[:20], lasts[:20], strict=True):
        engine.step(action, last)
    state = engine.get_state()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    there = [engine.step(action, last) for action, last in zip(moves[20:], lasts[20:], strict=True)]
    restored = make("ant-pyramid", goal=GoalPoint((3.0, 0.0)), reset_noise=noise)
    restored.start(0)
    assert restored.set_state(state)
    for action, last, expected in zip(moves[20:], lasts[20:], there, strict=True):
        outcome = restored.step(action, last)
        for name in ("observation", "following", "features", "reward", "done", "success", "broken"):
            assert torch.equal(getattr(outcome, name), getattr(expected, name)), name
    with pytest.raises(ValueError, match="qpos is missing or has another shape"):
        restored.set_state(state | {"qpos": state["qpos"][:3]})


@needs_warp
@pytest.mark.warp
def test_a_replica_that_breaks_is_set_apart_until_its_episode_ends():
    engine, undisturbed = make("ant-cave"), make("ant-cave")
    engine.start(0)
    undisturbed.start(0)
    moves = actions_for(engine, 10)
    before, _ = (each.step(moves[0], never(engine)) for each in (engine, undisturbed))
    physics(engine)["qvel"][3, 6] = torch.nan
    physics(engine)["qvel"][5, 6] = 1e8
    for step, action in enumerate(moves[1:], start=1):
        outcome = engine.step(action, only(engine, 3) if step == 6 else never(engine))
        other = undisturbed.step(action, never(engine))
        assert outcome.broken.tolist() == only(engine, *([3, 5] if step <= 6 else [5])).tolist()
        assert torch.equal(outcome.observation[5], before.observation[5])
        assert outcome.following.isfinite().all()
        healthy = ~only(engine, 3, 5)
        assert torch.equal(outcome.observation[healthy], other.observation[healthy])
    assert all(live.isfinite().all() for live in physics(engine).values())


@needs_warp
@pytest.mark.warp
def test_contacts_that_found_no_room_break_a_replica(monkeypatch):
    """It then leaves constraints out: robots sink into the ground."""
    from kmyriad.engines import warp_engine

    monkeypatch.setattr(warp_engine, "CONSTRAINTS", 10)
    engine = make("ant-empty", cone="elliptic")
    engine.start(0)
    last = never(engine)
    broken = torch.stack([engine.step(action, last).broken for action in actions_for(engine, 30)])
    assert broken.any()
    assert (broken[1:] >= broken[:-1]).all()


@needs_warp
@pytest.mark.warp
@pytest.mark.parametrize("world", TERRAINS)
def test_the_memory_of_a_replica_is_about_what_is_reckoned_before(world):
    import mujoco_warp
    import warp

    def bytes_of(part):
        arrays = [getattr(part, field.name) for field in dataclasses.fields(part)]
        nested = sum(bytes_of(one) for one in arrays if dataclasses.is_dataclass(one))
        return nested + sum(one.capacity for one in arrays if isinstance(one, warp.array))

    model = make_world(world).model
    sizes = [
        bytes_of(mujoco_warp.make_data(model, nworld=count, nconmax=CONTACTS, njmax=CONSTRAINTS)) for count in (1, 101)
    ]
    assert (sizes[1] - sizes[0]) / 100 == pytest.approx(WARP_REPLICA, rel=0.2)


@pytest.mark.warp
def test_goals_are_those_of_the_cpu():
    """Reward within the radius, success from then on, and episodes that end there."""
    x, y = make_world("point-maze").terrain.start
    for ends in (False, True):
        goal = GoalPoint((x + 1.5, y), radius=0.5, ends=ends)
        ours, theirs = make("point-maze", 4, engine="auto", goal=goal), make("point-maze", 4, goal=goal)
        ours.start(0), theirs.start(0)
        arrived = 0
        for action in torch.tensor([1.0, 0.0]).expand(60, 4, 2):
            a, b = ours.step(action.numpy(), np.zeros(4, bool)), theirs.step(action, never(theirs))
            for name in ("reward", "terminated", "done", "success"):
                assert np.array_equal(getattr(a, name), getattr(b, name).numpy()), name
            assert np.allclose(a.features, b.features, atol=1e-3)
            assert np.allclose(a.xy, b.xy, atol=1e-3)
            arrived += int(b.reward.sum())
        assert arrived
        ours.close()


@needs_warp
@pytest.mark.warp
def test_features_are_those_of_the_cpu():
    names = ("z", "quaternion", "world_velocity")
    ours, theirs = make("ant-empty", engine="auto", features=names), make("ant-empty", features=names)
    assert ours.features == theirs.features
    assert ours.columns is theirs.columns is None
    ours.start(0), theirs.start(0)
    action = actions_for(ours, 1)[0]
    a, b = ours.step(action.numpy(), np.zeros(8, bool)), theirs.step(action, never(theirs))
    assert np.allclose(a.features, b.features, atol=1e-4)
    assert b.features.dtype == torch.float32
    ours.close()


@needs_warp
@pytest.mark.warp
def test_a_world_of_ones_own_is_brought_by_a_function():
    engine = make("tests.warp_worlds:slider", 3, size=3)
    assert [feature.name for feature in engine.features] == ["x"]
    engine.start(0)
    outcome = engine.step(torch.ones(3, 1), never(engine))
    assert (outcome.features > 0).all()
    with pytest.raises(km.UsageError, match="engine warp steps worlds, and Pendulum-v1 makes"):
        make("Pendulum-v1")


def test_a_world_of_ones_own_has_replicas_on_the_cpu_too():
    engine = make("tests.warp_worlds:slider", 3, engine="auto", goal=GoalPoint((0.0, 0.0)), size=3)
    engine.start(0)
    outcome = engine.step(np.ones((3, 1), np.float32), np.zeros(3, bool))
    assert (outcome.features > 0).all()
    assert outcome.reward.tolist() == [1.0] * 3
    engine.close()


@needs_warp
@pytest.mark.warp
def test_what_it_cannot_step_is_one_sentence(monkeypatch):
    monkeypatch.setattr(Slider, "speaks_tensors", False)
    with pytest.raises(km.UsageError, match="slider has no observation on tensors"):
        make("tests.warp_worlds:slider")
    monkeypatch.undo()
    with pytest.raises(km.UsageError, match="slider has a state beyond positions"):
        make("tests.warp_worlds:slider", with_mocap=True)


@needs_warp
@pytest.mark.warp
@pytest.mark.filterwarnings("ignore")
def test_it_trains_resumes_exactly_and_jump_starts(tmp_path, capsys):
    small = "--agents 2 --replicas 8 --horizon 20 --rollout-steps 10 --trunk-hidden 8 --agent-hidden 8 --threads 1"
    train = ["pretrain", "ant-empty", "--engine", "warp", *small.split(), "--checkpoint-every", "1"]
    main([*train, "--total-steps", "480", "--out", f"{tmp_path / 'whole'}"])
    main([*train, "--total-steps", "240", "--out", f"{tmp_path / 'parts'}"])
    main([*train, "--total-steps", "480", "--out", f"{tmp_path / 'parts'}", "--resume"])
    whole, parts = (km.load_population(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    evaluation = km.evaluate(tmp_path / "whole", episodes=4)
    assert evaluation.measures["covered_cells_per_agent"]
    start = km.jumpstart(
        tmp_path / "whole", goal=(0.5, 0.5), total_steps=400, selection_steps=160, replicas=8, out=tmp_path / "start"
    )
    assert start.config.task.engine == "warp"
    capsys.readouterr()


def test_the_cone_is_a_setting():
    assert make_world("ant-empty").model.opt.cone == 0
    assert make_world("ant-empty", cone="elliptic").model.opt.cone == 1
    with pytest.raises(km.UsageError, match="unknown cone 'round'"):
        make_world("ant-empty", cone="round")
