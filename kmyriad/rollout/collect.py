"""Data collection: what all replicas do in one iteration, every agent on its own share of them."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.population.population import Population
from kmyriad.rollout.randomness import action_noise
from kmyriad.rollout.replicas import Replicas

FEW = 500
"""Replicas up to which one thread computes all actions. More would wait for each other after every small product, and
beside other processes for much longer than the products take (benchmarks/contention.py)."""


@dataclass(frozen=True)
class Visits:
    """Where m agents went in p replicas each, L steps long: all that an entropy is estimated from."""

    features: NDArray[np.float32]
    """(m, p, L, f), the entropy features."""
    xy: NDArray[np.float32]
    """(m, p, L, 2), where that is on maps: x and y of a world, the first two features elsewhere."""
    valid: NDArray[np.bool_]
    """(m, p, L), which states count."""


@dataclass(frozen=True)
class Trajectory:
    """One iteration of m agents on p replicas each, L steps long. Replica i is agent i // p's."""

    observations: Tensor
    """(m, p, L, d), what the agents saw."""
    actions: Tensor
    """(m, p, L, a), raw actions."""
    log_probs: Tensor
    """(m, p, L), of the raw actions under the policy that took them."""
    features: NDArray[np.float32]
    """(m, p, L, f), the particles: entropy features of the state that each step led to."""
    xy: NDArray[np.float32]
    """(m, p, L, 2), where that is on maps."""
    dones: NDArray[np.bool_]
    """(m, p, L), the episode ended with this step."""
    terminated: NDArray[np.bool_]
    """(m, p, L), it ended for good, not just for lack of time."""
    success: NDArray[np.bool_] | None
    """(m, p, L), the task was solved in this episode, up to this step; None where the environment does not tell."""
    valid: NDArray[np.bool_]
    """(m, p, L), False where the replica's physics had broken: not a particle, and no reason to update."""
    rewards: NDArray[np.float32]
    """(m, p, L), the environment's own; pretraining never looks at them."""
    episode_steps: NDArray[np.int64]
    """(m, p, L), how many steps the episode had had before this one."""
    next_observations: Tensor | None
    """(m, p, L, d), what was to be seen after each step, before an ended episode started again; kept on request."""
    last_observations: Tensor | None = None
    """(m, p, d), what the agents see after the last step, in a new episode where that ended one; kept with these."""

    @property
    def steps(self) -> int:
        return self.valid.size

    @property
    def in_first_episode(self) -> NDArray[np.bool_]:
        """(m, p, L), the steps of the episode that each replica began with, its last step included."""
        ended_before = np.zeros_like(self.dones)
        ended_before[..., 1:] = np.logical_or.accumulate(self.dones, axis=-1)[..., :-1]
        return ~ended_before

    @property
    def visits(self) -> Visits:
        return Visits(self.features, self.xy, self.valid)


def without_termination(trajectory: Trajectory) -> Trajectory:
    """`trajectory` as one stream of states: what follows a termination is the beginning of the next episode.

    Where all visited states count, those after a reset count too. To value a termination at 0 would reward it, as
    rewards have mean 0 and the states near the start are worth less than that.
    """
    if not trajectory.terminated.any():
        return trajectory
    assert trajectory.next_observations is not None
    assert trajectory.last_observations is not None
    following = torch.cat([trajectory.observations[:, :, 1:], trajectory.last_observations[:, :, None]], dim=2)
    terminated = torch.from_numpy(trajectory.terminated)[..., None]
    return dataclasses.replace(
        trajectory,
        next_observations=torch.where(terminated, following, trajectory.next_observations),
        terminated=np.zeros_like(trajectory.terminated),
    )


def collect(
    replicas: Replicas,
    population: Population,
    steps: int,
    seed: int,
    iteration: int,
    *,
    keep_next_observations: bool = False,
) -> Trajectory:
    """Let every agent act for `steps` steps in its replicas, from wherever they are."""
    agents = population.agents
    share = (agents, replicas.count // agents)
    size = population.actions.size
    observations = torch.empty(*share, steps, replicas.observation_size)
    actions = torch.empty(*share, steps, size)
    log_probs = torch.empty(*share, steps)
    features = np.empty((replicas.count, steps, replicas.feature_size), np.float32)
    xy = np.empty((replicas.count, steps, 2), np.float32)
    rewards = np.empty((replicas.count, steps), np.float32)
    episode_steps = np.empty((replicas.count, steps), np.int64)
    dones, terminated, success, valid = (np.empty((replicas.count, steps), bool) for _ in range(4))
    next_observations = torch.empty_like(observations) if keep_next_observations else None
    noise = torch.from_numpy(action_noise(seed, iteration, replicas.count, steps, population.actions))
    with torch.inference_mode(), _torch_threads(1 if replicas.count <= FEW else torch.get_num_threads()):
        layers = population.agents_layers()
        for step in range(steps):
            seen = torch.from_numpy(replicas.observation).view(*share, -1)
            policy = population(seen, layers)
            raw = policy.sample(noise[step].view(*share, size))
            observations[:, :, step], actions[:, :, step] = seen, raw
            log_probs[:, :, step] = policy.log_prob(raw)
            episode_steps[:, step] = replicas.episode_steps
            transition = replicas.step(population.actions.squash(raw.view(replicas.count, size).numpy()))
            features[:, step], xy[:, step] = transition.features, transition.xy
            rewards[:, step] = transition.reward
            dones[:, step], terminated[:, step] = transition.done, transition.terminated
            success[:, step], valid[:, step] = transition.success, transition.valid
            if next_observations is not None:
                next_observations[:, :, step] = torch.from_numpy(transition.observation).view(*share, -1)
    by_agent = (*share, steps)
    return Trajectory(
        observations,
        actions,
        log_probs,
        features.reshape(*by_agent, -1),
        xy.reshape(*by_agent, 2),
        dones.reshape(by_agent),
        terminated.reshape(by_agent),
        success.reshape(by_agent) if replicas.tells_success else None,
        valid.reshape(by_agent),
        rewards.reshape(by_agent),
        episode_steps.reshape(by_agent),
        next_observations,
        torch.from_numpy(replicas.observation).view(*share, -1).clone() if keep_next_observations else None,
    )


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads within."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
