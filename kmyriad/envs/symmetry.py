"""Symmetries of a robot: what it sees and does in a transformed world, in terms of what it sees and does in this one.

An environment declares them (`World.symmetries`, or an attribute `symmetries` of any environment) as signed
permutations, the convention of rsl_rl: numbers in another order and with other signs. Only exact ones count: a robot
that sees and does what the symmetry says must move as the symmetry says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kmyriad.errors import UsageError

LARGEST_GROUP = 64
"""Views of the world that symmetries may come to, looked through one after the other."""


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

    @property
    def inverse(self) -> "SignedOrder":
        """What brings the numbers back."""
        back = np.argsort(self.order)
        return SignedOrder(back, self.signs[back])

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(size, size), what numbers are multiplied with."""
        matrix = np.zeros((self.order.size, self.order.size))
        matrix[np.arange(self.order.size), self.order] = self.signs
        return matrix

    def of(self, columns: Sequence[int]) -> "SignedOrder | None":
        """What becomes of these numbers alone; None where others would take their places."""
        places = {column: place for place, column in enumerate(columns)}
        found = [places.get(int(self.order[column])) for column in columns]
        order = [place for place in found if place is not None]
        return None if len(order) < len(found) else SignedOrder(np.array(order), self.signs[list(columns)])

    def __call__(self, numbers: NDArray[np.floating]) -> NDArray[np.floating]:
        """(..., size)."""
        return numbers[..., self.order] * self.signs


@dataclass(frozen=True)
class Symmetry:
    """One way to see the world: `observation` is what is seen there, `action` what is done there for an action here."""

    observation: SignedOrder
    action: SignedOrder
    name: str = ""
    """In words, for the run's first line."""

    def then(self, other: "Symmetry") -> "Symmetry":
        names = " and ".join(name for name in (self.name, other.name) if name)
        return Symmetry(self.observation.then(other.observation), self.action.then(other.action), names)

    @property
    def key(self) -> bytes:
        """The same for symmetries that do the same."""
        parts = (self.observation, self.action)
        return b"".join(part.order.astype(np.int64).tobytes() + part.signs.tobytes() for part in parts)


def check_symmetry(symmetry: Symmetry, observation_size: int, action_size: int) -> None:
    """Refuse what is no signed permutation of such observations and actions."""
    for part, size in (("observation", observation_size), ("action", action_size)):
        told: SignedOrder = getattr(symmetry, part)
        if sorted(told.order.tolist()) != list(range(size)) or not (np.abs(told.signs) == 1).all():
            raise UsageError(
                f"symmetry {symmetry.name!r} must give all {size} numbers of the {part} a place and a sign, 1 or -1;"
                f" got order {told.order.tolist()} and signs {told.signs.tolist()}"
            )


def group_of(symmetries: Sequence[Symmetry]) -> list[Symmetry]:
    """All views that looking through `symmetries` one after the other gives, the world as it is first."""
    if not symmetries:
        return []
    observation, action = (part.order.size for part in (symmetries[0].observation, symmetries[0].action))
    views = [Symmetry(SignedOrder.unchanged(observation), SignedOrder.unchanged(action))]
    known = {views[0].key}
    for view in views:  # grows on the way
        for symmetry in symmetries:
            further = view.then(symmetry)
            if further.key not in known:
                known.add(further.key)
                views.append(further)
            if len(views) > LARGEST_GROUP:
                names = ", ".join(symmetry.name or "?" for symmetry in symmetries)
                raise UsageError(f"symmetries {names} come to more than {LARGEST_GROUP} views; declare fewer")
    return views
