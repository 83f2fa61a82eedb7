"""m networks in one: a trunk that all agents share, then a hidden layer (the adapter) and an output layer each.

With an `own_rate` an agent's layer is a part that all have in common plus `own_rate` times a part of its own, which
starts at 0. Adam moves all parameters by steps of the same size, so agents start as one policy, learn together what all
need, and grow apart that much more slowly. Without, the layers are random and all their own (the paper's network).

With `directions`, a vector per agent (`compass`), its adapter's bias has a part that is linear in that vector, from 0
on: how to make use of a direction is learned by all agents together. With a `direction_rate` so have all its layers,
times that rate.

With `families` neighbours have a part of their own together, as many in each family: many agents, who each have little
to learn from, then learn as few do, and take as long. The agents of a family differ by their directions, as biases.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, nn.Module] = {"relu": nn.ReLU(inplace=True), "elu": nn.ELU(inplace=True)}
"""In place, which saves a copy of every layer."""


AGENTS_LAYERS = ("adapter_weight", "adapter_bias", "output_weight", "output_bias")


class HeadedNetwork(nn.Module):
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
        trunk: Sequence[int],
        adapter: int,
        activation: str,
        output_gain: float,
        output_bias: Tensor | None = None,
        own_rate: float | None,
        families: int | None = None,
        directions: Tensor | None = None,
        direction_rate: float = 0.0,
        seed: int,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.agents, self.activation_name, self.own_rate = agents, activation, own_rate
        self.trunk_sizes, self.adapter_size = tuple(trunk), adapter
        sizes = [inputs, *trunk]
        self.register_buffer("directions", directions)
        self.direction_rate, self.families = direction_rate, families or agents
        self.trunk_weights = nn.ParameterList(_uniform((i, o), i, generator) for i, o in pairwise(sizes))
        self.trunk_biases = nn.ParameterList(_uniform((o,), i, generator) for i, o in pairwise(sizes))
        drawn = agents if own_rate is None else 1
        layers = {
            "adapter_weight": _uniform((drawn, sizes[-1], adapter), sizes[-1], generator),
            "adapter_bias": _uniform((drawn, 1, adapter), sizes[-1], generator),
            "output_weight": _uniform((drawn, adapter, outputs), adapter, generator, output_gain),
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
                self.register_parameter(name, nn.Parameter(torch.zeros(self.families, *values.shape[1:])))

    def outputs(self, inputs: Tensor, layers: Mapping[str, Tensor] | None = None) -> Tensor:
        """`layers` are what `families_layers` returned, where many calls share it."""
        activate = ACTIVATIONS[self.activation_name]
        agents, count, size = inputs.shape
        hidden = inputs.reshape(agents * count, size)
        for weight, bias in zip(self.trunk_weights, self.trunk_biases, strict=True):
            hidden = activate(torch.addmm(bias, hidden, weight))
        layers = layers or self.families_layers()
        hidden = hidden.view(self.families, -1, hidden.shape[-1])
        biases = layers["adapter_bias"].expand(-1, count, -1).reshape(self.families, -1, self.adapter_size)
        hidden = activate(torch.baddbmm(biases, hidden, layers["adapter_weight"]))
        return torch.baddbmm(layers["output_bias"], hidden, layers["output_weight"]).view(agents, count, -1)

    def families_layers(self) -> dict[str, Tensor]:
        """Weight and bias of adapters and of output layers, whatever they are made of: a row per family.

        The adapters' biases have a row per agent.
        """
        return {name: self._layer(name) for name in AGENTS_LAYERS}

    def agents_layers(self) -> dict[str, Tensor]:
        """The same with a row per agent."""
        layers = self.families_layers()
        return {name: layer.repeat_interleave(self.agents // len(layer), 0) for name, layer in layers.items()}

    def _layer(self, name: str) -> Tensor:
        layer: Tensor = self.get_parameter(name)
        if self.own_rate is not None:
            layer = torch.add(self.get_parameter(f"common_{name}"), layer, alpha=self.own_rate)
        members = self.agents // self.families
        if name == "adapter_bias" and members > 1:
            layer = layer.repeat_interleave(members, 0)
        rate = self._direction_rates().get(name)
        if self.directions is None or rate is None:
            return layer
        directions = self.directions.view(len(layer), -1, self.directions.shape[1]).mean(1)
        turned = directions @ self.get_parameter(f"direction_{name}").flatten(1)
        return torch.add(layer, turned.view_as(layer), alpha=rate)

    def _direction_rates(self) -> dict[str, float]:
        """Of the layers that know directions: the adapters' biases those of agents, the others those of families."""
        others = dict.fromkeys(AGENTS_LAYERS, self.direction_rate) if self.direction_rate else {}
        return others | {"adapter_bias": 1.0}


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator, gain: float = 1.0) -> Tensor:
    """PyTorch's own default for linear layers: uniform within 1/sqrt(inputs), here with a generator of its own."""
    bound = gain / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
