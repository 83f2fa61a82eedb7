"""A run's population on fresh whole episodes: measured, and kept in the run's folder for figures and pages."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kmyriad.config import config_from, even_split
from kmyriad.envs import IDS, find_id
from kmyriad.envs.vector_env import MujocoVectorEnv
from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.evaluation.measures import measure, pairs_of_heads, visit
from kmyriad.evaluation.statistics import mean_of
from kmyriad.rollout.collect import Visits
from kmyriad.rollout.randomness import generator
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_newest
from kmyriad.runs.tensor_file import Checkpoint, CheckpointError, newest_checkpoint, read_checkpoint, write_checkpoint

EPISODES = 300
"""Of all heads together."""
SEED = 12_345
"""Unlike any training run's: the episodes are fresh."""


@dataclass(frozen=True)
class Evaluation:
    visits: Visits
    """(m, p, T, ...), whole episodes from their start."""
    measures: dict[str, Any]
    """What `evaluation.measure` tells, `kl_pairs` of `evaluation.pairs_of_heads` where there are any, and the epoch and
    env_steps of the checkpoint that was looked at."""


def evaluate(run: Run, episodes: int = EPISODES, seed: int = SEED, threads: int | None = None) -> Evaluation:
    """Let the newest good checkpoint play about `episodes` episodes, measure them, keep both with the run."""
    if run.command != "pretrain":
        raise UsageError(f"{run.path} is a {run.command} run; only populations are evaluated, see kmyriad compare")
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
    measures |= measure(visits, replicas.cell, seed) | {"cell": replicas.cell}
    pairs = pairs_of_heads(visits, generator(seed, 1))
    if pairs is not None:
        measures["kl_pairs"] = pairs.tolist()
    evaluation = Evaluation(visits, measures)
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


def current_evaluation(run: Run, threads: int | None = None) -> Evaluation:
    """The stored evaluation if it is one of the newest good checkpoint, else a new one."""
    try:
        stored = stored_evaluation(run)
    except CheckpointError:  # damaged
        stored = None
    newest = newest_checkpoint(run.checkpoints)
    if stored is not None and newest is not None and stored.measures.get("epoch") == newest.epoch:
        return stored
    return evaluate(run, threads=threads)


def summary(run: Run, evaluation: Evaluation) -> dict[str, Any]:
    """All measures with what they were measured on, and means over the heads with their 95 % intervals: plain JSON."""
    heads, episodes, horizon = evaluation.visits.sound.shape
    facts: dict[str, Any] = {
        "run": run.name,
        "env": run.config["env"],
        "update": run.config.get("update"),
        "agents": heads,
        "episodes": heads * episodes,
        "horizon": horizon,
    }
    means = {}
    for name in ("entropy_per_head", "kl_between_heads", "covered_cells_per_head"):
        values = [value for value in evaluation.measures.get(name, []) if value is not None]
        if values:
            means[f"{name}_mean"] = vars(mean_of(values))
    return facts | evaluation.measures | means


def world_of(run: Run) -> World | None:
    """The world of a run, to draw its ground; None for environments that are not ours."""
    env = str(run.config["env"])
    if find_id(env) not in IDS.values():
        return None
    replicas = make_replicas(env, 1, horizon=1, settings=run.config.get("env_settings"), threads=1)
    replicas.close()
    assert isinstance(replicas.env, MujocoVectorEnv)
    return replicas.env.world
