"""Actions of policies that were trained elsewhere without squashing."""

from dataclasses import dataclass

from torch import Tensor

from kmyriad.population.distributions import ActionSpec


@dataclass(frozen=True)
class ClippedActions(ActionSpec):
    """Raw actions are the environment's, cut off at its range: as PPO of Stable-Baselines3 and rsl_rl do."""

    def squash(self, actions: Tensor) -> Tensor:
        return actions.clamp(self.low, self.high)
