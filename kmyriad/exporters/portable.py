"""One agent as plain numbers and facts: what every target is made of."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kmyriad.config import JumpstartConfig
from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError
from kmyriad.exporters.carried.policy import Network, Policy, inputs_of
from kmyriad.population.clipping import ClippedActions
from kmyriad.population.network import Critic
from kmyriad.population.normaliser import LIMIT, SMALLEST_VARIANCE, Normaliser
from kmyriad.population.population import AgentPolicy, Population
from kmyriad.rollout.randomness import generator
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.rollout.task import Task
from kmyriad.runs.checkpoints import newest_checkpoint
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_newest

FORMAT = 1
"""Of policy.json."""
REFERENCES = 1000
"""Observations that an exported policy is compared on."""
FAR, FAR_WITHOUT_LIMIT = 1e6, 100.0
"""How large the most extreme of them are. Without a normaliser to cut them off, larger ones only compare rounding."""


@dataclass(frozen=True)
class Source:
    """A run with its policies loaded, and what is known about its environment."""

    run: Run
    population: Population
    critic: Critic | None
    """Of a jump-start: one value function per policy, of the task's reward."""
    facts: dict[str, Any]
    """About all policies alike."""


@dataclass(frozen=True)
class Portable:
    """One policy, ready to be written."""

    agent: AgentPolicy
    policy: Policy
    """The same as the plain network that is carried along."""
    value: Network | None
    facts: dict[str, Any]


def open_source(run: Run, goal: tuple[float, ...] = (), goal_radius: float | None = None) -> Source:
    """The newest policies of `run`, and the facts about them; `goal` is what a pretrained agent is to learn."""
    population, progress = load_newest(run)
    config = run.config
    if isinstance(config, JumpstartConfig):
        if goal:
            raise UsageError(f"{run.given} is a jump-start and has a goal of its own; leave the goal out")
        goal, goal_radius = config.task.goal, config.task.goal_radius
    settings = environment_settings(run, goal, goal_radius)
    features = config.task.features if isinstance(config, JumpstartConfig) else config.world.features
    replicas = make_replicas(
        run.env,
        1,
        horizon=config.rollouts.horizon,
        features=features,
        settings=run.env_settings,
        threads=1,
        engine="serial",
    )
    replicas.close()
    _check_actions(run, replicas.action_space)
    critic = _critic(run, population) if isinstance(config, JumpstartConfig) else None
    facts = {
        "format": FORMAT,
        "env_id": WORLDS[short_name(run.env)].id if short_name(run.env) in WORLDS else run.env,
        "env_settings": settings,
        "horizon": config.rollouts.horizon,
        "goal": list(goal),
        "run": run.name,
        "command": run.command,
        "iteration": progress["iteration"],
        "env_steps": progress["env_steps"],
        "gamma": getattr(config.update, "gamma", None),
        "versions": run.versions,
        **_spaces(replicas, population),
    }
    return Source(run, population, critic, facts)


def _check_actions(run: Run, space: gymnasium.Space[Any]) -> None:
    """Refuse actions that others would have to arrange anew."""
    is_plain = len(space.shape or ()) <= 1 and not np.any(getattr(space, "start", 0))
    if not is_plain:
        raise UsageError(
            f"actions {space} of {run.env} are no plain vector of numbers or of indices from 0, and exports hold no"
            " others; wrap the environment so that it takes such ones"
        )


def environment_settings(run: Run, goal: tuple[float, ...], goal_radius: float | None) -> dict[str, Any]:
    """What `gymnasium.make` takes to make the run's environment, with the goal in it."""
    horizon, settings = run.config.rollouts.horizon, dict(run.env_settings)
    if short_name(run.env) not in WORLDS:  # which has no goal of ours in it
        return settings | {"max_episode_steps": horizon}
    settings |= {"horizon": horizon}
    if goal:
        Task(run.env, run.env_settings, horizon, goal, goal_radius).replicas(1, threads=1).close()  # refuses bad goals
        settings |= {"goal": list(goal), "goal_radius": goal_radius, "ends_at_goal": True}
    return settings


def portable(source: Source, agent: int) -> Portable:
    """One agent of a run."""
    policy, critic = source.population.agent(agent), source.critic
    facts = source.facts | policy_facts(policy) | {"agent": agent, "critic_hidden": None}
    facts |= {"activation": source.population.activation_name, "std_range": list(source.population.std_range)}
    plain = Policy(facts)
    plain.load_state_dict(_inputs(policy) | _layers(_linear(policy)))
    value = None
    if critic is not None:
        layers = _critic_layers(critic, agent, _value_scale(source.run))
        facts["critic_hidden"] = [layer.out_features for layer in layers[:-1]]
        value = Network(inputs_of(facts), [facts["observation_size"], *facts["critic_hidden"], 1], facts["activation"])
        value.load_state_dict(_inputs(policy) | _layers(layers))
    return Portable(policy, plain, value, facts)


def policy_facts(policy: AgentPolicy) -> dict[str, Any]:
    """Sizes and kinds of the layers of `policy`."""
    layers, actions = _linear(policy), policy.actions
    return {
        "observation_size": layers[0].in_features,
        "actions": actions.size,
        "discrete": actions.is_discrete,
        "choices": list(actions.choices),
        "clips": isinstance(actions, ClippedActions),
        "low": actions.low.tolist(),
        "high": actions.high.tolist(),
        "hidden": [layer.out_features for layer in layers[:-1]],
        "framed": isinstance(policy.layers[0], nn.Linear),
        "limit": LIMIT if any(isinstance(layer, Normaliser) for layer in policy.layers) else None,
    }


def reference(portable: Portable) -> dict[str, Tensor]:
    """Observations, common and extreme ones, and what kmyriad itself makes of them.

    `actions` are the environment's at the middle of the distribution; `raw` and `log_prob` are of a sample.
    """
    agent, rng = portable.agent, generator(0, REFERENCES)
    observations = torch.from_numpy(reference_observations(portable, rng))
    with torch.no_grad():
        policy = agent(observations)
        raw = policy.sample(torch.from_numpy(agent.actions.noise(rng, (REFERENCES, agent.actions.size))))
        middle = policy.logits if agent.actions.is_discrete else policy.mean
        told = {"observations": observations, "raw": raw, "log_prob": policy.log_prob(raw), "mean": middle}
        if not agent.actions.is_discrete:
            told["log_std"] = policy.log_std
    return told | {"actions": agent.actions.squash(middle)}


def reference_observations(portable: Portable, rng: np.random.Generator) -> NDArray[np.float32]:
    """(n, d), around what the agent has seen, then far from it, then at the ends of what a float can be used for."""
    inputs = portable.policy.inputs
    spread = 1 / inputs.scale.numpy()
    far = FAR_WITHOUT_LIMIT if portable.facts["limit"] is None else FAR
    scale = np.repeat([1.0, 3.0, 30.0], [REFERENCES // 2, REFERENCES // 4, REFERENCES - 3 * (REFERENCES // 4)])[:, None]
    drawn = inputs.mean.numpy() + spread * scale * rng.standard_normal((REFERENCES, len(spread)))
    drawn[-1], drawn[-2], drawn[-3] = 0, far, -far
    return drawn.astype(np.float32)


def tensors(portable: Portable) -> dict[str, Tensor]:
    """All weights under the names that carried code knows them by."""
    named = {f"policy.{name}": tensor for name, tensor in portable.policy.state_dict().items()}
    if portable.value is not None:
        named |= {f"value.{name}": tensor for name, tensor in portable.value.state_dict().items()}
    return {name: tensor.detach().clone().contiguous() for name, tensor in named.items()}


def _linear(policy: AgentPolicy) -> list[nn.Linear]:
    """The layers that learn, without the agent's frame, which stands before the normaliser."""
    return [layer for layer in [*policy.layers][1:] if isinstance(layer, nn.Linear)]


def _inputs(policy: AgentPolicy) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    size = _linear(policy)[0].in_features
    frame = policy.layers[0]
    if isinstance(frame, nn.Linear):
        named |= {"inputs.frame_weight": frame.weight.detach(), "inputs.frame_bias": frame.bias.detach()}
    normaliser = next((layer for layer in policy.layers if isinstance(layer, Normaliser)), None)
    if normaliser is None:
        return named | {"inputs.mean": torch.zeros(size), "inputs.scale": torch.ones(size)}
    scale = (normaliser.variance + SMALLEST_VARIANCE).rsqrt().float()
    return named | {"inputs.mean": normaliser.mean.float(), "inputs.scale": scale}


def _layers(layers: list[nn.Linear]) -> dict[str, Tensor]:
    """Under the names of a stack of layers with activations between them."""
    named: dict[str, Tensor] = {}
    for index, layer in enumerate(layers):
        named |= {f"layers.{2 * index}.weight": layer.weight.detach(), f"layers.{2 * index}.bias": layer.bias.detach()}
    return named


def _critic(run: Run, population: Population) -> Critic | None:
    """The value functions of a jump-start's newest checkpoint."""
    newest = newest_checkpoint(run.checkpoints)
    assert newest is not None  # its population was loaded
    stored = newest.content.tensors.items()
    named = {name.removeprefix("critic."): tensor for name, tensor in stored if name.startswith("critic.")}
    critic = Critic(
        population.agents, population.observation_size, run.jumpstart.update.critic_hidden, population.activation_name
    )
    try:
        critic.load_state_dict(named)
    except RuntimeError:
        return None
    return critic


def _critic_layers(critic: Critic, agent: int, scale: float) -> list[nn.Linear]:
    adapter_weight, adapter_bias, output_weight, output_bias = critic.agents_layers().values()
    weights = [*critic.trunk_weights, adapter_weight[agent], output_weight[agent] * scale]
    biases = [*critic.trunk_biases, adapter_bias[agent, 0], output_bias[agent, 0] * scale]
    layers = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = weight.detach().T.clone(), bias.detach().clone()
        layers.append(layer)
    return layers


def _value_scale(run: Run) -> float:
    """What makes values of our rewards into values of the environment's: see `updates.actor_critic.per_step`."""
    config = run.jumpstart
    return 1.0 if config.stops_at_goal else 1 / max(1 - config.update.gamma, 1e-6)


def _spaces(replicas: Replicas, population: Population) -> dict[str, Any]:
    """Spaces as plain JSON, with null for infinity, and names of the observation where the environment has any."""
    space = replicas.engine.observation_space
    facts: dict[str, Any] = {"observations": _named(replicas), "features": list(replicas.features)}
    facts["binary"] = isinstance(replicas.action_space, gymnasium.spaces.MultiBinary)
    boxes = {"observation": space} | ({} if population.actions.is_discrete else {"action": replicas.action_space})
    for name, box in boxes.items():
        assert isinstance(box, gymnasium.spaces.Box)
        for end in ("low", "high"):
            values = getattr(box, end).tolist()
            facts[f"{name}_{end}"] = [value if np.isfinite(value) else None for value in values]
        facts[f"{name}_dtype"] = str(box.dtype)
    return facts


def _named(replicas: Replicas) -> list[dict[str, Any]]:
    """The parts of the observation by name, unit and meaning."""
    if replicas.world is None:
        return []
    observed = [feature for feature in replicas.world.features.values() if feature.source == "observation"]
    return [
        {"name": one.name, "start": one.start, "size": one.size, "unit": one.unit, "meaning": one.meaning}
        for one in observed
    ]
