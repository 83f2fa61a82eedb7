"""Tuned settings, apart from the code that uses them."""

from dataclasses import replace

from kmyriad.config import PretrainConfig, even_split
from kmyriad.errors import UsageError, nearest_name

PAPER_LEARNING_RATES = {1: 2e-4, 10: 2e-4, 50: 5e-4}
"""The paper's Table 2: the rate by number of agents. Numbers in between take that of the next lower one."""


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
        activation="relu",
        initial_sigma=0.37,
        normalise_observations=False,
    )


def quick(env: str, agents: int) -> PretrainConfig:
    """About three minutes on two cores."""
    config = PretrainConfig(env=env, agents=agents)
    # The ball's control step is 0.01 s: without decimation it hardly leaves its cell in an episode.
    return replace(config, env_settings={"decimation": 5}) if env == "point-maze" else config


def desk(env: str, agents: int) -> PretrainConfig:
    """About a quarter of an hour on two cores: the paper's horizon, more replicas."""
    return replace(quick(env, agents), horizon=600, replicas=even_split(400, agents), epochs=1000)


PRESETS = {"quick": quick, "desk": desk, "paper": paper}


def preset(name: str, env: str, agents: int) -> PretrainConfig:
    """The settings of a named preset for a world and a number of agents."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}{nearest_name(name, PRESETS)}")
    return PRESETS[name](env, agents)
