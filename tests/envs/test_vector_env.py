import copy
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from kmyriad.envs.make import make_world
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.errors import UsageError
from tests.conftest import random_actions

UNSTABLE = {"armature": 1e-6, "timestep": 0.2, "horizon": 40}
"""Physics that is certain to break."""


def test_a_diverging_replica_is_frozen_and_flagged_in_the_same_step(make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 50, goal=(0, 0), **UNSTABLE)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    frozen_at: dict[int, np.ndarray] = {}
    last = env.get_state()
    for _ in range(39):
        observation, reward, _, truncated, info = env.step(rng.choice([-1.0, 1.0], (50, 8)))
        assert np.isfinite(observation).all()
        assert env.observation_space.contains(observation)
        state = env.get_state()
        assert np.isfinite(state.physics).all()
        for replica in np.flatnonzero(info["diverged"]):
            frozen_at.setdefault(replica, last.physics[replica])
            np.testing.assert_array_equal(state.physics[replica], frozen_at[replica])
            assert reward[replica] == 0
        assert frozen_at.keys() == set(np.flatnonzero(info["diverged"]))
        last = state
    assert len(frozen_at) > 5
    _, _, _, truncated, _ = env.step(rng.choice([-1.0, 1.0], (50, 8)))
    assert truncated.all()  # its clock went on: the episode ends with the others'
    _, _, _, _, info = env.step(np.zeros((50, 8)))
    assert not info["diverged"].any()


def test_others_go_on_as_if_the_diverged_were_not_there(make_vec):
    alone, beside = make_vec("kmyriad/AntEmpty-v0", 1), make_vec("kmyriad/AntEmpty-v0", 2)
    alone.reset(), beside.reset()
    state = beside.get_state()
    state.physics[1, 16:30] = 1e7  # qvel of the second: absurd
    beside.set_state(state)
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.uniform(-1, 1, (2, 8))
        observation, *_, info = beside.step(actions)
        np.testing.assert_array_equal(observation[0], alone.step(actions[:1])[0][0])
        assert info["diverged"].tolist() == [False, True]


def test_mujocos_warnings_reach_neither_terminal_nor_log(tmp_path):
    program = f"""
import gymnasium, kmyriad, numpy as np
env = gymnasium.make_vec("kmyriad/AntEmpty-v0", 50, **{UNSTABLE!r})
env.reset(seed=0)
rng = np.random.default_rng(0)
for _ in range(30):
    info = env.step(rng.choice([-1.0, 1.0], (50, 8)))[4]
print(int(info["diverged"].sum()))
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(result.stdout) > 5
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_users_own_warning_handler_is_put_back(make_vec):
    import mujoco

    def handler(message: str) -> None:
        pass

    mujoco.set_mju_user_warning(handler)
    try:
        env = make_vec("kmyriad/AntEmpty-v0", 1)
        env.reset()
        env.step(np.zeros((1, 8)))
        assert mujoco.get_mju_user_warning() is handler
    finally:
        mujoco.set_mju_user_warning(None)


def test_staggered_ages_end_in_turn(make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 3, horizon=10)
    env.reset()
    state = env.get_state()
    state.age[:] = [0, 4, 8]
    env.set_state(state)
    ends = np.array([env.step(np.zeros((3, 2)))[3] for _ in range(10)])
    assert [np.flatnonzero(column)[0] for column in ends.T] == [9, 5, 1]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.full((2, 8), np.nan), "action 0 of replica 0 is nan"),
        (np.where(np.arange(16).reshape(2, 8) == 11, np.inf, 0.0), "action 3 of replica 1 is inf"),
        (np.zeros((2, 7)), r"shape \(2, 8\).*got \(2, 7\)"),
        (np.zeros((8, 2)), r"shape \(2, 8\).*got \(8, 2\)"),
        (np.zeros(8), r"shape \(2, 8\).*got \(8,\)"),
        (np.zeros((2, 8), int), "must be floats.*int64"),
        (np.zeros((2, 8), bool), "must be floats.*bool"),
        ([["left"] * 8] * 2, "must be floats.*"),
        (None, "must be floats.*object"),
    ],
)
def test_bad_actions_are_refused_in_one_sentence(actions, message, make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 2)
    env.reset()
    before = env.get_state().physics
    with pytest.raises(UsageError, match=message) as error:
        env.step(actions)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(env.get_state().physics, before)


@pytest.mark.parametrize(
    ("env_id", "num_envs", "settings", "message"),
    [
        ("AntEmpty", 0, {}, "num_envs must be between 1 and"),
        ("AntEmpty", 1, {"threads": 0}, "threads must be between 1 and 4096; got 0"),
        ("AntEmpty", 1, {"size": 4}, "size must be an odd number"),
        ("AntMaze", 1, {"size": 1}, "size must be an odd number of at least 3"),
        ("AntEmpty", 1, {"terrain": "pyramide"}, "unknown terrain 'pyramide' .did you mean 'pyramid'"),
        ("AntEmpty", 1, {"map": "u"}, "map goes with terrain 'maze' only"),
        ("AntMaze", 1, {"map": "larg"}, "did you mean 'large'"),
        ("AntEmpty", 1, {"armature": -1.0}, "armature must be between 1e-09 and 1000; got -1.0"),
        ("AntEmpty", 1, {"density": 0.0}, "density must be between 1e-06 and 1e[+]06; got 0.0"),
        ("AntEmpty", 1, {"timestep": float("nan")}, "timestep must be a finite number; got nan"),
        ("AntEmpty", 1, {"decimation": 0}, "decimation must be between 1 and 10000; got 0"),
        ("AntEmpty", 1, {"horizon": 0}, "horizon must be between 1 and 1e[+]07; got 0"),
        ("AntEmpty", 1, {"reset_noise": -0.1}, "reset_noise must be between 0 and 1000; got -0.1"),
        ("AntEmpty", 1, {"terrain_seed": -1}, "terrain_seed must be between 0 and .*; got -1"),
        ("AntEmpty", 1, {"armatur": 0.1}, "unknown setting 'armatur' .did you mean 'armature'"),
        ("AntEmpty", 1, {"autoreset_mode": "sometimes"}, "autoreset_mode must be one of"),
        ("PointMaze", 1, {"map": "rign"}, "did you mean 'ring'"),
        ("PointMaze", 1, {"start": (0, 0)}, "start cell must be a free cell"),
        ("PointMaze", 1, {"start": (1, 1, 1)}, r"start must have 2 values; got \(1, 1, 1\)"),
        ("PointMaze", 1, {"start": 3}, "start must be a list; got 3"),
        ("AntEmpty", 1, {"horizon": "long"}, "horizon must be a whole number; got 'long'"),
        ("AntEmpty", 1, {"horizon": 10**400}, "horizon must be a whole number; got 1000"),
        ("AntEmpty", 1, {"density": float("inf")}, "density must be a finite number; got inf"),
        ("AntEmpty", 1, {"size": 3.5}, "size must be a whole number; got 3.5"),
        ("AntEmpty", 1, {"density": True}, "density must be a finite number; got True"),
        ("AntEmpty", 1, {"terrain": 3}, "terrain must be text; got 3"),
        ("AntEmpty", 1, {"ends_at_goal": 1}, "ends_at_goal must be true or false; got 1"),
        ("AntEmpty", 1, {"horizon": 3, "max_episode_steps": 3}, "are the same thing here; give horizon only"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(env_id, num_envs, settings, message, make_vec):
    with pytest.raises(UsageError, match=message) as error:
        make_vec(f"kmyriad/{env_id}-v0", num_envs, **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1; got 0"),
        ({"threads": 0}, "threads must be at least 1 .or None for all cores.; got 0"),
        ({"goal_radius": 0.0}, "goal_radius must be above 0 metres; got 0.0"),
        ({"width": 0}, "at least 1 pixel; got 0 x 480"),
    ],
)
def test_an_engine_around_ones_own_world_refuses_bad_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        WorldVectorEnv(make_world("point-maze"), **{"num_envs": 1} | settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.read_features(["x", "hight"]), "unknown feature 'hight'"),
        (lambda env: env.read_features(["quaternio"]), "did you mean 'quaternion'"),
        (lambda env: env.read_features("x"), "features must be a list"),
        (lambda env: env.read_features([]), "features must be a list"),
        (lambda env: env.reset(seed=[1]), "list of 2 .num_envs.; got 1"),
        (lambda env: env.reset(options={"reset_mask": [True, False]}), "reset_mask'. must be a boolean array"),
        (lambda env: env.reset(options={"reset_mask": np.zeros(2, bool)}), "not all False"),
        (lambda env: env.render_replica(0, "behind"), "unknown camera 'behind'"),
    ],
)
def test_bad_calls_are_refused_in_one_sentence(call, message, make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 2)
    env.reset()
    with pytest.raises(UsageError, match=message):
        call(env)


def test_step_before_reset_is_refused(make_vec):
    env = make_vec("kmyriad/AntEmpty-v0", 2)
    with pytest.raises(UsageError, match="call reset first"):
        env.step(np.zeros((2, 8)))


def test_state_of_another_environment_is_refused(make_vec):
    two, three = make_vec("kmyriad/AntEmpty-v0", 2), make_vec("kmyriad/AntEmpty-v0", 3)
    with pytest.raises(UsageError, match=r"state.physics must have shape \(3, "):
        three.set_state(two.get_state())


def test_a_single_environment_refuses_to_go_past_the_end():
    env = gymnasium.make("kmyriad/PointMaze-v0", horizon=1)
    env.reset()
    assert env.step(np.zeros(2, np.float32))[3]
    with pytest.raises(UsageError, match=r"episode .* is over"):
        env.unwrapped.step(np.zeros(2, np.float32))
    env.close()


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("env_id", ["kmyriad/AntMaze-v0", "kmyriad/PointMaze-v0"])
def test_copies_and_pickles_have_the_same_future(make_vec, env_id, duplicate):
    env = make_vec(env_id, 3, goal=(0.0, 2.0) if "Point" in env_id else (0.0, 8.0), reset_noise=0.5, horizon=12)
    env.reset(seed=1)
    actions = random_actions(env, 25)
    for step in range(5):
        env.step(actions[step])
    twin = duplicate(env)
    for step in range(5, 25):  # over the end of an episode, into one with other noise
        for ours, theirs in zip(env.step(actions[step])[:4], twin.step(actions[step])[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    twin.close()


def test_an_environment_that_was_never_reset_can_be_copied(make_vec):
    twin = copy.deepcopy(make_vec("kmyriad/PointMaze-v0", 2))
    with pytest.raises(UsageError, match="before reset"):
        twin.step(np.zeros((2, 2), np.float32))
    twin.close()


def test_a_forked_process_goes_on_by_itself(make_vec):
    """Threads do not come along with a fork: to wait for them would hang, in a step and at the end."""
    code = """
import os, gymnasium, numpy as np, kmyriad
env, other = (gymnasium.make_vec("kmyriad/PointMaze-v0", 4) for _ in range(2))
env.reset(seed=0), other.reset(seed=0)
push = np.ones((4, 2), np.float32)
env.step(push)
child = os.fork()
seen = env.step(push)[0]
print("child" if not child else "parent", seen.sum())
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    told = dict(line.split() for line in done.stdout.splitlines())
    assert told["child"] == told["parent"]
