"""A run's population on fresh whole episodes: measured, and kept in the run's folder for figures and pages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kmyriad.checks import is_number
from kmyriad.config import JumpstartConfig, PretrainConfig, even_split
from kmyriad.envs import WORLDS, short_name
from kmyriad.envs.make import make_world
from kmyriad.envs.plane import Plane, plane_of_world
from kmyriad.envs.world import World
from kmyriad.evaluation.measures import measure, pairs_of_agents, visit
from kmyriad.objective.scale import scaled_visits
from kmyriad.population.population import Population
from kmyriad.processes import device_here
from kmyriad.rollout.collect import Trajectory, Visits, collect
from kmyriad.rollout.randomness import generator
from kmyriad.rollout.replicas import make_replicas
from kmyriad.rollout.task import task_of
from kmyriad.runs.checkpoints import newest_checkpoint
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.state import load_newest, visits_from
from kmyriad.runs.tensor_file import CheckpointError, TensorFile, write_tensor_file

EPISODES = 300
"""Of all agents together."""
SEED = 12_345
"""Unlike any training run's: the episodes are fresh."""


@dataclass(frozen=True)
class Evaluation:
    visits: Visits
    """(m, p, T, ...), whole episodes from their start."""
    measures: dict[str, Any]
    """What `evaluation.measure` tells, `kl_pairs` of `evaluation.pairs_of_agents` where there are any, the iteration
    and env_steps of the checkpoint that was looked at, and `priors`, names of the symmetries that agents see."""


def evaluate(
    run: Run | str | Path, episodes: int = EPISODES, seed: int = SEED, threads: int | None = None, *, keep: bool = True
) -> Evaluation:
    """Let the newest good checkpoint play about `episodes` episodes and measure them; with `keep`, store both."""
    run = open_run(run)
    world = run.pretraining.world
    if threads is not None:
        torch.set_num_threads(threads)
    population, facts = load_newest(run)
    replicas = make_replicas(
        world.env,
        even_split(episodes, population.agents),
        horizon=world.horizon,
        features=world.features,
        settings=world.env_settings,
        threads=threads,
        engine=world.engine,
        device=device_here(run.config.run.device),
    )
    visits = visit(population, replicas, world.horizon, seed)
    replicas.close()
    measures = {name: facts[name] for name in ("iteration", "env_steps")}
    measures |= {"seed": seed, "features": [*replicas.features], "cell": [*replicas.cell]}
    measures["cell_words"] = replicas.plane.cell_words
    measures["priors"] = [] if population.frames is None else replicas.symmetry_names
    measures |= measure(visits, replicas.cell, seed, world.feature_scale)
    pairs = pairs_of_agents(scaled_visits(visits, world.feature_scale)[0], generator(seed, 1))
    if pairs is not None:
        measures["kl_pairs"] = pairs.tolist()
    if keep:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in vars(visits).items()}
        write_tensor_file(run.evaluation_path, TensorFile(tensors, measures))
    return Evaluation(visits, measures)


def play(
    run: Run | str | Path,
    episodes: int = 50,
    seed: int = SEED,
    threads: int | None = None,
    population: Population | None = None,
) -> Trajectory:
    """Fresh whole episodes of a run's newest policies, or of `population`: in its world, or on a jump-start's task."""
    run = open_run(run)
    population, horizon = population or load_newest(run)[0], run.config.rollouts.horizon
    count = even_split(episodes, population.agents)
    if isinstance(run.config, JumpstartConfig):
        replicas = task_of(run.config).replicas(count, threads)
    else:
        world = run.config.world
        replicas = make_replicas(
            run.env,
            count,
            horizon=horizon,
            features=world.features,
            settings=run.env_settings,
            threads=threads,
            engine=world.engine,
            device=device_here(run.config.run.device),
        )
    replicas.start(seed)
    trajectory = collect(replicas, population, horizon, seed, iteration=0)
    replicas.close()
    return trajectory


def stored_evaluation(run: Run) -> Evaluation | None:
    """The last evaluation of the run, None if there is none; CheckpointError if it is malformed."""
    if not run.evaluation_path.exists():
        return None
    visits, measures = visits_from(run.evaluation_path)
    for name, value in measures.items():
        if not _is_measure(name, value, len(visits.valid)):
            raise CheckpointError(f"{run.evaluation_path} is malformed: its {name} is no such measure; remove it")
    return Evaluation(visits, measures)


def _is_measure(name: str, value: Any, agents: int) -> bool:
    """Whether a stored value can be what `measure` gives under that name."""
    if name == "cell":
        return isinstance(value, list) and len(value) == 2 and all(is_number(side) and side > 0 for side in value)
    if name == "cell_words":
        return isinstance(value, str)
    if name in ("features", "priors"):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if name == "kl_pairs":
        rows = value if isinstance(value, list) else []
        return len(rows) == agents and all(_is_measure("row_per_agent", row, agents) for row in rows)
    if name.endswith("_per_agent") or name == "kl_between_agents":
        return isinstance(value, list) and len(value) == agents and all(v is None or is_number(v) for v in value)
    return is_number(value)


def current_evaluation(run: Run, threads: int | None = None, episodes: int | None = None) -> Evaluation:
    """The stored evaluation if it is of the newest good checkpoint and of enough episodes, else a new one.

    Enough are `episodes`, or the default number; a new one of fewer does not take the place of one of more. Without
    any checkpoint to play, what is stored will do.
    """
    try:
        stored = stored_evaluation(run)
    except CheckpointError as error:
        say(f"the stored evaluation is not used: {error}", style="yellow")
        stored = None
    newest = newest_checkpoint(run.checkpoints)
    is_current = stored is not None and (newest is None or stored.measures.get("iteration") == newest.iteration)
    agents, per_agent = stored.visits.valid.shape[:2] if stored is not None else (1, 0)
    asked = even_split(episodes or EPISODES, agents)
    keep = True
    if stored is not None and is_current:
        played = agents * per_agent
        if newest is None or ((played == asked) if episodes else played >= asked):
            return stored
        keep = asked >= played
    if newest is not None:
        say(f"playing fresh episodes of {run.given}")
    return evaluate(run, episodes or EPISODES, threads=threads, keep=keep)


def summary(run: Run, evaluation: Evaluation) -> dict[str, Any]:
    """All measures with what they were measured on, and means over the agents: plain JSON."""
    agents, episodes, horizon = evaluation.visits.valid.shape
    facts: dict[str, Any] = {
        "run": run.name,
        "env": run.env,
        "update": run.pretraining.rule,
        "agents": agents,
        "episodes": agents * episodes,
        "horizon": horizon,
    }
    means = {}
    for name in ("entropy_per_agent", "kl_between_agents", "covered_cells_per_agent"):
        values = [value for value in evaluation.measures.get(name, []) if value is not None]
        if values:
            means[f"{name}_mean"] = float(np.mean(values))
    return facts | evaluation.measures | means


def world_of(run: Run | str | Path) -> World | None:
    """The world of a run, to draw its ground; None for environments that have none to show."""
    run = open_run(run)
    name = short_name(run.env)
    return make_world(name, **run.env_settings) if name in WORLDS else None


def plane_of(run: Run | str | Path) -> Plane:
    """What maps of a run show: the ground of its world, or the first two features that it explores."""
    run = open_run(run)
    world = world_of(run)
    if world is not None:
        return plane_of_world(world)
    config = run.config
    features = config.world.features if isinstance(config, PretrainConfig) else config.task.features
    replicas = make_replicas(run.env, 1, horizon=1, features=features, settings=run.env_settings, engine="serial")
    replicas.close()
    return replicas.plane
