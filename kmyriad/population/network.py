"""m networks in one: a trunk that all agents share, then a hidden layer (the adapter) and an output layer each.

With `codes` an agent's layer is a part that all have in common plus `code_rate` times a part that is linear in its
code: common + code_rate * sum over j of c_j D_j. The D_j start at 0. Adam moves all parameters by steps of the same
size, so agents start as one policy, learn together what all need, and grow apart that much more slowly. Codes of one
number each (one-hot) are parts of an agent's own; short codes let many agents learn together how to differ.

Without codes the layers are random and all their own (the paper's network).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from kmyriad.population.normaliser import Normaliser

ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(inplace=True), "elu": nn.ELU(inplace=True), "tanh": nn.Tanh()}
"""In place where that can be, which saves a copy of every layer. Policies from elsewhere have tanh."""


AGENTS_LAYERS = ("adapter_weight", "adapter_bias", "output_weight", "output_bias")


class MultiAgentNetwork(nn.Module):
    """`outputs` maps (m, n, inputs), n rows per agent, to (m, n, outputs) without a loop over the agents."""

    adapter_weight: nn.Parameter
    output_weight: nn.Parameter
    codes: Tensor | None

    def __init__(
        self,
        agents: int,
        inputs: int,
        outputs: int,
        *,
        trunk_hidden: Sequence[int],
        agent_hidden: int,
        activation: str,
        output_gain: float,
        output_bias: Tensor | None = None,
        codes: Tensor | None = None,
        code_rate: float = 0.1,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.agents, self.activation_name, self.code_rate = agents, activation, code_rate
        self.trunk_sizes, self.adapter_size = tuple(trunk_hidden), agent_hidden
        sizes = [inputs, *trunk_hidden]
        self.register_buffer("codes", codes)
        self.trunk_weights = nn.ParameterList(_uniform((i, o), i, generator) for i, o in pairwise(sizes))
        self.trunk_biases = nn.ParameterList(_uniform((o,), i, generator) for i, o in pairwise(sizes))
        drawn = agents if codes is None else 1
        layers = {
            "adapter_weight": _uniform((drawn, sizes[-1], agent_hidden), sizes[-1], generator),
            "adapter_bias": _uniform((drawn, 1, agent_hidden), sizes[-1], generator),
            "output_weight": _uniform((drawn, agent_hidden, outputs), agent_hidden, generator, output_gain),
            "output_bias": (torch.zeros(outputs) if output_bias is None else output_bias).repeat(drawn, 1, 1),
        }
        for name, values in layers.items():
            if codes is None:
                self.register_parameter(name, nn.Parameter(values))
            else:
                self.register_parameter(f"common_{name}", nn.Parameter(values))
                self.register_parameter(f"code_{name}", nn.Parameter(torch.zeros(codes.shape[1], *values.shape[1:])))

    def outputs(self, inputs: Tensor, layers: Mapping[str, Tensor] | None = None) -> Tensor:
        """`layers` are what `agents_layers` returned, where many calls share it."""
        activate = ACTIVATIONS[self.activation_name]
        agents, count, size = inputs.shape
        hidden = inputs.reshape(agents * count, size)
        for weight, bias in zip(self.trunk_weights, self.trunk_biases, strict=True):
            hidden = activate(torch.addmm(bias, hidden, weight))
        hidden = hidden.view(agents, count, -1)
        layers = layers or self.agents_layers()
        hidden = torch.baddbmm(layers["adapter_bias"], hidden, layers["adapter_weight"])
        return torch.baddbmm(layers["output_bias"], activate(hidden), layers["output_weight"])

    def agents_layers(self) -> dict[str, Tensor]:
        """Weight and bias of adapters and of output layers, a row per agent, whatever they are made of."""
        return {name: self._agents_layer(name) for name in AGENTS_LAYERS}

    def _agents_layer(self, name: str) -> Tensor:
        """(m, inputs, outputs), common + code_rate * sum over j of c_j D_j; or the agents' own."""
        if self.codes is None:
            return self.get_parameter(name)
        layer: Tensor = self.get_parameter(f"common_{name}")
        # Number by number: a matrix product would be rounded differently by another number of threads.
        for number, by_code in zip(self.codes.T, self.get_parameter(f"code_{name}"), strict=True):
            layer = torch.addcmul(layer, number[:, None, None], by_code[None], value=self.code_rate)
        return layer


VALUE_GAIN = 0.1
"""Values start near 0."""


class Critic(MultiAgentNetwork):
    """m value functions: what `seen` returns (m, n, d) to values (m, n).

    That is the normalised observations, and with `hidden` so many features which policies do not observe: an asymmetric
    critic (Pinto et al. 2018). What it is worth to be somewhere cannot be learned by a critic that does not know where.
    """

    outputs_per_value = 1
    hidden: Normaliser | None

    def __init__(
        self,
        agents: int,
        observation_size: int,
        sizes: Sequence[int],
        activation: str = "elu",
        codes: Tensor | None = None,
        code_rate: float = 0.1,
        hidden: int = 0,
        seed: int = 0,
    ) -> None:
        *trunk, adapter = sizes
        super().__init__(
            agents,
            observation_size + hidden,
            self.outputs_per_value,
            trunk_hidden=trunk,
            agent_hidden=adapter,
            activation=activation,
            output_gain=VALUE_GAIN,
            codes=codes,
            code_rate=code_rate,
            seed=seed,
        )
        self.hidden = Normaliser(hidden) if hidden else None

    def seen(self, observations: Tensor, features: Tensor) -> Tensor:
        """(m, ..., d), from normalised observations and the features of the same states."""
        return observations if self.hidden is None else torch.cat([observations, self.hidden(features)], dim=-1)

    def forward(self, seen: Tensor) -> Tensor:
        return self.outputs(seen).squeeze(-1)

    def error(self, seen: Tensor, returns: Tensor) -> Tensor:
        """(m, n), what it is to make small: half the square of how far it is off the `returns` (m, n)."""
        return 0.5 * (self(seen) - returns).square()


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator, gain: float = 1.0) -> Tensor:
    """PyTorch's own default for linear layers: uniform within 1/sqrt(inputs), here with a generator of its own."""
    bound = gain / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
