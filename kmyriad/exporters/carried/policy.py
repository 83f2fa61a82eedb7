"""A policy that kmyriad trained, as plain PyTorch: needs torch and safetensors; Gymnasium where environments are made.

The network gives a distribution over *raw* actions: a Gaussian whose deviation depends on the observation, or a
categorical one. `to_environment` makes raw actions into what the environment takes (tanh and a stretch to its range),
outside of the distribution, so that every library sees the plain distribution.
"""

import inspect
import json
import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

FOLDER = Path(__file__).parent
"""Where policy.json and policy.safetensors are, unless another folder is named."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh}
FRESH_CRITIC = (128, 128)
"""Hidden sizes of a value function where none came along."""
STARTS = 1000
"""Seed of the episodes that tell how good a policy is: always the same starts."""


class Inputs(nn.Module):
    """Observations (n, d) as the network takes them: in the agent's frame, normalised, cut off. Nothing here learns."""

    mean: Tensor
    scale: Tensor
    frame_weight: Tensor | None
    frame_bias: Tensor | None

    def __init__(self, size: int, framed: bool, limit: float | None) -> None:
        super().__init__()
        self.limit = math.inf if limit is None else limit
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("frame_weight", torch.eye(size) if framed else None)
        self.register_buffer("frame_bias", torch.zeros(size) if framed else None)

    def forward(self, observations: Tensor) -> Tensor:
        if self.frame_weight is not None:
            observations = nn.functional.linear(observations, self.frame_weight, self.frame_bias)
        return ((observations - self.mean) * self.scale).clamp(-self.limit, self.limit)


class Network(nn.Module):
    """Inputs and a stack of layers: observations (n, d) to outputs (n, outputs)."""

    def __init__(self, inputs: Inputs, sizes: Sequence[int], activation: str) -> None:
        super().__init__()
        self.inputs = inputs
        self.layers = stack(sizes, activation)

    def forward(self, observations: Tensor) -> Tensor:
        outputs: Tensor = self.layers(self.inputs(observations))
        return outputs


class Policy(Network):
    """`forward`: (mean, log_std) of raw actions, (n, a) each; where actions are discrete (logits, logits).

    Logits of several choices at once stand side by side.
    """

    low: Tensor
    high: Tensor

    def __init__(self, facts: dict[str, Any]) -> None:
        self.is_discrete, self.clips, size = bool(facts["discrete"]), bool(facts["clips"]), int(facts["actions"])
        self.choices = [int(count) for count in facts["choices"]]
        outputs = size if self.is_discrete else 2 * size
        sizes = [facts["observation_size"], *facts["hidden"], outputs]
        super().__init__(inputs_of(facts), sizes, facts["activation"])
        self.log_std_range = [math.log(std) for std in facts["std_range"]]
        self.register_buffer("low", torch.tensor(facts["low"]), persistent=False)
        self.register_buffer("high", torch.tensor(facts["high"]), persistent=False)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        outputs = super().forward(observations)
        if self.is_discrete:
            return outputs, outputs
        mean, log_std = outputs.chunk(2, dim=-1)
        return mean, log_std.clamp(*self.log_std_range)

    def distribution(self, observations: Tensor) -> torch.distributions.Distribution:
        """Over raw actions (n, a), or over the index of an action (n,), or of one for every choice (n, choices)."""
        mean, log_std = self(observations)
        if self.choices:
            return torch.distributions.Independent(torch.distributions.Categorical(logits=self.per_choice(mean)), 1)
        if self.is_discrete:
            return torch.distributions.Categorical(logits=mean)
        return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)

    def to_environment(self, raw: Tensor) -> Tensor:
        """What the environment takes: raw actions (n, a) in its range; indices stay what they are."""
        if self.is_discrete:
            return raw
        if self.clips:  # a policy that was first trained by a library that does so
            return raw.clamp(self.low, self.high)
        return self.low + (self.high - self.low) * (0.5 + 0.5 * raw.tanh())

    def per_choice(self, logits: Tensor) -> Tensor:
        """(n, choices, actions of the largest choice), with what a choice does not have at minus infinity."""
        widest = max(self.choices)
        parts = logits.split(self.choices, dim=-1)
        return torch.stack(
            [nn.functional.pad(part, (0, widest - part.shape[-1]), value=-math.inf) for part in parts], -2
        )

    def act(self, observations: Tensor) -> Tensor:
        """The environment's action at the middle of the distribution."""
        mean, _ = self(observations)
        if self.choices:
            return self.per_choice(mean).argmax(-1)
        return mean.argmax(-1) if self.is_discrete else self.to_environment(mean)

    def sample(self, observations: Tensor) -> Tensor:
        """The environment's action, drawn from the distribution."""
        return self.to_environment(self.distribution(observations).sample())


def stack(sizes: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers from `sizes[0]` to `sizes[-1]` with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def read_facts(folder: Path = FOLDER) -> dict[str, Any]:
    """What policy.json tells: sizes, ranges, the environment, where the policy comes from."""
    facts: dict[str, Any] = json.loads((folder / "policy.json").read_text())
    return facts


def inputs_of(facts: dict[str, Any]) -> Inputs:
    """As untrained ones; their numbers come with the weights."""
    return Inputs(facts["observation_size"], facts["framed"], facts["limit"])


def load_policy(folder: Path = FOLDER) -> Policy:
    """The exported policy."""
    policy = Policy(read_facts(folder))
    policy.load_state_dict(weights(folder, "policy"))
    return policy


def load_value(folder: Path = FOLDER) -> Network:
    """The value function that came along, or a fresh one with the policy's inputs."""
    facts = read_facts(folder)
    hidden = facts["critic_hidden"] or FRESH_CRITIC
    value = Network(inputs_of(facts), [facts["observation_size"], *hidden, 1], facts["activation"])
    if facts["critic_hidden"]:
        value.load_state_dict(weights(folder, "value"))
    else:
        inputs = {name: tensor for name, tensor in weights(folder, "policy").items() if name.startswith("inputs.")}
        value.load_state_dict(inputs, strict=False)
    return value


def weights(folder: Path, prefix: str) -> dict[str, Tensor]:
    """Tensors by their names after `prefix.`."""
    tensors = load_file(folder / "policy.safetensors")
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    """In order."""
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def copy_layers(source: nn.Module, target: nn.Module | Sequence[nn.Linear]) -> None:
    """Give the linear layers of `target` the numbers of those of `source`, one after the other."""
    layers = linear_layers(target) if isinstance(target, nn.Module) else target
    with torch.no_grad():
        for ours, theirs in zip(linear_layers(source), layers, strict=True):
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)


def largest_difference(act: Callable[[Tensor], Any], folder: Path = FOLDER) -> float:
    """Between the environment's actions of `act`, which takes observations (n, d), and those that kmyriad computed."""
    reference = load_file(folder / "reference.safetensors")
    with torch.no_grad():
        actions = torch.as_tensor(act(reference["observations"]))
    return float((actions.float() - reference["actions"].float()).abs().max())


def spaces_of(facts: dict[str, Any]) -> tuple[Any, Any]:
    """The environment's observation space and action space, as Gymnasium has them."""
    import gymnasium
    import numpy as np

    def box(name: str) -> Any:
        low, high = facts[f"{name}_low"], facts[f"{name}_high"]  # JSON has no infinity: null stands for it
        bounds = [
            np.array([end if value is None else value for value in values], facts[f"{name}_dtype"])
            for values, end in ((low, -np.inf), (high, np.inf))
        ]
        return gymnasium.spaces.Box(bounds[0], bounds[1], dtype=bounds[0].dtype.type)

    if not facts["discrete"]:
        return box("observation"), box("action")
    if not facts["choices"]:
        return box("observation"), gymnasium.spaces.Discrete(facts["actions"])
    if facts["binary"]:
        return box("observation"), gymnasium.spaces.MultiBinary(len(facts["choices"]))
    return box("observation"), gymnasium.spaces.MultiDiscrete(facts["choices"])


def make_env(facts: dict[str, Any], **settings: Any) -> Any:
    """One copy of the environment that the policy was trained in, with the goal of policy.json if it has one."""
    import gymnasium

    settings = facts["env_settings"] | settings
    if is_world(facts):
        import kmyriad  # noqa: F401  (Gymnasium knows its worlds then)
    function = _function(facts["env_id"])
    if function is None:
        return gymnasium.make(facts["env_id"], **settings)
    horizon = settings.pop("max_episode_steps")
    return gymnasium.wrappers.TimeLimit(function(**settings), horizon)


def make_envs(facts: dict[str, Any], count: int, **settings: Any) -> Any:
    """A vector environment of `count` copies, in which an episode that ends starts again in the same step."""
    import gymnasium
    from gymnasium.vector import AutoresetMode

    same_step = AutoresetMode.SAME_STEP
    if not is_world(facts):
        return gymnasium.vector.SyncVectorEnv([lambda: make_env(facts, **settings)] * count, autoreset_mode=same_step)
    import kmyriad  # noqa: F401

    return gymnasium.make_vec(
        facts["env_id"],
        count,
        vectorization_mode="vector_entry_point",
        autoreset_mode=same_step,
        **facts["env_settings"] | settings,
    )


def is_world(facts: dict[str, Any]) -> bool:
    """Whether the environment is one of kmyriad's, which gives no reward where no goal was exported."""
    return bool(facts["env_id"].startswith("kmyriad/"))


def returns(act: Callable[[Tensor], Any], envs: Any) -> Any:
    """(n,), return of one fresh episode in each of n environments; 1 in a world of kmyriad that reaches the goal.

    `act` takes observations (n, d) and gives the environment's actions.
    """
    import numpy as np

    seen, _ = envs.reset(seed=STARTS)
    going, total = np.ones(envs.num_envs, bool), np.zeros(envs.num_envs)
    while going.any():
        with torch.no_grad():
            actions = act(torch.as_tensor(seen, dtype=torch.float32))
        seen, rewards, terminated, truncated, _ = envs.step(np.asarray(actions))
        total += going * rewards
        going &= ~(terminated | truncated)
    envs.close()
    return total


def tell_return(when: str, act: Callable[[Tensor], Any], episodes: int = 50) -> None:
    """Print how fresh episodes go `when`: before or after training."""
    facts = read_facts()
    if not is_world(facts):
        mean = returns(act, make_envs(facts, episodes)).mean()
        print(f"{when} training: return {mean:.4g}, mean of {episodes} episodes")
    elif facts["goal"]:
        print(
            f"{when} training: success in {returns(act, make_envs(facts, episodes)).mean():.0%} of {episodes} episodes"
        )
    elif when == "before":
        print("there is no reward to learn from: this was exported without a goal (kmyriad export ... --goal X Y)")


def _function(env_id: str) -> Any:
    """The function that `module:function` names, None where it is the id of an environment."""
    module, colon, name = env_id.partition(":")
    if not colon:
        return None
    if module == "given":
        raise ValueError(f"{name} was an object given in Python; make it again and give it to the library")
    sys.path.append(str(Path.cwd()))
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not None and "num_envs" in inspect.signature(found).parameters:
        raise ValueError(f"{env_id} makes many environments at once; make them and give them to the library")
    return found
