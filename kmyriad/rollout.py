"""Data collection: what all replicas do in one epoch, every agent on its own share of them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.envs.replicas import Replicas
from kmyriad.population import Population
from kmyriad.randomness import action_noise


@dataclass(frozen=True)
class ParallelTrajectory:
    """One epoch of m agents on p replicas each, L steps long. Replica i = agent * p + (its place) is agent i // p's."""

    observations: Tensor
    """(m, p, L, d), what the agents saw."""
    actions: Tensor
    """(m, p, L, a), raw actions."""
    log_probs: Tensor
    """(m, p, L), of the raw actions under the policy that took them."""
    features: NDArray[np.float32]
    """(m, p, L, f), the particles: entropy features of the state that each step led to."""
    xy: NDArray[np.float32] | None
    """(m, p, L, 2), positions, or None where there are none."""
    ends: NDArray[np.bool_]
    """(m, p, L), the episode ended with this step."""
    sound: NDArray[np.bool_]
    """(m, p, L), False where the replica's physics had broken: not a particle, and no reason to update."""

    @property
    def steps(self) -> int:
        return self.sound.size


def collect(replicas: Replicas, population: Population, steps: int, seed: int, epoch: int) -> ParallelTrajectory:
    """Let every agent act for `steps` steps in its replicas, from wherever they are."""
    agents = population.agents
    share = (agents, replicas.count // agents)
    size = population.actions.size
    observations = torch.empty(*share, steps, replicas.observation_size)
    actions = torch.empty(*share, steps, size)
    log_probs = torch.empty(*share, steps)
    features = np.empty((replicas.count, steps, replicas.feature_size), np.float32)
    xy = np.empty((replicas.count, steps, 2), np.float32) if replicas.has_xy else None
    ends = np.empty((replicas.count, steps), bool)
    sound = np.empty((replicas.count, steps), bool)
    noise = torch.from_numpy(action_noise(seed, epoch, replicas.count, steps, population.actions))
    with torch.inference_mode():
        for step in range(steps):
            seen = torch.from_numpy(replicas.observation).view(*share, -1)
            policy = population(seen)
            raw = policy.sample(noise[step].view(*share, size))
            observations[:, :, step], actions[:, :, step] = seen, raw
            log_probs[:, :, step] = policy.log_prob(raw)
            arrival = replicas.step(population.actions.squash(raw.view(replicas.count, size).numpy()))
            features[:, step], ends[:, step], sound[:, step] = arrival.features, arrival.ended, arrival.sound
            if xy is not None and arrival.xy is not None:
                xy[:, step] = arrival.xy
    by_agent = (*share, steps)
    return ParallelTrajectory(
        observations,
        actions,
        log_probs,
        features.reshape(*by_agent, -1),
        None if xy is None else xy.reshape(*by_agent, 2),
        ends.reshape(by_agent),
        sound.reshape(by_agent),
    )
