import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

import kmyriad  # noqa: F401  (registers the ids)
from kmyriad.envs.mujoco_vector import MujocoVectorEnv
from kmyriad.envs.rendering import RenderError


@pytest.fixture
def make_vec():
    """`make_vec(id, n, **settings)`: our vector environments, closed at the end of the test."""
    made: list[VectorEnv] = []

    def make(env_id: str, num_envs: int, **settings) -> MujocoVectorEnv:
        env = gymnasium.make_vec(env_id, num_envs, **settings)
        assert isinstance(env, MujocoVectorEnv)
        made.append(env)
        return env

    yield make
    for env in made:
        env.close()


@pytest.fixture(scope="session")
def _opengl():
    """Skips where pictures cannot be drawn."""
    env = gymnasium.make("kmyriad/PointMaze-v0", render_mode="rgb_array", width=8, height=8)
    env.reset()
    try:
        env.render()
    except RenderError as error:
        pytest.skip(str(error))
    finally:
        env.close()


def random_actions(env: MujocoVectorEnv, steps: int, seed: int = 0) -> np.ndarray:
    """(steps, n, a), strong and jerky enough to make the robots touch things."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)
