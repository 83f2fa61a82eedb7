"""A robot that is its own mirror image: what it sees and does in the mirror, in terms of what it sees and does."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class SignedOrder:
    """Numbers in another order and with other signs: number i becomes `signs[i]` times number `order[i]`."""

    order: NDArray[np.int64]
    signs: NDArray[np.float32]

    @staticmethod
    def unchanged(size: int) -> "SignedOrder":
        return SignedOrder(np.arange(size), np.ones(size, np.float32))

    @staticmethod
    def of_blocks(order: Sequence[int], signs: ArrayLike) -> "SignedOrder":
        """Blocks of as many numbers as there are `signs` in another order, with these signs within every block."""
        of_one = np.array(signs, np.float32)
        places = [of_one.size * block + np.arange(of_one.size) for block in order]
        return SignedOrder(np.concatenate(places), np.tile(of_one, len(order)))

    def then(self, other: "SignedOrder") -> "SignedOrder":
        return SignedOrder(self.order[other.order], self.signs[other.order] * other.signs)

    def __call__(self, numbers: NDArray[np.floating]) -> NDArray[np.floating]:
        """(..., size)."""
        return numbers[..., self.order] * self.signs


@dataclass(frozen=True)
class Mirror:
    """Seen twice, the world is as it was, and mirrors can be looked through in any order."""

    observation: SignedOrder
    action: SignedOrder

    @staticmethod
    def none(observation_size: int, action_size: int) -> "Mirror":
        return Mirror(SignedOrder.unchanged(observation_size), SignedOrder.unchanged(action_size))

    def then(self, other: "Mirror") -> "Mirror":
        return Mirror(self.observation.then(other.observation), self.action.then(other.action))
