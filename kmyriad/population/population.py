"""The population: m policies in one network (shared trunk, an adapter and an output layer each), one forward pass.

The policy of an agent is a distribution over *raw* actions; squashing and rescaling happen at the environment's edge
(`squash`). The squashing's Jacobian cancels in every ratio of probabilities, and any PPO can take the policy as it is.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kmyriad.errors import UsageError
from kmyriad.population.clipping import ClippedActions
from kmyriad.population.distributions import ActionSpec, Categorical, Gaussian, Policy
from kmyriad.population.frames import Frames
from kmyriad.population.network import ACTIVATIONS, MultiAgentNetwork
from kmyriad.population.normaliser import Normaliser

OUTPUT_GAIN = 0.1
"""Output layers start this much smaller than the others, so that std starts at its setting and means near 0."""


class Population(MultiAgentNetwork):
    """m policies: `forward` maps observations (m, n, d), n per agent, to a distribution of shape (m, n, a)."""

    def __init__(
        self,
        agents: int,
        observation_size: int,
        actions: ActionSpec,
        *,
        trunk_hidden: Sequence[int] = (512, 256),
        agent_hidden: int = 256,
        activation: str = "relu",
        initial_std: float = 0.37,
        std_range: tuple[float, float] = (0.01, 2.0),
        normalises: bool = False,
        codes: Tensor | None = None,
        code_rate: float = 0.1,
        frames: Frames | None = None,
        seed: int = 0,
    ) -> None:
        output_bias = torch.zeros(actions.outputs)
        if not actions.is_discrete:
            output_bias[actions.size :] = math.log(initial_std)
        super().__init__(
            agents,
            observation_size,
            actions.outputs,
            trunk_hidden=trunk_hidden,
            agent_hidden=agent_hidden,
            activation=activation,
            output_gain=OUTPUT_GAIN,
            output_bias=output_bias,
            codes=codes,
            code_rate=code_rate,
            seed=seed,
        )
        self.observation_size, self.actions = observation_size, actions
        self.std_range = std_range
        self.normaliser = Normaliser(observation_size) if normalises else nn.Identity()
        self.frames = frames

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.parameters()).device

    def forward(self, observations: Tensor, layers: Mapping[str, Tensor] | None = None) -> Policy:
        """`layers` are what `agents_layers` returned, where many calls share it."""
        return self.policy(self.inputs(observations), layers)

    def inputs(self, observations: Tensor) -> Tensor:
        """Observations (m, ..., d) as the network takes them: in each agent's frame, normalised."""
        normalised: Tensor = self.normaliser(self._framed(observations))
        return normalised

    def policy(self, inputs: Tensor, layers: Mapping[str, Tensor] | None = None) -> Policy:
        """The policy from `inputs`."""
        outputs = self.outputs(inputs, layers)
        return self._policy(outputs if self.frames is None else self.frames.outputs(outputs))

    def _policy(self, outputs: Tensor) -> Policy:
        if self.actions.is_discrete:
            return Categorical(outputs, self.actions.choices)
        mean, log_std = outputs.chunk(2, dim=-1)
        return Gaussian(mean, log_std.clamp(*(math.log(std) for std in self.std_range)))

    def see(self, observations: Tensor, valid: Tensor) -> None:
        """Take more observations (m, ..., d) into account, those that are `valid`, where they are normalised."""
        if isinstance(self.normaliser, Normaliser):
            self.normaliser.see(self._framed(observations)[valid])

    def _framed(self, observations: Tensor) -> Tensor:
        return observations if self.frames is None else self.frames.inputs(observations)

    def architecture(self) -> dict[str, Any]:
        """What `Population.build` needs to make one of the same shape, as plain JSON."""
        actions = self.actions
        return {
            "agents": self.agents,
            "observation_size": self.observation_size,
            "discrete": actions.is_discrete,
            "low": actions.low.tolist(),
            "high": actions.high.tolist(),
            "choices": list(actions.choices),
            "trunk_hidden": list(self.trunk_sizes),
            "agent_hidden": self.adapter_size,
            "activation": self.activation_name,
            "std_range": list(self.std_range),
            "normalises": isinstance(self.normaliser, Normaliser),
            "codes": None if self.codes is None else self.codes.cpu().tolist(),
            "code_rate": self.code_rate,
            "framed": self.frames is not None,
            "clips": isinstance(actions, ClippedActions),
        }

    @staticmethod
    def build(architecture: Mapping[str, Any]) -> "Population":
        """A population of the shape that `architecture` tells, with fresh weights."""
        low, high = (torch.tensor(architecture[name], dtype=torch.float32) for name in ("low", "high"))
        std_min, std_max = architecture["std_range"]
        codes, frames = architecture["codes"], None
        if architecture["framed"]:
            frames = Frames.straight(architecture["agents"], architecture["observation_size"], len(low))
        return Population(
            architecture["agents"],
            architecture["observation_size"],
            (ClippedActions if architecture["clips"] else ActionSpec)(
                len(low), architecture["discrete"], low, high, tuple(architecture["choices"])
            ),
            trunk_hidden=architecture["trunk_hidden"],
            agent_hidden=architecture["agent_hidden"],
            activation=architecture["activation"],
            initial_std=std_min,
            std_range=(std_min, std_max),
            normalises=architecture["normalises"],
            codes=None if codes is None else torch.tensor(codes),
            code_rate=architecture["code_rate"],
            frames=frames,
        )

    def select(self, agents: Sequence[int]) -> "Population":
        """A population of these agents, with a copy of their parameters; their layers are all their own there."""
        for agent in agents:
            if not 0 <= agent < self.agents:
                raise UsageError(f"agent must be between 0 and {self.agents - 1}; got {agent}")
        chosen = Population.build(self.architecture() | {"agents": len(agents), "codes": None})
        theirs = {name: layers[list(agents)] for name, layers in self.agents_layers().items()}
        state = self.state_dict() | theirs
        state |= {name: frames[list(agents)] for name, frames in state.items() if name.startswith("frames.")}
        chosen.load_state_dict({name: state[name] for name in chosen.state_dict()})
        return chosen

    def agent(self, index: int) -> "AgentPolicy":
        """One agent as a plain single-agent policy that gives the same actions."""
        return AgentPolicy(self.select([index]))


class AgentPolicy(nn.Module):
    """A single policy as a plain stack of layers: observations (n, d) to a distribution of shape (n, a)."""

    def __init__(self, population: Population) -> None:
        super().__init__()
        if population.agents != 1:
            raise UsageError(f"an agent is made of a population of one; got one of {population.agents}")
        adapter_weight, adapter_bias, output_weight, output_bias = population.agents_layers().values()
        weights = [*population.trunk_weights, adapter_weight[0], output_weight[0]]
        biases = [*population.trunk_biases, adapter_bias[0, 0], output_bias[0, 0]]
        layers: list[nn.Module] = [copy.deepcopy(population.normaliser)]
        if population.frames is not None:  # a layer in front, and within the last
            seen = population.frames.inputs(torch.eye(population.observation_size)[None])[0]
            layers.insert(0, _linear(seen, torch.zeros(population.observation_size)))
            weights[-1], biases[-1] = (
                population.frames.outputs(of_last[None])[0] for of_last in (weights[-1], biases[-1])
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
