"""What every world must do, one parametrised test each."""

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kmyriad.envs import WORLDS
from kmyriad.envs.goal import Annulus, draw_goals
from tests.conftest import random_actions

ALL = pytest.mark.parametrize("env_id", [row.id for row in WORLDS.values()], ids=WORLDS)


@ALL
def test_passes_gymnasiums_checker_without_a_warning(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(env_id, goal=None)
        check_env(env.unwrapped)
    env.close()


@ALL
def test_steps_within_its_spaces(env_id, make_vec):
    env = make_vec(env_id, 8, horizon=50)
    observation, info = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert env.observation_space.contains(observation)
    for actions in random_actions(env, 60):
        observation, reward, terminated, _, info = env.step(actions)
        assert env.observation_space.contains(observation)
        assert not reward.any()
        assert not terminated.any()
    assert not info["diverged"].any()


@ALL
def test_single_and_vector_give_the_same_numbers(env_id, make_vec):
    settings = {"horizon": 12, "reset_noise": 1.0}
    vector = make_vec(env_id, 3, autoreset_mode=AutoresetMode.SAME_STEP, **settings)
    peer = SyncVectorEnv(
        [lambda: gymnasium.make(env_id, **settings)] * 3, autoreset_mode=AutoresetMode.SAME_STEP, copy=True
    )
    ours, their = vector.reset(seed=7), peer.reset(seed=7)
    np.testing.assert_array_equal(ours[0], their[0])
    for actions in random_actions(vector, 30):
        ours, their = vector.step(actions), peer.step(actions)
        for mine, other in zip(ours[:4], their[:4], strict=True):
            np.testing.assert_array_equal(mine, other)
        _assert_same_info(ours[4], their[4])
    peer.close()


def _assert_same_info(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        if isinstance(value, dict):
            _assert_same_info(value, theirs[key])
        else:
            for mine, other in zip(value, theirs[key], strict=True):
                np.testing.assert_array_equal(mine, other)


@ALL
@pytest.mark.parametrize("mode", AutoresetMode)
def test_episodes_end_at_the_horizon_and_start_again(env_id, mode, make_vec):
    env = make_vec(env_id, 2, horizon=3, autoreset_mode=mode.value)
    assert env.metadata["autoreset_mode"] == mode
    first, _ = env.reset(seed=0)
    actions = random_actions(env, 3)
    for step in range(3):
        observation, _, terminated, truncated, info = env.step(actions[step])
        assert truncated.tolist() == [step == 2] * 2
        assert not terminated.any()
    if mode == AutoresetMode.SAME_STEP:
        np.testing.assert_array_equal(observation, first)
        assert not np.array_equal(info["final_obs"][0], first[0])
    elif mode == AutoresetMode.NEXT_STEP:
        assert not np.array_equal(observation, first)
        observation, _, _, truncated, _ = env.step(actions[0])
        np.testing.assert_array_equal(observation, first)
        assert not truncated.any()
    else:
        with pytest.raises(ValueError, match=r"replica 0 is over; call reset\(options="):
            env.step(actions[0])
        observation, _ = env.reset(options={"reset_mask": np.array([True, True])})
        np.testing.assert_array_equal(observation, first)


@ALL
@pytest.mark.parametrize("mode", AutoresetMode)
def test_episodes_may_end_at_the_goal(env_id, mode, make_vec):
    env = make_vec(env_id, 2, horizon=3, ends_at_goal=True, autoreset_mode=mode.value)
    first, _ = env.reset(seed=0)
    there = draw_goals(env.world.terrain, Annulus(1.5, 4.5), 1, env.goal_radius, seed=0)[0]
    env.set_goal([env.positions[0, :2], there])
    actions = random_actions(env, 3)
    observation, reward, terminated, truncated, info = env.step(actions[0])
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([1, 0], [True, False], [False, False])
    if mode == AutoresetMode.SAME_STEP:
        assert info["final_info"]["success"].tolist() == [True, False]
        np.testing.assert_array_equal(observation[0], first[0])
        return
    assert info["success"].tolist() == [True, False]
    if mode == AutoresetMode.DISABLED:
        observation, info = env.reset(options={"reset_mask": terminated})
    else:
        observation, reward, terminated, truncated, info = env.step(actions[1])
        assert not reward.any()
        assert not (terminated | truncated).any()
    np.testing.assert_array_equal(observation[0], first[0])
    assert not info["success"].any()


@ALL
def test_thread_count_changes_nothing(env_id, make_vec):
    trajectories = []
    for threads in (1, 2, 4):
        env = make_vec(env_id, 9, threads=threads, reset_noise=1.0)
        env.reset(seed=3)
        for actions in random_actions(env, 40):
            env.step(actions)
        trajectories.append(env.get_state())
    for other in trajectories[1:]:
        _assert_same_state(trajectories[0], other)


@ALL
def test_state_is_restored_to_the_bit(env_id, make_vec):
    env = make_vec(env_id, 5, horizon=25, reset_noise=1.0, goal=_near_start(env_id))
    env.reset(seed=1)
    actions = random_actions(env, 60)
    for action in actions[:20]:
        env.step(action)
    saved = env.get_state()
    expected = [env.step(action) for action in actions[20:]]
    other = make_vec(env_id, 5, horizon=25, reset_noise=1.0, goal=_near_start(env_id))
    for restored in (env, other):
        restored.set_state(saved)
        for action, (observation, reward, _, truncated, info) in zip(actions[20:], expected, strict=True):
            result = restored.step(action)
            np.testing.assert_array_equal(result[0], observation)
            np.testing.assert_array_equal(result[1], reward)
            np.testing.assert_array_equal(result[3], truncated)
            _assert_same_info(result[4], info)
        _assert_same_state(env.get_state(), restored.get_state())


def _near_start(env_id):
    return (0.3, 0.3) if "Ant" in env_id else (0.0, -2.0)


def _assert_same_state(one, other):
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


@ALL
def test_reset_noise_depends_on_seed_and_episode_only(env_id, make_vec):
    env = make_vec(env_id, 3, reset_noise=1.0)
    first, _ = env.reset(seed=5)
    second, _ = env.reset()
    again, _ = env.reset(seed=5)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(env.reset(seed=6)[0][:2], first[1:])
    np.testing.assert_array_equal(env.reset(seed=[7, 6, 5])[0], first[::-1])


@ALL
def test_without_reset_noise_all_episodes_start_alike(env_id, make_vec):
    env = make_vec(env_id, 3)
    first, _ = env.reset(seed=5)
    assert (first == first[0]).all()
    np.testing.assert_array_equal(env.reset(seed=99)[0], first)


@ALL
def test_a_reset_mask_resets_only_those(env_id, make_vec):
    env = make_vec(env_id, 3)
    first, _ = env.reset(seed=0)
    for actions in random_actions(env, 5):
        before = env.step(actions)[0]
    observation, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(observation[1], first[1])
    np.testing.assert_array_equal(observation[[0, 2]], before[[0, 2]])


@ALL
def test_returned_arrays_are_the_callers(env_id, make_vec):
    env, untouched = make_vec(env_id, 2), make_vec(env_id, 2)
    env.reset(seed=0)
    untouched.reset(seed=0)
    for actions in random_actions(env, 4):
        observation, *_, info = env.step(actions)
        expected, *_ = untouched.step(actions)
        np.testing.assert_array_equal(observation, expected)
        observation[:] = np.nan
        info["diverged"][:] = True


@ALL
def test_features_are_read_by_name(env_id, make_vec):
    env = make_vec(env_id, 4)
    env.reset(seed=0)
    for actions in random_actions(env, 5):
        observation, *_ = env.step(actions)
    table = env.world.features
    observed = [name for name in table if table[name].source == "observation"]
    np.testing.assert_array_equal(env.read_features(observed), observation)
    np.testing.assert_allclose(env.read_features(["y", "x"]), env.positions[:, 1::-1], rtol=1e-6)
    assert len(table.as_rows()) == len(table)


@ALL
def test_gymnasiums_name_for_the_horizon_works_too(env_id, make_vec):
    env = make_vec(env_id, 1, max_episode_steps=2)
    env.reset(seed=0)
    ends = [env.step(actions)[3][0] for actions in random_actions(env, 2)]
    assert ends == [False, True]


@ALL
def test_closing_twice_is_fine(env_id, make_vec):
    env = make_vec(env_id, 1)
    env.close()
    env.close()
