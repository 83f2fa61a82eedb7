"""The population: m policies in one network (shared trunk, an adapter and an output layer each), one forward pass.

The policy of an agent is a distribution over *raw* actions; squashing and rescaling happen at the environment's edge
(`squash`). The squashing's Jacobian cancels in every ratio of probabilities, and any PPO can take the policy as it is.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kmyriad.errors import UsageError
from kmyriad.population.distributions import ActionSpec, Categorical, Gaussian, Policy
from kmyriad.population.frames import Views
from kmyriad.population.network import ACTIVATIONS, HeadedNetwork
from kmyriad.population.normaliser import Normaliser

OUTPUT_GAIN = 0.1
"""Output layers start this much smaller than the others, so that sigma starts at its setting and means near 0."""


class Population(HeadedNetwork):
    """m policies: `forward` maps observations (m, n, d), n per agent, to a distribution of shape (m, n, a)."""

    def __init__(
        self,
        agents: int,
        observation_size: int,
        actions: ActionSpec,
        *,
        trunk: Sequence[int] = (512, 256),
        adapter: int = 256,
        activation: str = "relu",
        initial_sigma: float = 0.37,
        sigma_range: tuple[float, float] = (0.01, 2.0),
        normalises: bool = False,
        own_rate: float | None = None,
        own_adapters: bool = True,
        directions: Tensor | None = None,
        direction_rate: float = 0.0,
        views: Views | None = None,
        seed: int = 0,
    ) -> None:
        output_bias = torch.zeros(actions.outputs)
        if not actions.is_discrete:
            output_bias[actions.size :] = math.log(initial_sigma)
        super().__init__(
            agents,
            observation_size,
            actions.outputs,
            trunk=trunk,
            adapter=adapter,
            activation=activation,
            output_gain=OUTPUT_GAIN,
            output_bias=output_bias,
            own_rate=own_rate,
            own_adapters=own_adapters,
            directions=directions,
            direction_rate=direction_rate,
            seed=seed,
        )
        self.observation_size, self.actions = observation_size, actions
        self.sigma_range = sigma_range
        self.normaliser = Normaliser(observation_size) if normalises else nn.Identity()
        self.views = views

    def forward(self, observations: Tensor, layers: Mapping[str, Tensor] | None = None) -> Policy:
        """`layers` are what `agents_layers` returned, where many calls share it."""
        return self.policy(self.inputs(observations), layers)

    def inputs(self, observations: Tensor) -> Tensor:
        """Observations (m, ..., d) as the network takes them: in each agent's view, normalised."""
        normalised: Tensor = self.normaliser(self._viewed(observations))
        return normalised

    def policy(self, inputs: Tensor, layers: Mapping[str, Tensor] | None = None) -> Policy:
        """The policy from `inputs`."""
        outputs = self.outputs(inputs, layers)
        return self._policy(outputs if self.views is None else self.views.outputs(outputs))

    def _policy(self, outputs: Tensor) -> Policy:
        if self.actions.is_discrete:
            return Categorical(outputs)
        mean, log_sigma = outputs.chunk(2, dim=-1)
        return Gaussian(mean, log_sigma.clamp(*(math.log(sigma) for sigma in self.sigma_range)))

    def see(self, observations: Tensor, sound: Tensor) -> None:
        """Take more observations (m, ..., d) into account, those that are `sound`, where they are normalised."""
        if isinstance(self.normaliser, Normaliser):
            self.normaliser.see(self._viewed(observations)[sound])

    def _viewed(self, observations: Tensor) -> Tensor:
        return observations if self.views is None else self.views.inputs(observations)

    def architecture(self) -> dict[str, Any]:
        """What `Population.build` needs to make one of the same shape, as plain JSON."""
        actions = self.actions
        return {
            "agents": self.agents,
            "observation_size": self.observation_size,
            "discrete": actions.is_discrete,
            "low": actions.low.tolist(),
            "high": actions.high.tolist(),
            "trunk": list(self.trunk_sizes),
            "adapter": self.adapter_size,
            "activation": self.activation_name,
            "sigma_range": list(self.sigma_range),
            "normalises": isinstance(self.normaliser, Normaliser),
            "own_rate": self.own_rate,
            "own_adapters": self.own_adapters,
            "directions": None if self.directions is None else self.directions.tolist(),
            "direction_rate": self.direction_rate,
            "mirrored": self.views is not None,
            "turned": self.views is not None and self.views.turns is not None,
        }

    @staticmethod
    def build(architecture: Mapping[str, Any]) -> "Population":
        """A population of the shape that `architecture` tells, with fresh weights."""
        low, high = (np.array(architecture[name], np.float32) for name in ("low", "high"))
        sigma_min, sigma_max = architecture["sigma_range"]
        # Checkpoints from before there were own rates, directions and views ("mirrored") do not tell of them.
        own_rate, directions = architecture.get("own_rate"), architecture.get("directions")
        views = None
        if architecture.get("mirrored"):
            is_turned = architecture.get("turned", False)
            views = Views.straight(architecture["agents"], architecture["observation_size"], low.size, is_turned)
        return Population(
            architecture["agents"],
            architecture["observation_size"],
            ActionSpec(low.size, architecture["discrete"], low, high),
            trunk=architecture["trunk"],
            adapter=architecture["adapter"],
            activation=architecture["activation"],
            initial_sigma=sigma_min,
            sigma_range=(sigma_min, sigma_max),
            normalises=architecture["normalises"],
            own_rate=own_rate,
            own_adapters=architecture.get("own_adapters", True),
            directions=None if directions is None else torch.tensor(directions),
            direction_rate=architecture.get("direction_rate", 0.0),
            views=views,
        )

    def select(self, heads: Sequence[int]) -> "Population":
        """A population of these heads, with a copy of their parameters; their layers are all their own there."""
        for head in heads:
            if not 0 <= head < self.agents:
                raise UsageError(f"head must be between 0 and {self.agents - 1}; got {head}")
        chosen = Population.build(self.architecture() | {"agents": len(heads), "own_rate": None, "directions": None})
        theirs = {name: layers[list(heads)] for name, layers in self.agents_layers().items()}
        state = self.state_dict() | theirs
        state |= {name: views[list(heads)] for name, views in state.items() if name.startswith("views.")}
        chosen.load_state_dict({name: state[name] for name in chosen.state_dict()})
        return chosen

    def head(self, index: int) -> "Head":
        """One agent as a plain single-head policy that gives the same actions."""
        return Head(self.select([index]))


class Head(nn.Module):
    """A single policy as a plain stack of layers: observations (n, d) to a distribution of shape (n, a)."""

    def __init__(self, population: Population) -> None:
        super().__init__()
        if population.agents != 1:
            raise UsageError(f"a head is made of a population of one; got one of {population.agents}")
        adapter_weight, adapter_bias, output_weight, output_bias = population.agents_layers().values()
        weights = [*population.trunk_weights, adapter_weight[0], output_weight[0]]
        biases = [*population.trunk_biases, adapter_bias[0, 0], output_bias[0, 0]]
        layers: list[nn.Module] = [copy.deepcopy(population.normaliser)]
        if population.views is not None:  # a layer in front, and within the last
            layers.insert(0, _as_layer(population.views, population.observation_size))
            weights[-1], biases[-1] = (
                population.views.outputs(of_last[None])[0] for of_last in (weights[-1], biases[-1])
            )
        for weight, bias in zip(weights, biases, strict=True):
            layers += [_linear(weight, bias), ACTIVATIONS[population.activation_name]]
        self.layers = nn.Sequential(*layers[:-1])
        self.actions = population.actions
        self._policy = population._policy

    def forward(self, observations: Tensor) -> Policy:
        return self._policy(self.layers(observations))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """The layer that maps (n, inputs) with `weight` (inputs, outputs) and `bias` (outputs,)."""
    layer = nn.Linear(*weight.shape)
    layer.weight.data, layer.bias.data = weight.detach().T.clone(), bias.detach().clone()
    return layer


def _as_layer(views: Views, size: int) -> nn.Linear:
    """What a single agent sees of observations (n, size), as a layer."""
    origin = views.inputs(torch.zeros(1, 1, size))[0]
    return _linear(views.inputs(torch.eye(size)[None])[0] - origin, origin[0])
