"""Tuned settings, apart from the code that uses them: a method, and how large a run of it is.

A *method* says what is learned and how: `ours`, or `paper`, which has nothing of ours in it. A *preset* says how much:
`quick`, `desk` or `paper` (Table 2). Both are the same in every environment and for any number of agents; what depends
on these does so by one formula.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from kmyriad.checks import checked
from kmyriad.config import (
    RULES,
    ActorCritic,
    Init,
    JumpstartConfig,
    ObjectiveConfig,
    PopulationConfig,
    PretrainConfig,
    RunConfig,
    TaskConfig,
    WorldConfig,
    even_split,
    with_settings,
)
from kmyriad.engines.source import own_horizon
from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError, nearest_name

PAPER_LEARNING_RATES = {1: 2e-4, 10: 2e-4, 50: 5e-4}
"""The paper's Table 2: the rate by number of agents. Numbers in between take that of the next lower one."""


def ours(agents: int, update: str | None = None) -> PretrainConfig:
    """Entropy and a way of its own for every agent, layers by code, actor-critic, symmetries that are declared."""
    rule, run = RULES[update or "actor_critic"](), RunConfig(rollout_steps=None)
    if isinstance(rule, ActorCritic):
        rule, run = ActorCritic(averaged_iterations=16), RunConfig(rollout_steps=25)
    return PretrainConfig(population=PopulationConfig(agents), update=rule, run=run)


def paper(agents: int, update: str | None = None) -> PretrainConfig:
    """The paper's method: entropy alone, independent random layers, its gradient and rates, whole horizons, no priors.

    It does not state the initial deviation nor the features; those are this project's defaults.
    """
    update = update or "reinforce"
    rate = PAPER_LEARNING_RATES[max(known for known in PAPER_LEARNING_RATES if known <= agents)]
    config = PretrainConfig(
        population=PopulationConfig(
            agents,
            trunk_hidden=(512, 256),
            agent_hidden=256,
            activation="relu",
            initial_std=0.37,
            normalise_observations=False,
            code_size=None,
            priors=False,
        ),
        objective=ObjectiveConfig(diversity_weight=0.0),
        update=RULES[update](learning_rate=rate),
        run=RunConfig(rollout_steps=None),
    )
    return config if update == "actor_critic" else with_settings(config, {"lr_milestones": (30, 80), "lr_decay": 0.5})


METHODS = {"ours": ours, "paper": paper}


def quick(agents: int) -> Mapping[str, Any]:
    """About three minutes on two cores."""
    return {}


def desk(agents: int) -> Mapping[str, Any]:
    """About a quarter of an hour on two cores: the paper's horizon."""
    return {"horizon": 600, "total_steps": 6_000_000, "replicas": even_split(200, agents), "neighbours": 15}


def table_2(agents: int) -> Mapping[str, Any]:
    """The paper's Table 2; its seeds are 0, 1, 56 and 123."""
    return {"horizon": 600, "total_steps": 200 * 1000 * 600, "replicas": even_split(1000, agents)}


PRESETS = {"quick": quick, "desk": desk, "paper": table_2}
"""Sizes of a run for a number of agents, by name."""


def method_of(preset: str) -> str:
    """The method that a preset has where none is asked for."""
    return "paper" if preset == "paper" else "ours"


def rule_of(preset: str, method: str | None = None) -> str:
    """The update rule that comes with a preset and a method, where none is asked for."""
    return "reinforce" if (method or method_of(preset)) == "paper" else "actor_critic"


def preset(name: str, env: str, agents: int, update: str | None = None, method: str | None = None) -> PretrainConfig:
    """The settings of a named preset for a world, a number of agents, an update rule and a method.

    None for the last two: those that come with the preset.
    """
    _check_name("preset", name, tuple(PRESETS))
    if update is not None:
        _check_name("update", update, tuple(RULES))
    if method is not None:
        _check_name("method", method, tuple(METHODS))
    agents = PopulationConfig(agents).agents  # refuses what is no number of agents
    row = WORLDS.get(short_name(checked("env", env, str)))
    horizon = own_horizon(env) or WorldConfig.horizon
    world = WorldConfig(env, {} if row is None else dict(row.training_settings), horizon)
    config = replace(METHODS[method or method_of(name)](agents, update), world=world)
    return with_settings(config, PRESETS[name](agents))


def jumpstart_quick(init: Init) -> JumpstartConfig:
    """About five minutes on two cores: two million steps."""
    return with_settings(JumpstartConfig(), {"init": init, "asymmetric_critic": None, "pace": None})


def jumpstart_paper(init: Init) -> JumpstartConfig:
    """The paper's PPO table: ten million steps of whole horizons, gentler where there is something to forget.

    Its minibatches of 64 x replicas are a tenth of an iteration of 600 steps.
    """
    fresh = init == "random"
    config = replace(
        JumpstartConfig(),
        task=TaskConfig(horizon=600),
        update=ActorCritic(
            learning_rate=1e-5,
            critic_learning_rate=3e-4,
            gamma=0.99,
            gae_lambda=0.95,
            clip_range=0.2 if fresh else 0.15,
            update_epochs=10 if fresh else 3,
            minibatches=10,
            desired_kl=None,
            entropy_coef=0.001 if fresh else 0.0,
            max_grad_norm=0.5,
            critic_hidden=(256, 256),
        ),
        run=RunConfig(total_steps=10_000_000, replicas=300, rollout_steps=None),
    )
    return with_settings(config, {"init": init, "critic_warm_up": 1 if fresh else 5})


JUMPSTART_PRESETS = {"quick": jumpstart_quick, "paper": jumpstart_paper}


def jumpstart_preset(name: str, init: str) -> JumpstartConfig:
    """The settings of a named preset for a way to start."""
    _check_name("preset", name, tuple(JUMPSTART_PRESETS))
    _check_name("init", init, get_args(Init))
    return JUMPSTART_PRESETS[name](checked("init", init, Init))


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise UsageError(f"unknown {what} {name!r}{nearest_name(str(name), known)}")
