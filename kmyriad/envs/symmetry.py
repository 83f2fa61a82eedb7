"""What a robot sees and does in a mirror or a turned world, in terms of what it sees and does."""

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


@dataclass(frozen=True)
class Turning:
    """Places in the observation; all others are told in the robot's own frame, or taken as if they were."""

    x: int
    y: int
    headings: tuple[int, ...]
    """Angles that grow as the world turns."""
    bearings: tuple[int, ...]
    """Angles, seen from the robot, of what stays where it is: they shrink."""
