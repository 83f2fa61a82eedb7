"""The physics holds under noise, bang-bang and strong feedback on every terrain."""

import numpy as np
import pytest

from kmyriad.envs.terrain import TERRAINS
from tests.envs.stress import CONTROLLERS, assert_physics_holds

IDS = {terrain: f"kmyriad/Ant{terrain.capitalize()}-v0" for terrain in TERRAINS}


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("terrain", TERRAINS)
def test_physics_holds(terrain, controller, make_vec):
    env = make_vec(IDS[terrain], 60)
    assert_physics_holds(env, CONTROLLERS[controller](60, np.random.default_rng(0)), steps=150, probes=10)


def test_random_actions_alone_throw_the_ant_two_metres_high(make_vec):
    """Why the maze's walls are higher than that."""
    env = make_vec(IDS["empty"], 300)
    env.reset(seed=0)
    controller = CONTROLLERS["held 3"](300, np.random.default_rng(0))
    highest = 0.0
    observation = np.zeros((300, 62), np.float32)
    for step in range(250):
        observation, *_ = env.step(controller(step, observation))
        highest = max(highest, float(env.positions[:, 2].max()))
    assert 1.9 < highest < 3.5


@pytest.mark.slow
@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("terrain", TERRAINS)
def test_physics_holds_for_a_thousand_replicas_over_the_whole_horizon(terrain, controller, make_vec):
    env = make_vec(IDS[terrain], 1000, horizon=601)
    assert_physics_holds(env, CONTROLLERS[controller](1000, np.random.default_rng(1)), steps=600, probes=50)
