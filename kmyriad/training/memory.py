"""How much memory a run will need, told before anything is made: a wrong digit should not take the machine."""

import os
from collections.abc import Sequence
from itertools import pairwise

import torch

from kmyriad.config import Engine, Rollouts
from kmyriad.engines.make import CONSTRAINTS, CONTACTS
from kmyriad.errors import UsageError
from kmyriad.processes import ranks

NUMBER = 4
"""Bytes of a float32."""
COPIES_OF_WEIGHTS = 4
"""Weights, gradients, and Adam's two moments."""
OBSERVATION, ACTION, FEATURES = 64, 8, 8
"""Sizes of an ordinary robot: the environment is not made yet, and only the order of magnitude matters."""
STEP = NUMBER * (4 * OBSERVATION + 4 * ACTION + 16)
"""Bytes of a step: what was seen before and after it, normalised and in minibatches, actions and flags."""

VELOCITIES, PER_CONTACT, PER_CONSTRAINT, BODIES = 16, 36, 13, 4_000
"""Of an ordinary robot in MuJoCo Warp: numbers in a row of the constraints' Jacobian, numbers of a contact and of a
constraint beside it, and all others. An Ant has 55,344 bytes a replica, and this is 54,912."""
WARP_REPLICA = NUMBER * (CONTACTS * PER_CONTACT + CONSTRAINTS * (VELOCITIES + PER_CONSTRAINT) + BODIES)


def check_memory(
    rollouts: Rollouts, hidden: Sequence[int], agent_hidden: int, device: torch.device, engine: Engine = "auto"
) -> None:
    """Refuse what the memory of `device` cannot hold: an iteration's steps, the pool of a horizon, all weights.

    And the simulations of an engine that lives there.
    """
    sizes = [OBSERVATION, *hidden]
    weights = sum(inputs * outputs for inputs, outputs in pairwise(sizes))
    weights += rollouts.agents * agent_hidden * (sizes[-1] + 2 * ACTION)
    steps = rollouts.replicas * rollouts.steps
    needed = steps * (STEP / ranks() + rollouts.per_horizon * NUMBER * FEATURES) + COPIES_OF_WEIGHTS * NUMBER * weights
    simulations, told = 0.0, ""
    if engine == "warp":
        simulations = WARP_REPLICA * rollouts.replicas / ranks()
        needed += simulations
        told = f" ({simulations / 2**30:,.0f} of them for {rollouts.replicas // ranks():,} simulations of MuJoCo Warp)"
    there, whose = needed, "the machine"
    if device.type == "cuda":
        there, whose = torch.cuda.mem_get_info(device)[1], str(device)
    elif hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UsageError(
            f"this needs about {needed / 2**30:,.0f} GiB of memory{told}, and {whose} has {there / 2**30:,.0f}; use"
            " fewer replicas, a smaller horizon or rollout_steps, or smaller layers"
        )
