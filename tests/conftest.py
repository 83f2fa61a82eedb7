import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv

import kmyriad  # noqa: F401  (registers the ids)
from kmyriad.envs.rendering import RenderError
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.population.population import Population


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    """What a test draws with torch is the same in every run of it, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def make_vec():
    """`make_vec(id, n, **settings)`: our vector environments, closed at the end of the test."""
    made: list[VectorEnv] = []

    def make(env_id: str, num_envs: int, **settings) -> WorldVectorEnv:
        env = gymnasium.make_vec(env_id, num_envs, **settings)
        assert isinstance(env, WorldVectorEnv)
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


def are_one_policy(population: Population) -> bool:
    """Whether all agents have the same layers, to the bit; what they compute with them may be rounded differently."""
    return all(torch.equal(layer, layer[:1].expand_as(layer)) for layer in population.agents_layers().values())


def random_actions(env: WorldVectorEnv, steps: int, seed: int = 0) -> np.ndarray:
    """(steps, n, a), strong and jerky enough to make the robots touch things."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)
