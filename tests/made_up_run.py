"""Made-up runs whose answers are known, as if they had been trained and evaluated."""

import numpy as np
import torch

from kmyriad.config import JumpstartConfig, PretrainConfig, with_settings
from kmyriad.runs.run import append_metrics, create_run
from kmyriad.runs.tensor_file import TensorFile, write_tensor_file

STEPS = 60
SPEED = 0.19
"""Metres per step."""


def walks(headings, episodes=4, steps=STEPS, speeds=None):
    """(agents, episodes, steps, 2), straight ways from the origin along `headings`, degrees.

    These are one for each agent, or one for each agent and episode. `speeds`, metres per step, are one for each agent.
    """
    angle = np.deg2rad(np.array([np.broadcast_to(heading, episodes) for heading in headings]))
    speed = np.broadcast_to(SPEED if speeds is None else np.array(speeds)[:, None], angle.shape)
    ways = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * speed[..., None]
    return (ways[:, :, None] * np.arange(1, steps + 1)[:, None]).astype(np.float32)


def made_up_run(path, xy, env="ant-empty", entropies=(1.0, 2.5, 4.0), valid=None, **settings):
    """A run of as many agents as `xy` (m, p, T, 2) has, with stored episodes and no checkpoint."""
    agents, episodes, steps = xy.shape[:3]
    size = {"agents": agents, "replicas": agents * episodes, "horizon": steps, "rollout_steps": None}
    asked = {"env": env, "total_steps": 1000 * len(entropies), **size, **settings}
    run = create_run(path, with_settings(PretrainConfig(), asked))
    for iteration, entropy in enumerate(entropies, start=1):
        row = {"iteration": iteration, "env_steps": 1000 * iteration, "entropy": entropy, "particles": 500}
        append_metrics(run, row)
    valid = np.ones(xy.shape[:3], bool) if valid is None else valid
    measures = {
        "iteration": len(entropies),
        "entropy_per_agent": [1.5] * agents,
        "kl_between_agents": [2.0] * agents,
        "kl_floor": 0.5,
        "covered_cells": 10 * agents,
        "covered_cells_per_agent": [10] * agents,
    }
    tensors = {name: torch.from_numpy(array) for name, array in {"features": xy, "xy": xy, "valid": valid}.items()}
    write_tensor_file(run.evaluation_path, TensorFile(tensors, measures))
    return run


def made_up_jumpstart(path, **settings):
    """A jump-start whose success rate rises to 0.9."""
    asked = {"env": "ant-maze", "goal": (-4.0, -8.0), "horizon": 200, "source": "runs/maze", "total_steps": 5000}
    run = create_run(path, with_settings(JumpstartConfig(), asked | settings))
    for iteration in range(1, 11):
        success = None if iteration < 2 else (iteration - 1) / 10
        row = {"iteration": iteration, "env_steps": 500 * iteration, "success": success, "return": 1.0}
        append_metrics(run, row)
    return run
