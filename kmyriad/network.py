"""m networks in one: a trunk that all agents share, then a hidden layer (the adapter) and an output layer each."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(inplace=True), "elu": nn.ELU(inplace=True)}
"""In place, which saves a copy of every layer."""


class HeadedNetwork(nn.Module):
    """`outputs` maps (m, n, inputs), n rows per agent, to (m, n, outputs) without a loop over the agents."""

    def __init__(
        self,
        agents: int,
        inputs: int,
        outputs: int,
        *,
        trunk: Sequence[int],
        adapter: int,
        activation: str,
        output_gain: float,
        alike: bool,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.agents, self.activation_name = agents, activation
        self.trunk_sizes, self.adapter_size = tuple(trunk), adapter
        sizes = [inputs, *trunk]
        self.trunk_weights = nn.ParameterList(_uniform((i, o), i, generator) for i, o in pairwise(sizes))
        self.trunk_biases = nn.ParameterList(_uniform((o,), i, generator) for i, o in pairwise(sizes))
        drawn = 1 if alike else agents  # `alike`: all agents start with the same weights
        adapter_weight = _uniform((drawn, sizes[-1], adapter), sizes[-1], generator)
        adapter_bias = _uniform((drawn, 1, adapter), sizes[-1], generator)
        output_weight = _uniform((drawn, adapter, outputs), adapter, generator, output_gain)
        self.adapter_weight, self.adapter_bias, self.output_weight = (
            nn.Parameter(weights.repeat(agents // drawn, 1, 1))
            for weights in (adapter_weight, adapter_bias, output_weight)
        )
        self.output_bias = nn.Parameter(torch.zeros(agents, 1, outputs))

    def outputs(self, inputs: Tensor) -> Tensor:
        activate = ACTIVATIONS[self.activation_name]
        agents, count, size = inputs.shape
        hidden = inputs.reshape(agents * count, size)
        for weight, bias in zip(self.trunk_weights, self.trunk_biases, strict=True):
            hidden = activate(torch.addmm(bias, hidden, weight))
        hidden = hidden.view(agents, count, -1)
        hidden = activate(torch.baddbmm(self.adapter_bias, hidden, self.adapter_weight))
        return torch.baddbmm(self.output_bias, hidden, self.output_weight)


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator, gain: float = 1.0) -> Tensor:
    """PyTorch's own default for linear layers: uniform within 1/sqrt(inputs), here with a generator of its own."""
    bound = gain / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
