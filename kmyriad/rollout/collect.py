"""Data collection: what all replicas do in one iteration, every agent on its own share of them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmyriad.errors import TrainingStoppedError
from kmyriad.population.moments import torch_threads
from kmyriad.population.population import Population
from kmyriad.processes import Share
from kmyriad.rollout.randomness import action_noise
from kmyriad.rollout.replicas import Replicas

FEW = 500
"""Replicas up to which one thread computes all actions. More would wait for each other after every small product, and
beside other processes for much longer than the products take (benchmarks/contention.py)."""


@dataclass(frozen=True)
class Visits:
    """Where m agents went in p replicas each, L steps long, to be looked at: arrays in the machine's memory."""

    features: NDArray[np.float32]
    """(m, p, L, f), the entropy features."""
    xy: NDArray[np.float32]
    """(m, p, L, 2), where that is on maps: x and y of a world, the first two features elsewhere."""
    valid: NDArray[np.bool_]
    """(m, p, L), which states count."""


@dataclass(frozen=True)
class Segment:
    """Where m agents went in p replicas each in one iteration, L steps long: the pool is made of these."""

    features: Tensor
    """(m, p, L, f), the particles: entropy features of the states that steps led to."""
    xy: Tensor
    """(m, p, L, 2), where that is on maps."""
    valid: Tensor
    """(m, p, L), bool: which of them count."""

    @property
    def visits(self) -> Visits:
        return Visits(*(tensor.cpu().numpy() for tensor in (self.features, self.xy, self.valid)))


@dataclass(frozen=True)
class Outcomes(Segment):
    """What came of m agents' steps in p replicas each, L steps long. Replica i is agent i // p's."""

    dones: Tensor
    """(m, p, L), bool: the episode ended with this step."""
    terminated: Tensor
    """(m, p, L), bool: it ended for good, not just for lack of time."""
    success: Tensor | None
    """(m, p, L), bool: the task was solved in this episode, up to this step; None where the environment does not tell.
    """
    rewards: Tensor
    """(m, p, L), the environment's own; pretraining never looks at them."""
    episode_steps: Tensor
    """(m, p, L), int64: how many steps the episode had had before this one."""

    @property
    def steps(self) -> int:
        return self.valid.numel()

    @property
    def features_before(self) -> Tensor:
        """(m, p, L, f), of the states before the steps.

        Where an episode or the segment begins, those after its first step stand for them, which are near.
        """
        before = torch.cat([self.features[:, :, :1], self.features[:, :, :-1]], dim=2)
        return torch.where((self.episode_steps == 0)[..., None], self.features, before)

    @property
    def in_first_episode(self) -> Tensor:
        """(m, p, L), bool: the steps of the episode that each replica began with, its last step included."""
        ended = self.dones.cumsum(dim=-1) - self.dones.long()
        return ended == 0

    @property
    def segment(self) -> Segment:
        return Segment(self.features, self.xy, self.valid)


@dataclass(frozen=True)
class Trajectory(Outcomes):
    """One iteration of m agents on p replicas each, L steps long, all on the policies' device.

    Of several processes each has its own, of its share of the replicas.
    """

    observations: Tensor
    """(m, p, L, d), what the agents saw."""
    actions: Tensor
    """(m, p, L, a), raw actions."""
    log_probs: Tensor
    """(m, p, L), of the raw actions under the policy that took them."""
    next_observations: Tensor | None
    """(m, p, L, d), what was to be seen after each step, before an ended episode started again; kept on request."""
    last_observations: Tensor | None
    """(m, p, d), what the agents see after the last step, in a new episode where that ended one; kept with these."""
    share: Share
    """Which replicas these are."""

    def of_all(self) -> Outcomes:
        """What came of all processes' steps."""
        if self.share.ranks == 1:
            return self
        told: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(Outcomes)}
        return Outcomes(**told | self.share.gather_all({name: one for name, one in told.items() if one is not None}))


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
    return dataclasses.replace(
        trajectory,
        next_observations=torch.where(trajectory.terminated[..., None], following, trajectory.next_observations),
        terminated=torch.zeros_like(trajectory.terminated),
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
    """Let every agent act for `steps` steps in its replicas, from wherever they are.

    Policies and replicas may be on different devices: every step then takes observations over and actions back, and all
    else goes over in one piece at the end.
    """
    agents, count, device = population.agents, replicas.count, population.device
    shape, spec = (agents, count // agents), population.actions.to(device)
    share = replicas.share if replicas.share.ranks > 1 else Share(*shape)
    observations = torch.empty(*shape, steps, replicas.observation_size, device=device)
    actions = torch.empty(*shape, steps, spec.size, device=device)
    log_probs = torch.empty(*shape, steps, device=device)
    noise = action_noise(seed, iteration, share.numbers, steps, spec).to(device)
    outcomes = _room_for(replicas, steps)
    next_observations = torch.empty_like(observations, device=replicas.device) if keep_next_observations else None
    with torch.inference_mode(), torch_threads(1 if count <= FEW else torch.get_num_threads()):
        layers = population.agents_layers()
        for step in range(steps):
            # Act on what is seen.
            seen = replicas.observation.to(device).view(*shape, -1)
            policy = population(seen, layers)
            raw = policy.sample(noise[step].view(*shape, spec.size))
            observations[:, :, step], actions[:, :, step] = seen, raw
            log_probs[:, :, step] = policy.log_prob(raw)

            # Write down where that leads.
            transition = replicas.step(spec.squash(raw.view(count, spec.size)).to(replicas.device))
            for name, tensor in outcomes.items():
                tensor[:, step] = getattr(transition, name)
            if next_observations is not None:
                next_observations[:, :, step] = transition.observation.view(*shape, -1)
    told: dict[str, Any] = {
        name: tensor.to(device).view(*shape, *tensor.shape[1:]) for name, tensor in outcomes.items()
    }
    _check_rewards(told["rewards"], told["episode_steps"], share)
    return Trajectory(
        **told | ({} if replicas.tells_success else {"success": None}),
        observations=observations,
        actions=actions,
        log_probs=log_probs,
        next_observations=None if next_observations is None else next_observations.to(device),
        last_observations=replicas.observation.to(device).view(*shape, -1).clone() if keep_next_observations else None,
        share=share,
    )


def _room_for(replicas: Replicas, steps: int) -> dict[str, Tensor]:
    """(n, steps, ...) for each of what a step is remembered by, where the replicas are."""
    flags = ("valid", "dones", "terminated", "success")
    room = {name: torch.empty(replicas.count, steps, dtype=torch.bool, device=replicas.device) for name in flags}
    for name, size in {"features": (replicas.feature_size,), "xy": (2,), "rewards": ()}.items():
        room[name] = torch.empty(replicas.count, steps, *size, device=replicas.device)
    room["episode_steps"] = torch.empty(replicas.count, steps, dtype=torch.int64, device=replicas.device)
    return room


def _check_rewards(rewards: Tensor, episode_steps: Tensor, share: Share) -> None:
    """Stop where the environment's reward (m, p, L) is no number."""
    if rewards.isfinite().all():
        return
    agent, place, step = (~rewards.isfinite()).nonzero()[0].tolist()
    replica = share.numbers.reshape(share.agents, -1)[agent, place]
    raise TrainingStoppedError(
        f"the environment gave replica {replica} a reward of {rewards[agent, place, step].item()} in step"
        f" {episode_steps[agent, place, step].item() + 1} of its episode; mend it and resume from the last checkpoint"
    )
