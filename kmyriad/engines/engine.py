"""What steps n replicas together, whoever made them: the interface that training sees."""

from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.arrays import Array
from kmyriad.envs.plane import Feature, Plane
from kmyriad.envs.symmetry import Symmetry
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import World

State = dict[str, NDArray[Any]]
"""Everything that the future of the replicas depends on, NumPy arrays by name, whatever the engine speaks."""


@dataclass(frozen=True)
class Outcome:
    """Where a step led, and where the next begins.

    NumPy arrays, or from an engine that `speaks_tensors` torch tensors on its device: float32 or bool.
    """

    observation: Array
    """(n, d), reached by this step, before ended episodes start again."""
    following: Array
    """(n, d), what is seen next: the start of a new episode where one ended."""
    features: Array
    """(n, f), of what was reached."""
    xy: Array
    """(n, 2), where that lies in the plane of maps."""
    reward: Array
    """(n,)."""
    terminated: Array
    """(n,), over for good."""
    done: Array
    """(n,), over for whatever reason."""
    success: Array | None
    """(n,), the task was solved in this episode; None where nothing is said about it."""
    broken: Array
    """(n,), this state does not count: the physics broke, or this was no step but a reset."""


class Engine(Protocol):
    """n replicas of one environment. What it cannot do it says: `can_be_saved`, `simulation`."""

    count: int
    device: str
    """Where its arrays live: cpu, or the torch device of the tensors that it speaks."""
    speaks_tensors: bool
    """Whether it takes and gives torch tensors on `device` instead of NumPy arrays."""
    observation_size: int
    observation_space: gymnasium.spaces.Box
    """Of one replica, flattened: (observation_size,)."""
    action_space: gymnasium.Space[Any]
    """Of one replica."""
    features: tuple[Feature, ...]
    plane: Plane
    """What maps show."""
    tells_success: bool
    obeys_limit: bool
    """Whether episodes end when `step` says so; else they end by themselves only."""
    can_be_saved: bool
    symmetries: tuple[Symmetry, ...]
    """That the environment declares."""
    columns: tuple[int, ...] | None
    """Where in the observation the features are; None where one of them is not."""
    world: World | None
    """What is simulated, with its terrain and names of features, where that can be looked at."""
    simulation: WorldVectorEnv | None
    """The replicas of a world on the CPU, with physics to look into; None for what is none."""

    def start(self, seed: int) -> Array:
        """Reset every replica; (n, d), what is seen first."""

    def step(self, actions: Array, last: Array) -> Outcome:
        """One control step of all. Episodes that end, and those that are `last` (n,) told to, start again at once."""

    def get_state(self) -> State | None:
        """To be put back to, None where that cannot be done."""

    def set_state(self, state: State) -> bool:
        """Go back to a saved state; False if that did not lead to the same place. Raises ValueError for no state."""

    def render(self) -> list[NDArray[np.uint8]]:
        """A picture of every replica, (height, width, 3) each."""

    def close(self) -> None: ...
