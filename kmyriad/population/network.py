"""m networks in one: a trunk that all agents share, then a hidden layer (the adapter) and an output layer each.

With an `own_rate` an agent's layer is a part that all have in common plus `own_rate` times a part of its own, which
starts at 0. Adam moves all parameters by steps of the same size, so agents start as one policy, learn together what all
need, and grow apart that much more slowly. Without, the layers are random and all their own (the paper's network).

With `directions`, a vector per agent (`compass`), its adapter's bias has a part that is linear in that vector, from 0
on: how to make use of a direction is learned by all agents together. With a `direction_rate` so have all its layers,
times that rate: many agents, who each have little to learn from, then part by what they learn together.

Without `own_adapters` that goes for the adapters' biases and the output layers only: the adapters' weights are all in
common, which is as fast as one more layer of the trunk.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(inplace=True), "elu": nn.ELU(inplace=True), "tanh": nn.Tanh()}
"""In place where that can be, which saves a copy of every layer. Policies from elsewhere have tanh."""


AGENTS_LAYERS = ("adapter_weight", "adapter_bias", "output_weight", "output_bias")


class MultiAgentNetwork(nn.Module):
    """`outputs` maps (m, n, inputs), n rows per agent, to (m, n, outputs) without a loop over the agents."""

    adapter_weight: nn.Parameter
    output_weight: nn.Parameter
    directions: Tensor | None

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
        own_rate: float | None,
        own_adapters: bool = True,
        directions: Tensor | None = None,
        direction_rate: float = 0.0,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.agents, self.activation_name, self.own_rate = agents, activation, own_rate
        self.trunk_sizes, self.adapter_size = tuple(trunk_hidden), agent_hidden
        sizes = [inputs, *trunk_hidden]
        self.register_buffer("directions", directions)
        self.direction_rate, self.own_adapters = direction_rate, own_adapters
        self.trunk_weights = nn.ParameterList(_uniform((i, o), i, generator) for i, o in pairwise(sizes))
        self.trunk_biases = nn.ParameterList(_uniform((o,), i, generator) for i, o in pairwise(sizes))
        drawn = agents if own_rate is None else 1
        layers = {
            "adapter_weight": _uniform((drawn, sizes[-1], agent_hidden), sizes[-1], generator),
            "adapter_bias": _uniform((drawn, 1, agent_hidden), sizes[-1], generator),
            "output_weight": _uniform((drawn, agent_hidden, outputs), agent_hidden, generator, output_gain),
            "output_bias": (torch.zeros(outputs) if output_bias is None else output_bias).repeat(drawn, 1, 1),
        }
        if directions is not None:
            for name in self._direction_rates():
                zeros = torch.zeros(directions.shape[1], *layers[name].shape[1:])
                self.register_parameter(f"direction_{name}", nn.Parameter(zeros))
        for name, values in layers.items():
            if own_rate is None:
                self.register_parameter(name, nn.Parameter(values))
            else:
                self.register_parameter(f"common_{name}", nn.Parameter(values))
                if name in self._own_layers():
                    self.register_parameter(name, nn.Parameter(torch.zeros(agents, *values.shape[1:])))

    def outputs(self, inputs: Tensor, layers: Mapping[str, Tensor] | None = None) -> Tensor:
        """`layers` are what `agents_layers` returned, where many calls share it."""
        activate = ACTIVATIONS[self.activation_name]
        agents, count, size = inputs.shape
        hidden = inputs.reshape(agents * count, size)
        for weight, bias in zip(self.trunk_weights, self.trunk_biases, strict=True):
            hidden = activate(torch.addmm(bias, hidden, weight))
        hidden = hidden.view(agents, count, -1)
        layers = layers or {name: self._agents_layer(name) for name in self._own_layers()}
        if "adapter_weight" in layers:
            hidden = torch.baddbmm(layers["adapter_bias"], hidden, layers["adapter_weight"])
        else:
            hidden = layers["adapter_bias"] + hidden @ self.get_parameter("common_adapter_weight")[0]
        return torch.baddbmm(layers["output_bias"], activate(hidden), layers["output_weight"])

    def agents_layers(self) -> dict[str, Tensor]:
        """Weight and bias of adapters and of output layers, a row per agent, whatever they are made of."""
        return {name: self._agents_layer(name) for name in AGENTS_LAYERS}

    def _agents_layer(self, name: str) -> Tensor:
        if self.own_rate is None:
            layer: Tensor = self.get_parameter(name)
        elif name in self._own_layers():
            layer = torch.add(self.get_parameter(f"common_{name}"), self.get_parameter(name), alpha=self.own_rate)
        else:
            layer = self.get_parameter(f"common_{name}").expand(self.agents, -1, -1)
        rate = self._direction_rates().get(name)
        if self.directions is None or rate is None:
            return layer
        turned = self.directions @ self.get_parameter(f"direction_{name}").flatten(1)
        return torch.add(layer, turned.view_as(layer), alpha=rate)

    def _own_layers(self) -> tuple[str, ...]:
        """Of the agents' layers, those with a part of each agent's own."""
        return AGENTS_LAYERS if self.own_adapters or self.own_rate is None else AGENTS_LAYERS[1:]

    def _direction_rates(self) -> dict[str, float]:
        """Of the agents' layers that know the directions."""
        others = dict.fromkeys(self._own_layers(), self.direction_rate) if self.direction_rate else {}
        return others | {"adapter_bias": 1.0}


VALUE_GAIN = 0.1
"""Values start near 0."""


class Critic(MultiAgentNetwork):
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
            trunk_hidden=trunk,
            agent_hidden=adapter,
            activation=activation,
            output_gain=VALUE_GAIN,
            own_rate=own_rate,
            own_adapters=own_adapters,
            directions=directions,
            direction_rate=direction_rate,
            seed=seed,
        )

    def forward(self, observations: Tensor) -> Tensor:
        return self.outputs(observations).squeeze(-1)


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator, gain: float = 1.0) -> Tensor:
    """PyTorch's own default for linear layers: uniform within 1/sqrt(inputs), here with a generator of its own."""
    bound = gain / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
