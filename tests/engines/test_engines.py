"""Other people's environments: what they do here is what they do by themselves, in any number of processes."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import kmyriad as km
from kmyriad.engines import gym_engine
from kmyriad.engines.gym_engine import GymEngine, episode_seed
from kmyriad.engines.make import GoalPoint, make_engine
from kmyriad.engines.replica import action_of
from kmyriad.engines.source import find_source, name_of
from kmyriad.engines.vector_engine import VectorEngine
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.population.distributions import action_spec
from tests import walk_env

walk_env.register()
with warnings.catch_warnings(action="ignore"):
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)

MUJOCO = [
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Swimmer-v5",
    "Ant-v5",
    "Humanoid-v5",
    "Reacher-v5",
    "Pusher-v5",
]
ROBOTICS = ["PointMaze_UMaze-v3", "AntMaze_UMaze-v5"]
OTHERS = ["Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1", walk_env.ENDING, walk_env.DISCRETE]
NO_LIMIT = np.zeros(2, bool)


def actions_for(space, steps, count, seed=0):
    """(steps, count, a), as populations give them."""
    spec, rng = action_spec(space, (-1.0, 1.0)), np.random.default_rng(seed)
    return [spec.squash(torch.from_numpy(rng.normal(size=(count, spec.size))).float()).numpy() for _ in range(steps)]


@pytest.mark.parametrize("env", [*MUJOCO, *ROBOTICS, *OTHERS])
def test_replicas_do_what_the_plain_environment_does(env):
    """Observations, rewards and ends, to the bit, through early ends and resets."""
    engine = make_engine(env, 2, horizon=100, engine="serial")
    assert isinstance(engine, GymEngine)
    plain = [find_source(env).make() for _ in range(2)]
    flat = [gymnasium.wrappers.FlattenObservation(one) for one in plain]
    first = engine.start(7)
    seen = np.stack([one.reset(seed=episode_seed(7, index, 0))[0] for index, one in enumerate(flat)])
    np.testing.assert_array_equal(first, seen.astype(np.float32))
    act, episodes = action_of(engine.action_space), [0, 0]
    for step, actions in enumerate(actions_for(engine.action_space, 25, 2)):
        last = np.array([step == 11, False])
        outcome = engine.step(actions, last)
        for index, one in enumerate(flat):
            seen, reward, terminated, truncated, _ = one.step(act(np.atleast_1d(actions[index])))
            done = terminated or truncated or last[index]
            np.testing.assert_array_equal(outcome.observation[index], seen.astype(np.float32))
            told = (outcome.reward[index], outcome.terminated[index], outcome.done[index])
            assert told == (reward, terminated, done)
            if done:
                episodes[index] += 1
                seen, _ = one.reset(seed=episode_seed(7, index, episodes[index]))
            np.testing.assert_array_equal(outcome.following[index], seen.astype(np.float32))
    engine.close()


@pytest.mark.parametrize("env", ["Hopper-v5", "PointMaze_UMaze-v3", walk_env.DISCRETE])
def test_processes_change_nothing_and_a_state_comes_back_in_any_number_of_them(env):
    """Five replicas on two processes: one has a place that stays empty."""
    serial, processes = (make_engine(env, 5, horizon=100, engine=name) for name in ("serial", "processes"))
    np.testing.assert_array_equal(serial.start(3), processes.start(3))
    last = np.zeros(5, bool)
    actions = actions_for(serial.action_space, 16, 5)
    for step in range(12):
        last[:] = step == 4 + np.arange(5)
        here, there = serial.step(actions[step], last), processes.step(actions[step], last)
        for name, value in vars(here).items():
            np.testing.assert_array_equal(value, getattr(there, name), err_msg=name)
    again = make_engine(env, 5, horizon=100, engine="serial")
    assert again.set_state(processes.get_state())
    for step in range(12, 16):
        here, there = serial.step(actions[step], ~last), again.step(actions[step], ~last)
        for name, value in vars(here).items():
            np.testing.assert_array_equal(value, getattr(there, name), err_msg=name)
    for engine in (serial, processes, again):
        engine.close()


def test_every_episode_has_a_seed_of_its_own():
    seeds = {
        episode_seed(seed, replica, episode) for seed in range(5) for replica in range(20) for episode in range(20)
    }
    assert len(seeds) == 2000
    assert max(seeds) < 2**31


@pytest.mark.parametrize(
    ("env", "features", "labels"),
    [
        ("HalfCheetah-v5", ("x", "z"), ("x (m)", "z (m)")),  # not among its observations
        ("Humanoid-v5", ("x", "y", "z"), ("x (m)", "y (m)")),
        ("Swimmer-v5", ("x", "y"), ("x (m)", "y (m)")),
        ("AntMaze_UMaze-v5", ("x", "y", "z"), ("x (m)", "y (m)")),
        ("PointMaze_UMaze-v3", ("x", "y"), ("x (m)", "y (m)")),
        ("Pendulum-v1", ("0", "1", "2"), ("observation 0", "observation 1")),
        ("Reacher-v5", tuple(map(str, range(10))), ("observation 0", "observation 1")),
    ],
)
def test_what_is_explored_where_nothing_is_asked_for(env, features, labels):
    engine = make_engine(env, 1, horizon=10, engine="serial")
    assert tuple(feature.name for feature in engine.features) == features
    assert engine.plane.labels == labels
    is_length = [feature.unit == "m" for feature in engine.features]
    assert [feature.scale for feature in engine.features] == [1.0 if known else 0.0 for known in is_length]


@pytest.mark.parametrize(
    ("env", "name", "expected"),
    [
        ("HalfCheetah-v5", "0", lambda env, seen: seen[:1]),
        ("HalfCheetah-v5", "-1", lambda env, seen: seen[-1:]),
        ("HalfCheetah-v5", "2:5", lambda env, seen: seen[2:5]),
        ("HalfCheetah-v5", "qpos", lambda env, seen: env.unwrapped.data.qpos),
        ("HalfCheetah-v5", "qvel[0:2]", lambda env, seen: env.unwrapped.data.qvel[:2]),
        ("HalfCheetah-v5", "rooty", lambda env, seen: env.unwrapped.data.joint("rooty").qpos),
        ("HalfCheetah-v5", "bfoot", lambda env, seen: env.unwrapped.data.joint("bfoot").qpos),
        ("HalfCheetah-v5", "torso", lambda env, seen: env.unwrapped.data.body("torso").xpos),
        ("HalfCheetah-v5", "bfoot.z", lambda env, seen: env.unwrapped.data.body("bfoot").xpos[2:]),
        ("HalfCheetah-v5", "info.x_position", lambda env, seen: env.unwrapped.data.qpos[:1]),
        ("PointMaze_UMaze-v3", "achieved_goal", lambda env, seen: seen["achieved_goal"]),
        ("PointMaze_UMaze-v3", "observation[2:]", lambda env, seen: seen["observation"][2:]),
        ("PointMaze_UMaze-v3", "desired_goal[1]", lambda env, seen: seen["desired_goal"][1:]),
        ("Reacher-v5", "fingertip.x", lambda env, seen: env.unwrapped.data.body("fingertip").xpos[:1]),
    ],
)
def test_features_by_name(env, name, expected):
    engine = make_engine(env, 1, horizon=10, features=(name,), engine="serial")
    plain = find_source(env).make()
    engine.start(0)
    plain.reset(seed=episode_seed(0, 0, 0))
    act = action_of(engine.action_space)
    for actions in actions_for(engine.action_space, 3, 1):
        outcome = engine.step(actions, np.zeros(1, bool))
        seen, *_ = plain.step(act(actions[0]))
        np.testing.assert_array_equal(outcome.features[0], np.float32(expected(plain, seen)))
    assert len({feature.name for feature in engine.features}) == outcome.features.shape[1]
    again = make_engine(env, 1, horizon=10, features=[f.name for f in engine.features], engine="serial")
    assert again.features == engine.features or name in ("qpos", "torso")  # a part has the scale of its own


def height_and_speed(observation, info):
    return observation[0], abs(info.get("x_velocity", 0.0))


def test_features_may_be_a_function():
    run_features = (name_of(height_and_speed),)
    assert run_features == ("tests.engines.test_engines:height_and_speed",)
    engine = make_engine("HalfCheetah-v5", 2, horizon=10, features=run_features, engine="serial")
    engine.start(0)
    outcome = engine.step(np.ones((2, 6), np.float32), NO_LIMIT)
    np.testing.assert_array_equal(outcome.features[:, 0], outcome.observation[:, 0])
    assert (outcome.features[:, 1] >= 0).all()


@pytest.mark.parametrize(
    ("env", "name", "message"),
    [
        ("HalfCheetah-v5", "rootw", "unknown feature 'rootw'"),
        ("HalfCheetah-v5", "17", "feature '17' has no such columns; there are 17, from 0 to 16"),
        ("HalfCheetah-v5", "qpos[20]", "has no such columns; there are 9"),
        ("HalfCheetah-v5", "info.x_positoin", "did you mean 'info.x_position'"),
        ("HalfCheetah-v5", "nowhere:function", "module 'nowhere' cannot be imported"),
        ("PointMaze_UMaze-v3", "achieved_gaol", "did you mean 'achieved_goal'"),
        ("Pendulum-v1", "x", "unknown feature 'x'"),
    ],
)
def test_features_that_there_are_none_of(env, name, message):
    with pytest.raises(UsageError, match=message) as error:
        make_engine(env, 1, horizon=10, features=(name,))
    assert "\n" not in str(error.value)


class Odd(walk_env.Walk):
    """With other spaces."""

    def __init__(self, seen=None, act=None, shape=None):
        super().__init__()
        self.observation_space = self.observation_space if seen is None else seen
        self.action_space = self.action_space if act is None else act
        self.took, self._shape = [], shape

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._steps += 1
        seen = self.observation_space.sample()
        return (seen if self._shape is None else np.zeros(self._shape)), 0.0, False, False, {}


SPACES = gymnasium.spaces


def odd_box(**_):
    return Odd(SPACES.Box(-1, 1, (2, 3), np.float32))


def odd_images(**_):
    return Odd(SPACES.Box(0, 255, (64, 64, 3), np.uint8))


def odd_images_in_a_dict(**_):
    return Odd(SPACES.Dict({"camera": SPACES.Box(0, 255, (64, 64, 3), np.uint8), "arm": SPACES.Box(-1, 1, (2,))}))


def odd_text(**_):
    return Odd(SPACES.Sequence(SPACES.Box(-1, 1, (2,))))


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (SPACES.Discrete(5), 5),
        (SPACES.MultiDiscrete([3, 2]), 5),
        (SPACES.MultiBinary(4), 4),
        (SPACES.Tuple([SPACES.Box(-1, 1, (2, 3)), SPACES.Discrete(2)]), 8),
        (SPACES.Dict({"a": SPACES.Box(-1, 1, (2,)), "b": SPACES.Dict({"c": SPACES.Discrete(3)})}), 5),
    ],
)
def test_observations_of_any_kind_are_flattened(space, size):
    engine = make_engine(name_of(lambda: Odd(space)), 2, horizon=10, engine="serial")
    assert engine.observation_size == size
    engine.start(0)
    outcome = engine.step(np.zeros((2, 2), np.float32), NO_LIMIT)
    assert outcome.observation.shape == (2, size)


@pytest.mark.parametrize(
    "space",
    [
        SPACES.Discrete(3, start=2),
        SPACES.MultiDiscrete([3, 2, 4]),
        SPACES.MultiDiscrete([[3, 2], [4, 5]]),
        SPACES.MultiBinary(3),
        SPACES.MultiBinary((2, 2)),
        SPACES.Box(-2, 1, (2, 2), np.float64),
    ],
)
def test_actions_of_any_kind_are_taken(space):
    """The environment itself refuses an action that is not of its space."""
    engine = make_engine(name_of(lambda: Odd(act=space)), 2, horizon=10, engine="serial")
    engine.start(0)
    for actions in actions_for(engine.action_space, 20, 2):
        engine.step(actions, NO_LIMIT)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("tests.engines.test_engines:odd_images", "is an image, and policies here see vectors"),
        ("tests.engines.test_engines:odd_images_in_a_dict", "is an image"),
        ("tests.engines.test_engines:odd_text", "has no fixed number of values"),
        ("tests.engines.test_engines:nothing", "has no function 'nothing', and registers no such id"),
        ("tests.engines.test_engines:SPACES", "is no function that makes an environment, but module"),
        ("tests.engines.test_engines:actions_for", "cannot be made: TypeError"),
        ("tests.nowhere:thing", "module 'tests.nowhere' cannot be imported: ModuleNotFoundError"),
        ("math:pi", "is no function"),
        ("given:lost", "was an object given in Python and cannot be made from its name here"),
        ("Hoper-v5", "did you mean 'Hopper-v5'"),
    ],
)
def test_what_is_no_environment_is_one_sentence(env, message):
    with pytest.raises(UsageError, match=message) as error:
        make_engine(env, 1, horizon=10)
    assert "\n" not in str(error.value)


def test_an_observation_of_another_shape_names_the_replica_and_the_step():
    made = []

    def make():
        made.append(None)
        return Odd(shape=None if len(made) < 4 else (5,))

    engine = make_engine(name_of(make), 3, horizon=10, engine="serial")
    engine.start(0)
    with pytest.raises(
        TrainingStoppedError, match=r"step of replica 2 in its step 1 raised ValueError: its obs.*\(5,\)"
    ):
        engine.step(np.zeros((3, 2), np.float32), np.zeros(3, bool))


def test_an_error_crosses_processes_as_one_sentence(capfd):
    engine = make_engine(walk_env.RAISING, 4, horizon=100, engine="processes")
    engine.start(0)
    still, last = np.zeros((4, 2), np.float32), np.zeros(4, bool)
    for _ in range(walk_env.FAILS_FROM - 1):
        engine.step(still, last)
    with pytest.raises(TrainingStoppedError, match=r"step of replica [02] in its step 30 raised RuntimeError: the rob"):
        engine.step(still, last)
    engine.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_module_of_the_current_folder_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "my_boats.py").write_text(
        "import gymnasium\nfrom tests.walk_env import Walk\n"
        "def boat(discrete=False):\n    return Walk(discrete)\n"
        "def fleet(num_envs):\n    return gymnasium.vector.SyncVectorEnv([Walk] * num_envs)\n"
        "gymnasium.register('kmyriad-test/Boat-v3', entry_point=Walk)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert make_engine("my_boats:boat", 2, horizon=5, settings={"discrete": True}).action_space.n == 4
    assert make_engine("my_boats:kmyriad-test/Boat-v3", 2, horizon=5).observation_size == 2
    assert isinstance(make_engine("my_boats:fleet", 2, horizon=5), VectorEngine)
    with pytest.raises(UsageError, match="cannot be made: TypeError"):
        make_engine("my_boats:boat", 2, horizon=5, settings={"colour": "red"})


def vector(mode, count=3):
    return SyncVectorEnv([lambda: walk_env.WalkEnding()] * count, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_environment_is_seen_alike_however_it_resets(mode):
    """It walks off the edge in the fifth step: what it reached there is told, then the next episode begins."""
    engine = make_engine(name_of(lambda num_envs: vector(mode, num_envs)), 3, horizon=50)
    engine.start(0)
    east = np.tile(np.float32([2.0, 0.0]), (3, 1))
    outcomes = [engine.step(east, np.zeros(3, bool)) for _ in range(5)]
    assert [outcome.done.tolist() for outcome in outcomes] == [[False] * 3] * 2 + [[True] * 3] + [
        [mode == AutoresetMode.NEXT_STEP] * 3,
        [False] * 3,
    ]
    assert (outcomes[2].observation[:, 0] > walk_env.EDGE).all()
    assert outcomes[2].terminated.all()
    does_reset = mode == AutoresetMode.NEXT_STEP
    assert outcomes[3].broken.tolist() == [does_reset] * 3  # the step that only resets counts for nothing
    begun = outcomes[3] if does_reset else outcomes[2]
    assert (np.abs(begun.following) < 0.1).all()
    assert engine.obeys_limit == (mode == AutoresetMode.DISABLED)
    if engine.obeys_limit:
        last = np.array([True, False, False])
        assert engine.step(np.zeros_like(east), last).done.tolist() == [True, False, False]


def test_a_ready_vector_environment_trains_and_says_what_that_costs(tmp_path, capfd):
    run = km.pretrain(
        vector(AutoresetMode.SAME_STEP, 8), agents=2, replicas=8, horizon=20, total_steps=400, out=tmp_path / "run"
    )
    assert "is an object: its run can be resumed and opened only where it is given again" in capfd.readouterr().err
    assert run.env == "given:SyncVectorEnv"
    with pytest.raises(UsageError, match="has 8 replicas and 300 are asked for"):
        km.evaluate(run)


def test_a_function_given_in_python_works_everywhere_in_this_process(tmp_path):
    run = km.pretrain(
        lambda: walk_env.Walk(),
        agents=2,
        replicas=8,
        horizon=12,
        rollout_steps=5,
        total_steps=200,
        out=tmp_path / "run",
    )
    assert km.evaluate(run, episodes=4).measures["covered_cells"] > 0
    assert km.select(run, {"0": 0.5}, 0.2, steps=200).standings
    made = km.jumpstart(run, goal={"1": 0.5}, goal_radius=0.2, total_steps=900, selection_steps=200, replicas=8,
                        out=tmp_path / "jump")  # fmt: skip
    assert made.jumpstart.task.goal_names == ("1",)
    with pytest.raises(UsageError, match="one environment cannot be many replicas"):
        km.pretrain(walk_env.Walk(), out=tmp_path / "other")


def test_its_own_vector_version_is_used_where_it_can_tell_the_features():
    assert isinstance(make_engine("CartPole-v1", 4, horizon=20), VectorEngine)
    assert isinstance(make_engine("CartPole-v1", 4, horizon=20, engine="serial"), GymEngine)
    with pytest.raises(UsageError, match="Pendulum-v1 has no vector version of its own; use engine auto"):
        make_engine("Pendulum-v1", 4, horizon=20, engine="vector")


def test_goals_that_end_episodes_need_an_environment_that_obeys():
    name = name_of(lambda num_envs: vector(AutoresetMode.SAME_STEP, num_envs))
    with pytest.raises(UsageError, match="so that episodes cannot stop at a goal; use --no-stop-at-goal"):
        make_engine(name, 2, horizon=10, goal=GoalPoint((1.0, 0.0), ends=True))
    engine = make_engine(name, 2, horizon=10, goal=GoalPoint((0.6, 0.0), radius=0.1))
    engine.start(0)
    outcome = engine.step(np.float32([[2.0, 0.0], [0.0, 0.0]]), NO_LIMIT)
    assert outcome.reward.tolist() == [1, 0]


def test_a_robot_that_mujoco_put_back_to_its_start_is_broken():
    """MuJoCo resets what has blown up by itself, in the middle of an episode: that state was not visited."""
    engine = make_engine("Hopper-v5", 2, horizon=10, engine="serial")
    engine.start(0)
    data = engine._own._replicas[1].env.unwrapped.data
    data.qvel[:] = 1e12
    outcome = engine.step(np.zeros((2, 3), np.float32), NO_LIMIT)
    assert outcome.broken.tolist() == [False, True]
    assert np.isfinite(outcome.observation).all()


def test_a_process_that_is_killed_is_one_sentence_and_leaves_none_behind():
    engine = make_engine(walk_env.CONTINUOUS, 6, horizon=100, engine="processes", threads=3)
    engine.start(0)
    still, last = np.zeros((6, 2), np.float32), np.zeros(6, bool)
    engine.step(still, last)
    killed, other = engine._others.processes
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    with pytest.raises(TrainingStoppedError, match="a process with replicas of the environment has ended"):
        engine.step(still, last)
    engine.close()
    other.join(10)
    assert not other.is_alive()


def test_processes_end_also_where_an_interrupt_has_taken_an_answer(monkeypatch):
    """As it does between the answers of the first and the second process: the first has nothing more to say."""
    monkeypatch.setattr(gym_engine, "CLOSING", 0.5)
    engine = make_engine(walk_env.CONTINUOUS, 6, horizon=10, engine="processes", threads=3)
    engine.start(0)
    chunks = engine._others
    chunks.step_async(np.zeros((len(chunks.processes), *chunks.single_action_space.shape)))
    chunks.parent_pipes[0].recv()
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert not any(process.is_alive() for process in chunks.processes)


def test_processes_are_heard_out_where_an_interrupt_came_as_soon_as_they_were_asked(monkeypatch):
    """Before the vector environment has noted that there are answers to wait for: else they write to nobody."""
    engine = make_engine(walk_env.CONTINUOUS, 6, horizon=10, engine="processes", threads=3)
    engine.start(0)
    others, heard = engine._others, []

    class Pipe:
        def __init__(self, pipe):
            self.pipe = pipe

        def recv(self):
            heard.append(self.pipe.recv())
            return heard[-1]

        def __getattr__(self, name):
            return getattr(self.pipe, name)

    def interrupted(actions):
        for pipe, action in zip(others.parent_pipes, actions, strict=True):
            pipe.send(("step", action))
        raise KeyboardInterrupt

    others.parent_pipes = [Pipe(pipe) for pipe in others.parent_pipes]
    monkeypatch.setattr(others, "step_async", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.step(np.zeros((6, 2), np.float32), np.zeros(6, bool))
    engine.close()
    assert [process.exitcode for process in others.processes] == [0, 0]
    assert [answer is None for answer, _ in heard] == [False, False, True, True]  # to the step, to closing


def test_an_interrupt_ends_processes_without_a_word_of_theirs(tmp_path):
    command = [sys.executable, "-m", "kmyriad", "pretrain", "Hopper-v5", "--engine", "processes", "--replicas", "10"]
    command += ["--total-steps", "100000000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and metrics.stat().st_size:
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in told
    assert told.rstrip().endswith("kmyriad: stopped; go on with the same --out and --resume")
