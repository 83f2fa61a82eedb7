"""The critic: what a state is worth to the agent that is in it."""

from collections.abc import Sequence

from torch import Tensor

from kmyriad.network import HeadedNetwork

OUTPUT_GAIN = 0.1
"""Values start near 0."""


class Critic(HeadedNetwork):
    """m value functions: normalised observations (m, n, d) to values (m, n)."""

    def __init__(
        self,
        agents: int,
        observation_size: int,
        sizes: Sequence[int],
        activation: str = "elu",
        own_rate: float | None = None,
        own_adapters: bool = True,
        directions: Tensor | None = None,
        direction_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        *trunk, adapter = sizes
        super().__init__(
            agents,
            observation_size,
            1,
            trunk=trunk,
            adapter=adapter,
            activation=activation,
            output_gain=OUTPUT_GAIN,
            own_rate=own_rate,
            own_adapters=own_adapters,
            directions=directions,
            direction_rate=direction_rate,
            seed=seed,
        )

    def forward(self, observations: Tensor) -> Tensor:
        return self.outputs(observations).squeeze(-1)
