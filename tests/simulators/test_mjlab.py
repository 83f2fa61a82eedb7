"""mjlab's environments on its CPU device: `make test-mjlab` makes an environment with mjlab's pins and runs these."""

import numpy as np
import pytest
import torch

import kmyriad as km
from kmyriad.cli import main
from kmyriad.engines.make import GoalPoint, make_engine

pytest.importorskip("mjlab", reason="mjlab has an environment of its own: make test-mjlab")

from kmyriad.engines.simulator_engine import SimulatorEngine
from tests.simulators import mjlab_envs

pytestmark = [pytest.mark.mjlab, pytest.mark.filterwarnings("default")]
COUNT, STEPS = 4, 12


def made(name, **changes):
    """An environment without noise in what is observed, whose episodes begin alike every time."""
    cfg = mjlab_envs.load_env_cfg(mjlab_envs.TASKS[name])
    cfg.scene.num_envs = COUNT
    cfg.seed = 1  # of what is drawn once, such as friction
    for group in cfg.observations.values():
        group.enable_corruption = False
    for setting, value in changes.items():
        setattr(cfg, setting, value)
    return mjlab_envs.ManagerBasedRlEnv(cfg, device="cpu")


def moves(size):
    return 2 * torch.rand(STEPS, COUNT, size, generator=torch.Generator().manual_seed(0)) - 1


def told_by_mjlab(name):
    """(observations (n, d), places (n, 3)) after some steps: mjlab alone, which is asked not to reset."""
    env = made(name, auto_reset=False)
    env.reset(seed=0)
    env.reset(seed=3)
    for action in moves(env.single_action_space.shape[0]):
        observation = env.step(action)[0]["actor"].clone()
    robots = [robot for robot in env.scene.entities.values() if not robot.is_fixed_base]
    places = robots[0].data.root_link_pos_w - env.scene.env_origins if robots else None
    env.close()
    return observation, places


@pytest.mark.parametrize("resets_itself", [False, True])
@pytest.mark.parametrize("name", ["cartpole", "go1"])
def test_what_episodes_end_with_is_what_mjlab_tells_without_resets(name, resets_itself):
    observation, places = told_by_mjlab(name)
    engine = SimulatorEngine(made(name), (), np.arange(COUNT), resets_itself=resets_itself)
    assert engine._base.cfg.auto_reset == resets_itself
    engine.start(3)
    for step, action in enumerate(moves(engine.action_space.shape[0])):
        last = torch.full((COUNT,), step == STEPS - 1)
        outcome = engine.step(action, last)
    assert outcome.done.all()
    assert not outcome.terminated.any()
    assert not torch.equal(outcome.following, outcome.observation)
    # Commands are drawn after resets, so that a look before them sees those of the step before.
    same = slice(None) if name == "cartpole" or not resets_itself else slice(0, 45)
    assert torch.equal(outcome.observation[:, same], observation[:, same])
    if places is not None:
        assert torch.equal(outcome.features, places)
    engine.close()


def test_single_episodes_end_when_they_are_told_to():
    engine = make_engine("tests.simulators.mjlab_envs:cartpole", COUNT, horizon=20)
    engine.start(0)
    action = torch.zeros(COUNT, 1)
    for step in range(6):
        last = torch.tensor([step == 2, False, False, step == 4])
        outcome = engine.step(action, last)
        assert outcome.done.tolist() == last.tolist()
        assert torch.equal(outcome.following[~last], outcome.observation[~last])
        assert not torch.equal(outcome.following[last], outcome.observation[last]) or not last.any()
    assert engine._base.episode_length_buf.tolist() == [3, 6, 6, 1]
    engine.close()


def test_robots_are_seen_from_their_own_origins():
    engine = make_engine("tests.simulators.mjlab_envs:go1", COUNT, horizon=20)
    engine.start(0)
    outcome = engine.step(torch.zeros(COUNT, 12), torch.zeros(COUNT, dtype=torch.bool))
    assert [feature.name for feature in engine.features] == ["x", "y", "z"]
    assert engine._base.scene.env_origins.abs().max() > 0.9
    assert outcome.features.abs().max() < 0.9
    assert engine.columns is None
    engine.close()


def test_a_goal_is_a_point_in_the_features_and_may_end_episodes():
    goal = GoalPoint((0.0, 0.0), radius=5.0, ends=True)
    engine = make_engine("tests.simulators.mjlab_envs:go1", COUNT, horizon=20, goal=goal)
    engine.start(0)
    outcome = engine.step(torch.zeros(COUNT, 12), torch.zeros(COUNT, dtype=torch.bool))
    assert outcome.reward.tolist() == [1.0] * COUNT
    assert outcome.success.all()
    assert outcome.terminated.all()
    assert engine._base.episode_length_buf.tolist() == [0] * COUNT
    engine.close()


@pytest.mark.parametrize("name", ["cartpole", "go1"])
def test_it_trains(name, tmp_path, capsys):
    env = f"tests.simulators.mjlab_envs:{name}"
    small = "--agents 2 --replicas 4 --horizon 20 --rollout-steps 10 --trunk-hidden 8 --agent-hidden 8 --threads 1"
    train = ["pretrain", env, *small.split(), "--out", f"{tmp_path / 'run'}"]
    with pytest.raises(SystemExit) as ended:
        main([*train, "--total-steps", "160"])
    assert ended.value.code == 2
    assert "say how far its actions may go, such as --action-range -1 1" in capsys.readouterr().err
    main([*train, "--action-range", "-1", "1", "--total-steps", "160"])
    main([*train, "--action-range", "-1", "1", "--total-steps", "240", "--resume"])
    rows = km.open_run(tmp_path / "run").metrics()
    assert rows[-1]["env_steps"] == 240
    assert all(np.isfinite(row["entropy"]) for row in rows if row.get("entropy") is not None)
    if name == "go1":
        start = km.jumpstart(
            tmp_path / "run", goal=(0.2, 0.0), total_steps=200, selection_steps=80, replicas=4, out=tmp_path / "start"
        )
        assert start.metrics()
