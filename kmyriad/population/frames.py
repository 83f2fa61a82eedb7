"""How agents see a world whose environment declares symmetries: each through one of them.

An Ant that goes left is the mirror image of one that goes right, so what one learns about its way serves the other. A
symmetry moves codes as it moves the features that it changes (`moved_codes`). Every agent sees the world through the
view that brings its code to where those of its mirror images come to lie: they are one network there.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kmyriad.envs.symmetry import SignedOrder, Symmetry


class Frames(nn.Module):
    """Per agent, orders and signs of what a network takes and of what it gives."""

    input_order: Tensor
    input_signs: Tensor
    output_order: Tensor
    output_signs: Tensor

    def __init__(self, views: Sequence[Symmetry]) -> None:
        super().__init__()
        self._register("input", [view.observation for view in views])
        self._register("output", [_of_gaussian(view.action.inverse) for view in views])

    @staticmethod
    def straight(agents: int, observation_size: int, action_size: int) -> "Frames":
        """Of the world as it is, in the shape of others that are to be loaded."""
        as_it_is = Symmetry(SignedOrder.unchanged(observation_size), SignedOrder.unchanged(action_size))
        return Frames([as_it_is] * agents)

    def inputs(self, observations: Tensor) -> Tensor:
        """(m, ..., d), what each agent sees of observations of the world."""
        return _reordered(observations, self.input_order, self.input_signs)

    def outputs(self, outputs: Tensor) -> Tensor:
        """(m, ..., 2a), means and log-deviations of what agents do in the world, from those in their frame."""
        return _reordered(outputs, self.output_order, self.output_signs)

    def _register(self, name: str, orders: Sequence[SignedOrder]) -> None:
        self.register_buffer(f"{name}_order", torch.from_numpy(np.stack([order.order for order in orders])))
        self.register_buffer(f"{name}_signs", torch.from_numpy(np.stack([order.signs for order in orders])))


def moved_features(group: Sequence[SignedOrder], size: int) -> list[int]:
    """Features that the views in `group` change, at most `size`: with each of them those that take its place."""
    matrices = np.stack([view.matrix for view in group])
    together = np.abs(matrices).sum(axis=0) > 0  # a group: whatever can take a place at all does so in one step
    moved: list[int] = []
    for feature in np.flatnonzero((matrices != np.eye(len(together))).any(axis=(0, 2))):
        orbit = [int(other) for other in np.flatnonzero(together[feature]) if other not in moved]
        if feature in orbit and len(moved) + len(orbit) <= size:
            moved += orbit
    return moved


def moved_codes(group: Sequence[SignedOrder], size: int) -> list[NDArray[np.float64]]:
    """(c, c) per view in `group`: codes' first numbers go as the moved features do, in order, the others stay."""
    moved, matrices = moved_features(group, size), []
    for view in group:
        matrix = np.eye(size)
        matrix[: len(moved), : len(moved)] = view.matrix[np.ix_(moved, moved)]
        matrices.append(matrix)
    return matrices


def seen_alike(codes: NDArray[np.float32], group: Sequence[SignedOrder]) -> tuple[list[int], NDArray[np.float32]]:
    """(which view each of the agents with `codes` (m, c) has, the codes as they are there).

    Of all places that the views bring a code to it takes the last in lexicographic order.
    """
    matrices = np.stack(moved_codes(group, codes.shape[1]))
    seen = np.round(np.einsum("gcd,md->mgc", matrices, codes), 6)  # equal places are equal, whatever the rounding
    views = [max(range(len(group)), key=lambda view: (*places[view], -view)) for places in seen]
    return views, seen[np.arange(len(codes)), views].astype(np.float32)


def _of_gaussian(action: SignedOrder) -> SignedOrder:
    """Of the means of actions and, after them, their deviations, which have no sign."""
    size = action.order.size
    return SignedOrder(
        np.concatenate([action.order, size + action.order]), np.concatenate([action.signs, np.ones_like(action.signs)])
    )


def _reordered(values: Tensor, order: Tensor, signs: Tensor) -> Tensor:
    """(m, ..., d), the agents' `values` (m, ..., d) in another `order` (m, d), with `signs` (m, d)."""
    beside = (len(values), *(1,) * (values.dim() - 2), values.shape[-1])
    return values.gather(-1, order.view(beside).expand_as(values)) * signs.view(beside)
