"""Runs of all kinds whose policies were never trained but have every part filled with numbers: made in a moment."""

import numpy as np
import torch

from kmyriad.config import JumpstartConfig, PretrainConfig, with_settings
from kmyriad.population.network import Critic
from kmyriad.population.normaliser import Normaliser
from kmyriad.presets import preset
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.checkpoints import checkpoint_path
from kmyriad.runs.run import create_run
from kmyriad.runs.state import TrainingState
from kmyriad.runs.tensor_file import write_tensor_file
from kmyriad.training.pretrain import fresh_population
from tests import walk_env

walk_env.register()
SMALL = {"trunk_hidden": (24, 16), "agent_hidden": 8, "horizon": 20}
CASES = {
    "mirrors": with_settings(preset("quick", "ant-empty", 4), SMALL),
    "mirrors and turns": with_settings(preset("quick", "ant-empty", 12), SMALL),
    "the paper's": with_settings(preset("paper", "point-maze", 4), SMALL),
    "own range": with_settings(PretrainConfig(), {"env": walk_env.CONTINUOUS, "agents": 2, **SMALL}),
    "discrete": with_settings(PretrainConfig(), {"env": walk_env.DISCRETE, "agents": 2, **SMALL}),
    "discrete, as it is": with_settings(
        PretrainConfig(), {"env": walk_env.DISCRETE, "agents": 2, "normalise_observations": False, **SMALL}
    ),
    "discrete, two choices": with_settings(PretrainConfig(), {"env": walk_env.CHOICES, "agents": 2, **SMALL}),
    "discrete, bits": with_settings(PretrainConfig(), {"env": walk_env.BITS, "agents": 2, **SMALL}),
}
"""With and without normaliser, mirrors, turns and layers of one's own."""


def filled(config, seed=0):
    """A population as `config` asks for, with random numbers in all its parts."""
    world = config.world
    replicas = make_replicas(world.env, 1, horizon=world.horizon, settings=world.env_settings, threads=1)
    replicas.close()
    population, generator = fresh_population(config, replicas), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in population.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    if isinstance(population.normaliser, Normaliser):
        population.normaliser.mean += torch.randn(population.observation_size, generator=generator)
        population.normaliser.variance *= 1 + torch.rand(population.observation_size, generator=generator)
    return population


def untrained_run(path, config, seed=0):
    """A pretraining run with one checkpoint."""
    run = create_run(path, config)
    population = filled(config, seed)
    state = TrainingState(population, torch.optim.Adam(population.parameters()), iteration=1, env_steps=1000)
    write_tensor_file(checkpoint_path(run.checkpoints, 1), state.checkpoint(None))
    return run


def untrained_jumpstart(path, goal=(1.0, -2.0), env="point-maze", top=1, **settings):
    """A jump-start with a checkpoint and a critic."""
    asked = {"env": env, "goal": goal, "horizon": 20, "source": "runs/x", "critic_hidden": (16, 8), "top": top}
    asked |= {"rollout_steps": 10}
    config = with_settings(JumpstartConfig(), asked | settings)
    run = create_run(path, config)
    population = filled(with_settings(PretrainConfig(), {"env": env, "agents": top, **SMALL})).select(range(top))
    critic = Critic(top, population.observation_size, (16, 8))
    optimizer = torch.optim.Adam([*population.parameters(), *critic.parameters()])
    state = TrainingState(population, optimizer, critic, iteration=1, env_steps=1000)
    write_tensor_file(checkpoint_path(run.checkpoints, 1), state.checkpoint(None))
    return run


def close(ours, theirs, limit=1e-5):
    """Whether numbers agree to `limit`, relative to those that are larger than 1."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    assert np.isfinite(theirs).all()
    return float((abs(ours - theirs) / np.maximum(1, abs(ours))).max()) < limit
