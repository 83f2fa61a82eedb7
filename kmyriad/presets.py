"""Tuned settings, apart from the code that uses them. A world that nobody tuned gets those of `quick` itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from kmyriad.checks import checked
from kmyriad.config import (
    RULES,
    ActorCritic,
    Init,
    JumpstartConfig,
    PopulationConfig,
    PretrainConfig,
    RunConfig,
    TaskConfig,
    WorldConfig,
    even_split,
    with_settings,
)
from kmyriad.envs import short_name
from kmyriad.envs.source import own_horizon
from kmyriad.errors import UsageError, nearest_name

PAPER_LEARNING_RATES = {1: 2e-4, 10: 2e-4, 50: 5e-4}
"""The paper's Table 2: the rate by number of agents. Numbers in between take that of the next lower one."""

OWN_RATE, OWN_RATE_WITH_COMPASS = 0.1, 0.03
"""With a compass, what sets agents apart is known to what they have in common."""
OWN_RATES_IN_ALL, OWN_RATES_WITH_COMPASS = 1.5, 0.3
"""At most, of all agents together: the more there are, the less data and the more noise for each."""


def paper(env: str, agents: int, update: str | None = None) -> PretrainConfig:
    """The paper's Table 2; its seeds are 0, 1, 56 and 123.

    It does not state the initial deviation nor the features; those are this project's defaults.
    """
    rate = PAPER_LEARNING_RATES[max(known for known in PAPER_LEARNING_RATES if known <= agents)]
    update = update or "reinforce"
    config = PretrainConfig(
        WorldConfig(env, horizon=600),
        PopulationConfig(
            agents,
            trunk_hidden=(512, 256),
            agent_hidden=256,
            activation="relu",
            initial_std=0.37,
            normalise_observations=False,
            own_rate=None,
        ),
        update=RULES[update](learning_rate=rate),
        run=RunConfig(total_steps=200 * 1000 * 600, replicas=1000, rollout_steps=None),
    )
    return config if update == "actor_critic" else with_settings(config, {"lr_milestones": (30, 80), "lr_decay": 0.5})


def quick(env: str, agents: int, update: str | None = None) -> PretrainConfig:
    """About three minutes on two cores."""
    rule = RULES[update or "actor_critic"]()
    config = PretrainConfig(
        WorldConfig(env, horizon=own_horizon(env) or WorldConfig.horizon),
        PopulationConfig(agents, own_rate=min(OWN_RATE, OWN_RATES_IN_ALL / agents)),
        update=rule,
        run=RunConfig(rollout_steps=25 if isinstance(rule, ActorCritic) else None),
    )
    tuned = TUNED.get(short_name(env))
    return config if tuned is None else tuned(config)


def desk(env: str, agents: int, update: str | None = None) -> PretrainConfig:
    """About a quarter of an hour on two cores: the paper's horizon."""
    config = with_settings(quick(env, agents, update), {"horizon": 600, "total_steps": 6_000_000})
    if short_name(env) == "point-maze":  # a longer episode shows a ball nothing new
        return config
    return with_settings(config, {"replicas": even_split(200, agents), "neighbours": 15})


def ant(config: PretrainConfig) -> PretrainConfig:
    """Several Ants have their directions from the beginning."""
    return directed(_learning(config, gae_lambda=0.9))


def ant_maze(config: PretrainConfig) -> PretrainConfig:
    """Straight on is not far between walls: directions go deeper into the network and weigh less."""
    config = ant(config)
    if config.population.agents == 1:
        return config
    if config.population.agents > 10:
        return with_settings(config, {"diversity_weight": 0.5})
    return with_settings(config, {"direction_rate": 0.03})


def directed(config: PretrainConfig) -> PretrainConfig:
    """Each agent has a direction, and sees the world in mirrors that turn it into the first quadrant."""
    agents = config.population.agents
    if agents == 1:
        return config
    own_rate = min(OWN_RATE_WITH_COMPASS, OWN_RATES_WITH_COMPASS / agents)
    settings = {"compass": 1.0, "mirrors": True, "diversity_weight": 0.5, "own_rate": own_rate}
    config = with_settings(config, settings)
    if agents <= 10:
        return config
    # More have too little to learn from each: nearly all is in common, in views where all have one way.
    many = {"turns": True, "diversity_weight": 1.0, "initial_std": 0.14, "own_adapters": False}
    return with_settings(_learning(config, gae_lambda=0.8), many)


def point_maze(config: PretrainConfig) -> PretrainConfig:
    """For a ball, which needs no practice to roll.

    Agents have nothing to learn in common and may start with much noise. As noise alone takes them anywhere, they want
    larger samples and smaller updates, or they chase each other round the maze.
    """
    settings = {
        # Its control step is 0.01 s: without decimation the ball hardly leaves its cell in an episode.
        "env_settings": {"decimation": 5},
        "own_rate": 1.0,
        "initial_std": 0.6,
        "diversity_weight": 0.3,
    }
    if isinstance(config.update, ActorCritic):
        settings |= {"rollout_steps": 100, "gamma": 0.97, "desired_kl": 0.02}
    return with_settings(config, settings)


def _learning(config: PretrainConfig, **settings: Any) -> PretrainConfig:
    """`config` with settings of the actor-critic, where that is its rule."""
    return with_settings(config, settings) if isinstance(config.update, ActorCritic) else config


TUNED: dict[str, Callable[[PretrainConfig], PretrainConfig]] = {
    "ant-empty": ant,
    "ant-maze": ant_maze,
    "ant-cave": directed,
    "ant-pyramid": ant,
    "point-maze": point_maze,
}
"""What is known to be better than `quick` in a world, by its short name."""

PRESETS = {"quick": quick, "desk": desk, "paper": paper}
RULE_OF = {"paper": "reinforce"}
"""The update rule of presets that bring one of their own."""


def preset(name: str, env: str, agents: int, update: str | None = None) -> PretrainConfig:
    """The settings of a named preset for a world, a number of agents and an update rule (None: the preset's own)."""
    _check_name("preset", name, tuple(PRESETS))
    if update is not None:
        _check_name("update", update, tuple(RULES))
    agents = PopulationConfig(agents).agents  # refuses what is no number of agents
    return PRESETS[name](checked("env", env, str), agents, update)


def jumpstart_quick(init: Init) -> JumpstartConfig:
    """About five minutes on two cores: two million steps."""
    return with_settings(JumpstartConfig(), {"init": init})


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
