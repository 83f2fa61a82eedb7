"""A run's population on fresh whole episodes: measured, and kept in the run's folder for figures and pages."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kmyriad.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from kmyriad.config import config_from, even_split
from kmyriad.envs.replicas import make_replicas
from kmyriad.evaluation import measure, visit
from kmyriad.rollout import Visits
from kmyriad.runs import Run
from kmyriad.training_state import load_newest

EPISODES = 300
"""Of all heads together."""
SEED = 12_345
"""Unlike any training run's: the episodes are fresh."""


@dataclass(frozen=True)
class Evaluation:
    visits: Visits
    """(m, p, T, ...), whole episodes from their start."""
    measures: dict[str, Any]
    """What `evaluation.measure` tells, with the epoch and env_steps of the checkpoint that was looked at."""


def evaluate(run: Run, episodes: int = EPISODES, seed: int = SEED, threads: int | None = None) -> Evaluation:
    """Let the newest good checkpoint play about `episodes` episodes, measure them, keep both with the run."""
    config = config_from(run.config)
    if threads is not None:
        torch.set_num_threads(threads)
    population, facts = load_newest(run)
    replicas = make_replicas(
        config.env,
        even_split(episodes, population.agents),
        horizon=config.horizon,
        features=config.features,
        settings=config.env_settings,
        threads=threads,
    )
    visits = visit(population, replicas, config.horizon, seed)
    replicas.close()
    measures = {name: facts[name] for name in ("epoch", "env_steps")} | {"seed": seed, "features": [*replicas.features]}
    evaluation = Evaluation(visits, measures | measure(visits, replicas.cell, seed))
    arrays = {name: array for name, array in vars(visits).items() if array is not None}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_checkpoint(run.evaluation_path, Checkpoint(tensors, evaluation.measures))
    return evaluation


def stored_evaluation(run: Run) -> Evaluation | None:
    """The last evaluation of the run, None if there is none."""
    if not run.evaluation_path.exists():
        return None
    stored = read_checkpoint(run.evaluation_path)
    arrays = {name: tensor.numpy() for name, tensor in stored.tensors.items()}
    return Evaluation(Visits(arrays["features"], arrays.get("xy"), arrays["sound"]), stored.facts)
