"""Actions of policies that were trained elsewhere without squashing."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmyriad.population.distributions import ActionSpec


@dataclass(frozen=True)
class ClippedActions(ActionSpec):
    """Raw actions are the environment's, cut off at its range: as PPO of Stable-Baselines3 and rsl_rl do."""

    def squash(self, actions: NDArray[np.float32]) -> NDArray[np.float32] | NDArray[np.int64]:
        return np.clip(actions, self.low, self.high)
