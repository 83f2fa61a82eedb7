import warnings

import gymnasium
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium_robotics

from kmyriad.envs.maze import MAPS


@pytest.mark.parametrize(("name", "peer_id"), [("u", "PointMaze_UMaze-v3"), ("medium", "PointMaze_Medium-v3")])
def test_dynamics_equal_gymnasium_robotics_step_by_step(name, peer_id, make_vec):
    """To the bit, over a thousand steps with hundreds of wall contacts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium.register_envs(gymnasium_robotics)
        peer = gymnasium.make(peer_id, max_episode_steps=10_000)
        peer.reset(seed=0)
    env = make_vec("kmyriad/PointMaze-v0", 1, map=name, horizon=10_000)
    env.reset(seed=0)
    np.testing.assert_array_equal(np.array(peer.unwrapped.maze.maze_map) == 1, env.wall_map)
    point = peer.unwrapped.point_env
    point.set_state(env.positions[0, :2], np.zeros(2))
    point.data.qacc_warmstart[:] = 0
    rng = np.random.default_rng(0)
    contacts = 0
    for step in range(1500):
        if step % 25 == 0:
            action = rng.uniform(-1, 1, 2).astype(np.float32)
        peer.step(action)
        env.step(action[None])
        np.testing.assert_array_equal(env.get_state().physics[0, 1:5], [*point.data.qpos, *point.data.qvel])
        contacts += point.data.ncon > 1  # the first contact is the ball's with the ground
    assert contacts > 200
    peer.close()


@pytest.mark.parametrize("name", MAPS)
def test_named_maps_start_in_a_free_cell(name, make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 1, map=name)
    env.reset()
    assert not env.world.terrain.is_wall(*env.positions[0, :2])


def test_start_cell_and_reset_noise(make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 200, map="u", start=(1, 1), reset_noise=1.0)
    env.reset(seed=0)
    offsets = env.positions[:, :2] - [-1.0, 1.0]
    assert 0.2 < np.abs(offsets).max() <= 0.25


def test_walls_hold_the_ball(make_vec):
    env = make_vec("kmyriad/PointMaze-v0", 50, horizon=10_000)
    env.reset()
    rng = np.random.default_rng(0)
    for step in range(600):
        if step % 30 == 0:
            actions = rng.choice([-1.0, 1.0], (50, 2))
        env.step(actions)
        assert not env.world.terrain.is_wall(*env.positions[:, :2].T).any()
