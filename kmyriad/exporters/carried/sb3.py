"""Policy classes for Stable-Baselines3 that hold what kmyriad trained exactly.

SB3's own PPO has one deviation for all states and cuts actions off at the edge of their range. Here the deviation
depends on the state, and actions are squashed where SB3 hands them to the environment.
"""

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import Tensor, nn

from kmyriad.exporters.carried.policy import (
    ACTIVATIONS,
    FOLDER,
    FRESH_CRITIC,
    Inputs,
    copy_layers,
    linear_layers,
    load_policy,
    load_value,
    read_facts,
    spaces_of,
)


class Seen(BaseFeaturesExtractor):
    """Observations in the agent's frame, normalised; a part of the policy that does not learn."""

    def __init__(self, observation_space: gymnasium.Space[Any], framed: bool, limit: float | None) -> None:
        size = int(np.prod(observation_space.shape or ()))
        super().__init__(observation_space, size)
        self.inputs = Inputs(size, framed, limit)

    def forward(self, observations: Tensor) -> Tensor:
        return self.inputs(observations.float())


class StatePolicy(ActorCriticPolicy):
    """For PPO: a Gaussian over raw actions with a deviation for every state, or SB3's own categorical one."""

    def __init__(
        self,
        *arguments: Any,
        log_std_range: tuple[float, float] = (-20.0, 2.0),
        clips: bool = False,
        **settings: Any,
    ) -> None:
        self.log_std_range, self.clips = log_std_range, clips
        super().__init__(*arguments, **settings)

    @property
    def squash_output(self) -> bool:
        return isinstance(self.action_space, gymnasium.spaces.Box)

    def unscale_action(self, scaled_action: Any) -> Any:
        """Raw actions to what the environment takes."""
        low, high = self.action_space.low, self.action_space.high
        if self.clips:
            return np.clip(scaled_action, low, high)
        return low + (high - low) * (0.5 + 0.5 * np.tanh(scaled_action))

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        if isinstance(self.action_space, gymnasium.spaces.Box):
            del self.log_std
            self.action_net = nn.Linear(self.mlp_extractor.latent_dim_pi, 2 * self.action_space.shape[0])
            self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        outputs = self.action_net(latent_pi)
        if not isinstance(self.action_space, gymnasium.spaces.Box):
            return self.action_dist.proba_distribution(action_logits=outputs)
        mean, log_std = outputs.chunk(2, dim=-1)
        return self.action_dist.proba_distribution(mean, log_std.clamp(*self.log_std_range))

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"log_std_range": self.log_std_range, "clips": self.clips}


class StateActor(Actor):
    """SAC's actor with kmyriad's limits of the deviation, held by the policy that it began with.

    Where SAC asks for the log-probability of an action, this tells how much more likely it is than under that policy.
    So SAC's entropy bonus becomes the KL divergence from it: the actor moves only where the critics promise more than
    `ent_coef` for each nat. Without, critics that know one policy's actions alone would lead it anywhere.
    """

    def __init__(self, *arguments: Any, log_std_range: tuple[float, float] = (-20.0, 2.0), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.log_std_range = log_std_range
        self.beginning = nn.ModuleList(copy.deepcopy([self.latent_pi, self.mu, self.log_std])).requires_grad_(False)

    def remember(self) -> None:
        """Take the policy as it is now for the one that it began with."""
        now = nn.ModuleList([self.latent_pi, self.mu, self.log_std])
        self.beginning.load_state_dict(now.state_dict())

    def get_action_dist_params(self, obs: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        mean, log_std, others = super().get_action_dist_params(obs)
        return mean, log_std.clamp(*self.log_std_range), others

    def action_log_prob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std, _ = self.get_action_dist_params(obs)
        actions, _ = self.action_dist.log_prob_from_params(mean, log_std)
        raw = self.action_dist.gaussian_actions
        latent, mu, begun_log_std = self.beginning
        hidden = latent(self.extract_features(obs, self.features_extractor))
        begun = torch.distributions.Normal(mu(hidden), begun_log_std(hidden).clamp(*self.log_std_range).exp())
        now = torch.distributions.Normal(mean, log_std.exp())
        return actions, (now.log_prob(raw) - begun.log_prob(raw)).sum(-1)


class SlowAdam(torch.optim.Adam):
    """Adam with a part of the learning rate that it is told. SB3 tells actor and critics the same one."""

    def __init__(self, parameters: Any, part: float, **settings: Any) -> None:
        super().__init__(parameters, **settings)
        self.part = part

    def step(self, closure: Any = None) -> Any:
        told = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= self.part
        loss = super().step(closure)
        for group, rate in zip(self.param_groups, told, strict=True):
            group["lr"] = rate
        return loss


class StateSACPolicy(SACPolicy):
    """For SAC, with an actor that learns more slowly than the critics: it can already do something, and they cannot."""

    def __init__(
        self,
        *arguments: Any,
        log_std_range: tuple[float, float] = (-20.0, 2.0),
        actor_rate: float = 0.1,
        **settings: Any,
    ) -> None:
        self.log_std_range, self.actor_rate = log_std_range, actor_rate
        super().__init__(*arguments, **settings)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.actor.optimizer = SlowAdam(self.actor.parameters(), self.actor_rate, lr=lr_schedule(1))

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> StateActor:
        settings = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return StateActor(**settings, log_std_range=self.log_std_range).to(self.device)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        told = {"log_std_range": self.log_std_range, "actor_rate": self.actor_rate}
        return super()._get_constructor_parameters() | told


class CriticFirst(BaseCallback):
    """The policy stays as it is for the first `steps` environment steps: a fresh critic would spoil it."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_training_start(self) -> None:
        self._set_learning(self.model.num_timesteps >= self.steps)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._set_learning(self.model.num_timesteps >= self.steps)

    def _on_training_end(self) -> None:
        self._set_learning(True)

    def _set_learning(self, learns: bool) -> None:
        for parameter in actor_parameters(self.model):
            parameter.requires_grad_(learns)


def actor_parameters(model: BaseAlgorithm) -> list[nn.Parameter]:
    """What decides the actions."""
    policy = model.policy
    if isinstance(policy, SACPolicy):
        actor = policy.actor
        return [one for part in (actor.latent_pi, actor.mu, actor.log_std) for one in part.parameters()]
    return [*policy.mlp_extractor.policy_net.parameters(), *policy.action_net.parameters()]


def one_logit_per_bit(layer: nn.Linear) -> nn.Linear:
    """Of a layer that gives two logits for each bit, for 0 and for 1: SB3 has how much likelier the 1 is."""
    bits = nn.Linear(layer.in_features, layer.out_features // 2)
    with torch.no_grad():
        bits.weight.copy_(layer.weight[1::2] - layer.weight[::2])
        bits.bias.copy_(layer.bias[1::2] - layer.bias[::2])
    return bits


def make_ppo(folder: Path = FOLDER, **settings: Any) -> PPO:
    """PPO that begins with the exported policy. `settings` are PPO's own."""
    facts = read_facts(folder)
    policy_kwargs = _policy_kwargs(facts, critic="vf") | {"clips": facts["clips"]}
    tuned: dict[str, Any] = {"n_steps": 256, "batch_size": 512, "n_epochs": 5, "learning_rate": 1e-4, "gae_lambda": 0.9}
    tuned |= {"clip_range": 0.1, "target_kl": 0.03, "vf_coef": 1.0, "device": "cpu"}
    model = PPO(StatePolicy, None, _init_setup_model=False, policy_kwargs=policy_kwargs, **tuned | settings)
    _set_up(model, facts)
    policy, value, theirs = load_policy(folder), load_value(folder), model.policy
    theirs.features_extractor.inputs.load_state_dict(policy.inputs.state_dict())
    if facts["binary"]:
        policy.layers[-1] = one_logit_per_bit(linear_layers(policy)[-1])
    copy_layers(policy, [*linear_layers(theirs.mlp_extractor.policy_net), theirs.action_net])
    copy_layers(value, [*linear_layers(theirs.mlp_extractor.value_net), theirs.value_net])
    return model


def make_sac(folder: Path = FOLDER, **settings: Any) -> SAC:
    """SAC that begins with the exported policy. `settings` are SAC's own."""
    facts = read_facts(folder)
    tuned: dict[str, Any] = {"learning_starts": 0, "learning_rate": 3e-4, "ent_coef": 0.02, "buffer_size": 200_000}
    tuned |= {"train_freq": 4, "gradient_steps": 8, "batch_size": 256, "device": "cpu"}
    tuned |= {"target_entropy": -float(facts["actions"])}  # SB3 would ask the environment, which is not there yet
    policy_kwargs = _policy_kwargs(facts, critic="qf")
    model = SAC(StateSACPolicy, None, _init_setup_model=False, policy_kwargs=policy_kwargs, **tuned | settings)
    _set_up(model, facts)
    policy, theirs = load_policy(folder), model.policy
    for part in (theirs.actor, theirs.critic, theirs.critic_target):
        part.features_extractor.inputs.load_state_dict(policy.inputs.state_dict())
    *hidden, last = linear_layers(policy)
    copy_layers(nn.ModuleList(hidden), theirs.actor.latent_pi)
    with torch.no_grad():
        for own, weight, bias in zip(
            (theirs.actor.mu, theirs.actor.log_std), last.weight.chunk(2), last.bias.chunk(2), strict=True
        ):
            own.weight.copy_(weight)
            own.bias.copy_(bias)
    theirs.actor.remember()
    return model


def _policy_kwargs(facts: dict[str, Any], critic: str) -> dict[str, Any]:
    low, high = np.log(facts["std_range"])
    return {
        "net_arch": {"pi": facts["hidden"], critic: list(facts["critic_hidden"] or FRESH_CRITIC)},
        "activation_fn": ACTIVATIONS[facts["activation"]],
        "features_extractor_class": Seen,
        "features_extractor_kwargs": {"framed": facts["framed"], "limit": facts["limit"]},
        "log_std_range": (float(low), float(high)),
    } | ({"ortho_init": False} if critic == "vf" else {})


def _set_up(model: BaseAlgorithm, facts: dict[str, Any]) -> None:
    """Without an environment: `PPO.load(path, env=...)` or `set_env` brings one."""
    model.observation_space, model.action_space = spaces_of(facts)
    model.n_envs = 1
    model._setup_model()
