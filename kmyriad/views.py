"""How each agent sees the world: as it is, or in mirrors that turn its direction into the first quadrant.

There all agents have similar ways to go, so that what one learns serves the others: an Ant that goes left is the mirror
image of one that goes right.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kmyriad.envs.mirrors import Mirror, SignedOrder

ON_AN_AXIS = 1e-6
"""Directions whose x or y is this close to 0 need no mirror."""


class Views(nn.Module):
    """Orders and signs, per agent, of what a network takes and of what it gives. A view undoes itself."""

    input_order: Tensor
    input_signs: Tensor
    output_order: Tensor
    output_signs: Tensor

    def __init__(self, mirrors: Sequence[Mirror]) -> None:
        super().__init__()
        self._register("input", [mirror.observation for mirror in mirrors])
        self._register("output", [_of_gaussian(mirror.action) for mirror in mirrors])

    @staticmethod
    def towards(directions: NDArray[np.float32], mirrors: Sequence[Mirror]) -> "Views":
        """Of agents with `directions` (m, f), x and y first; `mirrors` are that of x and that of y."""
        views = []
        for direction in directions:
            view = Mirror.none(mirrors[0].observation.order.size, mirrors[0].action.order.size)
            for component, mirror in zip(direction, mirrors, strict=False):
                view = view.then(mirror) if component < -ON_AN_AXIS else view
            views.append(view)
        return Views(views)

    def inputs(self, observations: Tensor) -> Tensor:
        """(m, ..., d), what each agent sees of observations of the world."""
        return _reordered(observations, self.input_order, self.input_signs)

    def outputs(self, outputs: Tensor) -> Tensor:
        """(m, ..., 2a), means and log-sigmas of actions in the world, of what agents would do in their view of it."""
        return _reordered(outputs, self.output_order, self.output_signs)

    def _register(self, name: str, orders: Sequence[SignedOrder]) -> None:
        self.register_buffer(f"{name}_order", torch.from_numpy(np.stack([order.order for order in orders])))
        self.register_buffer(f"{name}_signs", torch.from_numpy(np.stack([order.signs for order in orders])))


def _of_gaussian(action: SignedOrder) -> SignedOrder:
    """Of the means of actions and, after them, their deviations, which have no sign."""
    size = action.order.size
    return SignedOrder(
        np.concatenate([action.order, size + action.order]), np.concatenate([action.signs, np.ones_like(action.signs)])
    )


def _reordered(values: Tensor, order: Tensor, signs: Tensor) -> Tensor:
    shape = (len(values), *(1,) * (values.dim() - 2), values.shape[-1])
    return values.gather(-1, order.view(shape).expand_as(values)) * signs.view(shape)
