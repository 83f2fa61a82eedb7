"""Controllers that try to break the physics, and the checks that it holds."""

from collections.abc import Callable

import mujoco
import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.vector_env import WorldVectorEnv

Controller = Callable[[int, NDArray[np.float32]], NDArray[np.float64]]
"""From the step number and observations (n, 62) to actions (n, 8)."""


def noise(replicas: int, rng: np.random.Generator) -> Controller:
    return lambda step, observation: np.tanh(rng.standard_normal((replicas, 8)))


def held(steps: int) -> Callable[[int, np.random.Generator], Controller]:
    def make(replicas: int, rng: np.random.Generator) -> Controller:
        actions = np.zeros((replicas, 8))

        def act(step: int, observation: NDArray[np.float32]) -> NDArray[np.float64]:
            if step % steps == 0:
                actions[:] = rng.choice([-1.0, 1.0], actions.shape)
            return actions

        return act

    return make


def linear(gain: float) -> Callable[[int, np.random.Generator], Controller]:
    def make(replicas: int, rng: np.random.Generator) -> Controller:
        gains = gain * rng.standard_normal((replicas, 8, 62)).astype(np.float32)
        return lambda step, observation: np.tanh((gains @ observation[:, :, None])[:, :, 0]).astype(np.float64)

    return make


CONTROLLERS = {
    "noise": noise,
    "held 1": held(1),
    "held 3": held(3),
    "held 10": held(10),
    "linear 1": linear(1.0),
    "linear 5": linear(5.0),
}
DEEPEST = 0.25
"""Metres that a limb may be inside ground or wall for a moment: at 15 m/s a shank's tip moves as far in one physics
step of 1/60 s, before the contact is seen."""

FASTEST, FASTEST_JOINT = 10.0, 30.0
"""Torso m/s and joint rad/s that healthy ants stay below, far from the bounds that mark divergence."""


def assert_physics_holds(env: WorldVectorEnv, controller: Controller, steps: int, probes: int) -> None:
    """Step and check: nobody diverges, no torso is ever below the ground or in a wall, no limb deep in either.

    Limbs are looked at in `probes` replicas, every tenth step.
    """
    observation, _ = env.reset(seed=0)
    terrain, model = env.world.terrain, env.world.model
    data = mujoco.MjData(model)
    for step in range(steps):
        observation, *_, info = env.step(controller(step, observation))
        assert not info["diverged"].any(), f"replica {info['diverged'].argmax()} diverged at step {step}"
        x, y, z = env.positions.T
        above = z - terrain.height(x, y)
        assert above.min() > 0.1, f"replica {above.argmin()} at {env.positions[above.argmin()]}, step {step}"
        assert np.abs(env.read_features(["world_velocity"])).max() < FASTEST
        assert np.abs(5 * env.read_features(["joint_velocities"])).max() < FASTEST_JOINT
        if step % 10:
            continue
        physics = env.get_state().physics
        for replica in np.linspace(0, env.num_envs - 1, probes).astype(int):
            mujoco.mj_setState(model, data, physics[replica], mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(model, data)
            deepest = -min(data.contact.dist, default=0.0)
            assert deepest < DEEPEST, f"replica {replica} is {deepest:.3f} m deep at step {step}"
