"""How each agent sees the world: as it is, or so that its way lies straight ahead.

Mirrors turn its direction into the first quadrant (an Ant that goes left is the mirror image of one that goes right),
and a turn of the world about the vertical brings it onto the x axis. Seen like that all agents have the same way to go,
and what one learns about it serves the others; they differ in how they stand when they start.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kmyriad.config import ActorCritic, PretrainConfig
from kmyriad.envs.symmetry import Mirror, SignedOrder, Turning

ON_AN_AXIS = 1e-6
"""Directions whose x or y is this close to 0 need no mirror."""


class Frames(nn.Module):
    """Per agent, orders and signs of what a network takes and of what it gives, and a turn of what it takes."""

    input_order: Tensor
    input_signs: Tensor
    output_order: Tensor
    output_signs: Tensor

    def __init__(self, mirrors: Sequence[Mirror], turns: "Turns | None" = None) -> None:
        super().__init__()
        self._register("input", [mirror.observation for mirror in mirrors])
        self._register("output", [_of_gaussian(mirror.action) for mirror in mirrors])
        self.turns = turns

    @staticmethod
    def towards(
        directions: NDArray[np.float32],
        observation_size: int,
        action_size: int,
        mirrors: Sequence[Mirror] = (),
        turning: Turning | None = None,
    ) -> "Frames":
        """Of agents with `directions` (m, f), x and y first; `mirrors` are that of x and that of y, or none."""
        frames, angles = [], []
        for direction in directions:
            frame, (x, y) = Mirror.none(observation_size, action_size), direction[:2]
            for component, mirror in zip((x, y), mirrors, strict=False):
                frame = frame.then(mirror) if component < -ON_AN_AXIS else frame
            frames.append(frame)
            angles.append(np.arctan2(*(abs(y), abs(x)) if mirrors else (y, x)))
        return Frames(frames, None if turning is None else Turns(np.array(angles), observation_size, turning))

    @staticmethod
    def straight(agents: int, observation_size: int, action_size: int, is_turned: bool) -> "Frames":
        """Of the world as it is, in the shape of others that are to be loaded."""
        turns = Turns(np.zeros(agents), observation_size, Turning(0, 1, (), ())) if is_turned else None
        return Frames([Mirror.none(observation_size, action_size)] * agents, turns)

    def inputs(self, observations: Tensor) -> Tensor:
        """(m, ..., d), what each agent sees of observations of the world."""
        seen = _reordered(observations, self.input_order, self.input_signs)
        return seen if self.turns is None else self.turns(seen)

    def outputs(self, outputs: Tensor) -> Tensor:
        """(m, ..., 2a), means and log-deviations of what agents do in the world, from those in their frame."""
        return _reordered(outputs, self.output_order, self.output_signs)

    def _register(self, name: str, orders: Sequence[SignedOrder]) -> None:
        self.register_buffer(f"{name}_order", torch.from_numpy(np.stack([order.order for order in orders])))
        self.register_buffer(f"{name}_signs", torch.from_numpy(np.stack([order.signs for order in orders])))


class Turns(nn.Module):
    """Per agent, observations (m, ..., d) of the world turned so that what lay at its angle (m,) lies along x."""

    partner: Tensor
    """(m, d), for x the place of y, for y that of x."""
    own_weight: Tensor
    partner_weight: Tensor
    shift: Tensor

    def __init__(self, angles: NDArray[np.floating], size: int, turning: Turning) -> None:
        super().__init__()
        x, y, headings, bearings = turning.x, turning.y, [*turning.headings], [*turning.bearings]
        shape = (len(angles), size)
        partner, own_weight = np.broadcast_to(np.arange(size), shape).copy(), np.ones(shape)
        partner_weight, shift = np.zeros(shape), np.zeros(shape)
        partner[:, [x, y]] = y, x
        own_weight[:, [x, y]] = np.cos(angles)[:, None]
        partner_weight[:, x], partner_weight[:, y] = np.sin(angles), -np.sin(angles)
        shift[:, headings], shift[:, bearings] = -angles[:, None], angles[:, None]
        self.register_buffer("partner", torch.from_numpy(partner))
        for name, values in (("own_weight", own_weight), ("partner_weight", partner_weight), ("shift", shift)):
            self.register_buffer(name, torch.from_numpy(values.astype(np.float32)))

    def forward(self, seen: Tensor) -> Tensor:
        own, other, shift = (
            _beside(seen, of_agents) for of_agents in (self.own_weight, self.partner_weight, self.shift)
        )
        return torch.addcmul(shift, seen, own).addcmul_(_gathered(seen, self.partner), other)


def directions(agents: int, features: int) -> NDArray[np.float32]:
    """(m, f), unit vectors evenly around the plane of the first two features."""
    angles = 2 * np.pi * np.arange(agents) / agents
    vectors = np.zeros((agents, max(features, 2)), np.float32)
    vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    return vectors[:, :features]


def directions_of(config: PretrainConfig, features: int) -> NDArray[np.float32] | None:
    """(m, f), the agents' directions, where the settings give them any."""
    agents = config.population.agents
    has_compass = isinstance(config.update, ActorCritic) and config.objective.compass > 0 and agents > 1
    return directions(agents, features) if has_compass else None


def _of_gaussian(action: SignedOrder) -> SignedOrder:
    """Of the means of actions and, after them, their deviations, which have no sign."""
    size = action.order.size
    return SignedOrder(
        np.concatenate([action.order, size + action.order]), np.concatenate([action.signs, np.ones_like(action.signs)])
    )


def _reordered(values: Tensor, order: Tensor, signs: Tensor) -> Tensor:
    return _gathered(values, order) * _beside(values, signs)


def _gathered(values: Tensor, places: Tensor) -> Tensor:
    """(m, ..., d), the agents' `values` (m, ..., d) in other `places` (m, d)."""
    return values.gather(-1, _beside(values, places).expand_as(values))


def _beside(values: Tensor, of_agents: Tensor) -> Tensor:
    """(m, 1, ..., d), what agents have (m, d), in the shape of `values` (m, ..., d)."""
    return of_agents.view(len(values), *(1,) * (values.dim() - 2), values.shape[-1])
