"""Tuned settings, apart from the code that uses them."""

from dataclasses import replace
from typing import cast, get_args

from kmyriad.config import OWN_RATE, PretrainConfig, check_choice, even_split
from kmyriad.envs import IDS, find_id
from kmyriad.jumpstart_config import Init, JumpstartConfig

PAPER_LEARNING_RATES = {1: 2e-4, 10: 2e-4, 50: 5e-4}
"""The paper's Table 2: the rate by number of agents. Numbers in between take that of the next lower one."""

OWN_RATE_WITH_COMPASS = 0.03
"""What sets agents apart is known to what they have in common."""
OWN_RATES_IN_ALL, OWN_RATES_WITH_COMPASS = 1.5, 0.3
"""At most, of all agents together: the more there are, the less data and the more noise for each."""
DIRECTION_RATE = 0.03
"""In AntMaze."""


def paper(env: str, agents: int) -> PretrainConfig:
    """The paper's Table 2; its seeds are 0, 1, 56 and 123.

    It does not state the initial sigma nor the features; those are this project's defaults.
    """
    rate = PAPER_LEARNING_RATES[max(known for known in PAPER_LEARNING_RATES if known <= agents)]
    return PretrainConfig(
        env=env,
        agents=agents,
        replicas=1000,
        epochs=200,
        horizon=600,
        k=5,
        update="reinforce",
        learning_rate=rate,
        learning_rate_milestones=(30, 80),
        learning_rate_decay=0.5,
        trunk=(512, 256),
        adapter=256,
        own_rate=None,
        activation="relu",
        initial_sigma=0.37,
        normalise_observations=False,
    )


def quick(env: str, agents: int) -> PretrainConfig:
    """About three minutes on two cores."""
    if find_id(env) == IDS["point-maze"]:
        return point_maze(env, agents)
    config = PretrainConfig(env=env, agents=agents, own_rate=min(OWN_RATE, OWN_RATES_IN_ALL / agents))
    return ant(config) if find_id(env) in IDS.values() else config


def ant(config: PretrainConfig) -> PretrainConfig:
    """Several Ants have their directions from the beginning.

    Environments of others have none: their first two features may be anything.
    """
    if find_id(config.env) != IDS["ant-cave"]:  # where it was no better
        config = replace(config, gae_lambda=0.9)
    if config.agents == 1:
        return config
    own_rate = min(OWN_RATE_WITH_COMPASS, OWN_RATES_WITH_COMPASS / config.agents)
    config = replace(config, compass=1.0, mirrors=True, diversity=0.5, own_rate=own_rate)
    if config.agents > 10:
        return many_ants(config)
    return replace(config, direction_rate=DIRECTION_RATE) if find_id(config.env) == IDS["ant-maze"] else config


def many_ants(config: PretrainConfig) -> PretrainConfig:
    """More than ten have too little to learn from each: nearly all is in common, in views where all have one way."""
    between_walls = find_id(config.env) == IDS["ant-maze"]  # straight on is not far there
    return replace(
        config,
        turns=True,
        diversity=0.5 if between_walls else 1.0,
        gae_lambda=0.8,
        initial_sigma=0.14,
        own_adapters=False,
    )


def point_maze(env: str, agents: int) -> PretrainConfig:
    """For a ball, within three minutes on two cores.

    It needs no practice to roll: agents have nothing to learn in common and may start with much noise. As noise alone
    takes them anywhere, they want larger samples and smaller updates, or they chase each other round the maze.
    """
    return PretrainConfig(
        env=env,
        # Its control step is 0.01 s: without decimation the ball hardly leaves its cell in an episode.
        env_settings={"decimation": 5},
        agents=agents,
        epochs=120,
        own_rate=1.0,
        initial_sigma=0.6,
        diversity=0.3,
        gamma=0.97,
        target_kl=0.02,
    )


def desk(env: str, agents: int) -> PretrainConfig:
    """About a quarter of an hour on two cores: the paper's horizon."""
    config = replace(quick(env, agents), horizon=600)
    if find_id(env) == IDS["point-maze"]:  # a longer episode shows a ball nothing new
        return replace(config, epochs=config.epochs * 5)
    return replace(config, replicas=even_split(200, agents), epochs=config.epochs * 5 // 2, k=15)


def jumpstart_quick(init: Init) -> JumpstartConfig:
    """About five minutes on two cores: two million steps."""
    return JumpstartConfig(init=init)


def jumpstart_paper(init: Init) -> JumpstartConfig:
    """The paper's PPO table: ten million steps of whole horizons, gentler where there is something to forget.

    Its minibatches of 64 x replicas are a tenth of an epoch of 600 steps.
    """
    fresh = init == "random"
    return JumpstartConfig(
        init=init,
        replicas=300,
        segment=600,
        horizon=600,
        epochs=56,
        warm_up=1 if fresh else 5,
        learning_rate=1e-5,
        critic_learning_rate=3e-4,
        gamma=0.99,
        gae_lambda=0.95,
        critic_passes=0,
        clip=0.2 if fresh else 0.15,
        passes=10 if fresh else 3,
        minibatches=10,
        target_kl=None,
        entropy_bonus=0.001 if fresh else 0.0,
        largest_gradient=0.5,
        critic=(256, 256),
    )


JUMPSTART_PRESETS = {"quick": jumpstart_quick, "paper": jumpstart_paper}


def jumpstart_preset(name: str, init: str) -> JumpstartConfig:
    """The settings of a named preset for a way to start."""
    check_choice("preset", name, tuple(JUMPSTART_PRESETS))
    check_choice("init", init, get_args(Init))
    return JUMPSTART_PRESETS[name](cast(Init, init))


PRESETS = {"quick": quick, "desk": desk, "paper": paper}


def preset(name: str, env: str, agents: int) -> PretrainConfig:
    """The settings of a named preset for a world and a number of agents."""
    check_choice("preset", name, tuple(PRESETS))
    return PRESETS[name](env, agents)
