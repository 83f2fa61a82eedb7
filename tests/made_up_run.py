"""Made-up runs whose answers are known, as if they had been trained and evaluated."""

import json

import numpy as np
import torch

from kmyriad.config import PretrainConfig
from kmyriad.runs.run import append_metrics, create_run
from kmyriad.runs.tensor_file import Checkpoint, write_checkpoint

STEPS = 60
SPEED = 0.19
"""Metres per step."""


def walks(headings, episodes=4, steps=STEPS, speeds=None):
    """(heads, episodes, steps, 2), straight ways from the origin along `headings` (degrees), (head) or (head, episode).

    Each head walks at its own of `speeds`, metres per step.
    """
    angle = np.deg2rad(np.array([np.broadcast_to(heading, episodes) for heading in headings]))
    speed = np.broadcast_to(SPEED if speeds is None else np.array(speeds)[:, None], angle.shape)
    ways = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * speed[..., None]
    return (ways[:, :, None] * np.arange(1, steps + 1)[:, None]).astype(np.float32)


def made_up_run(path, xy, env="ant-empty", entropies=(1.0, 2.5, 4.0), sound=None, **settings):
    """A run of as many heads as `xy` (m, p, T, 2) has, with stored episodes and no checkpoint."""
    heads, episodes, steps = xy.shape[:3]
    replicas = heads * episodes
    config = PretrainConfig(env=env, agents=heads, replicas=replicas, horizon=steps, epochs=len(entropies), **settings)
    run = create_run(path, config.as_json())
    for epoch, entropy in enumerate(entropies, start=1):
        append_metrics(run, {"epoch": epoch, "env_steps": 1000 * epoch, "entropy": entropy, "particles": 500})
    sound = np.ones(xy.shape[:3], bool) if sound is None else sound
    measures = {
        "epoch": len(entropies),
        "entropy_per_head": [1.5] * heads,
        "kl_between_heads": [2.0] * heads,
        "kl_floor": 0.5,
        "covered_cells": 10 * heads,
        "covered_cells_per_head": [10] * heads,
    }
    tensors = {name: torch.from_numpy(array) for name, array in {"features": xy, "xy": xy, "sound": sound}.items()}
    write_checkpoint(run.evaluation_path, Checkpoint(tensors, measures))
    return run


def made_up_jumpstart(path, **config):
    """A jump-start whose success rate rises to 0.9."""
    path.mkdir(parents=True)
    settings = {"command": "jumpstart", "env": "ant-maze", "env_settings": {}, "goal": [-4.0, -8.0], "init": "best"}
    (path / "config.json").write_text(json.dumps(settings | {"epochs": 10, "source": "runs/maze"} | config))
    rows = [
        {"epoch": epoch, "env_steps": 500 * epoch, "success": None if epoch < 2 else (epoch - 1) / 10, "return": 1.0}
        for epoch in range(1, 11)
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
