import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from kmyriad.envs import WORLDS
from kmyriad.errors import UsageError
from tests.conftest import random_actions

pytestmark = pytest.mark.usefixtures("_opengl")


@pytest.mark.parametrize("camera", ["follow", "top"])
@pytest.mark.parametrize("env_id", [row.id for row in WORLDS.values()], ids=WORLDS)
def test_pictures_show_the_robot(env_id, camera):
    env = gymnasium.make(env_id, render_mode="rgb_array", camera=camera, width=240, height=160)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (160, 240, 3)
    assert picture.dtype == np.uint8
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    assert ((red > 90) & (red > green + 25) & (green > blue + 25)).sum() >= 4  # the robot is orange
    env.close()


def test_the_goal_is_drawn_and_the_camera_follows(make_vec):
    plain = make_vec("kmyriad/AntEmpty-v0", 1, render_mode="rgb_array", width=100, height=100)
    goal = make_vec("kmyriad/AntEmpty-v0", 1, goal=(1, 1), render_mode="rgb_array", width=100, height=100)
    plain.reset(), goal.reset()
    assert not np.array_equal(plain.render()[0], goal.render()[0])
    state = plain.get_state()
    state.physics[0, 1:3] = 30.0  # x and y: the chequers repeat, the robot stays in the middle of the picture
    before = plain.render()[0]
    plain.set_state(state)
    moved = np.abs(plain.render()[0].astype(int) - before)
    assert np.median(moved) < 20


def test_every_replica_has_its_own_picture(make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 2, render_mode="rgb_array", camera="top", width=64, height=64)
    env.reset()
    for _ in range(40):
        env.step(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    left, right = env.render()
    assert not np.array_equal(left, right)
    env.close()
    assert len(env.render()) == 2  # opened again


def test_rendering_changes_no_number(make_vec):
    seen, unseen = (
        make_vec("kmyriad/AntCave-v0", 2, render_mode=mode, width=32, height=32) for mode in ("rgb_array", None)
    )
    seen.reset(seed=0), unseen.reset(seed=0)
    assert unseen.render() is None
    for actions in random_actions(seen, 10):
        seen.render()
        np.testing.assert_array_equal(seen.step(actions)[0], unseen.step(actions)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"render_mode": "human"}, "render_mode must be None or 'rgb_array'"),
        ({"camera": "tpo"}, "unknown camera 'tpo' .did you mean 'top'"),
        ({"width": 0}, "width must be between 1 and 8192; got 0"),
        ({"height": 9000}, "height must be between 1 and 8192; got 9000"),
    ],
)
def test_bad_settings_are_refused(settings, message, make_vec):
    with pytest.raises(UsageError, match=message):
        make_vec("kmyriad/AntEmpty-v0", 1, **settings)


def test_without_opengl_the_message_says_what_to_do(tmp_path):
    program = """
import os
os.environ["MUJOCO_GL"] = "egl"
import sys
import gymnasium, kmyriad
sys.modules["mujoco.egl"] = None  # as if the library were not there
env = gymnasium.make("kmyriad/PointMaze-v0", render_mode="rgb_array")
env.reset()
try:
    env.render()
except RuntimeError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("cannot render: no OpenGL found (egl: ")
    assert "install libegl1" in result.stdout
    assert result.stdout.count("\n") == 1
