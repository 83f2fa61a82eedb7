"""Many training runs side by side, one core each, and what their populations do afterwards on fresh rollouts.

Resumable: what is done is kept in a folder, what was interrupted goes on from its last checkpoint.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch

import kmyriad
from kmyriad.config import PretrainConfig, even_split
from kmyriad.evaluation.measures import measure, visit
from kmyriad.objective.rewards import Objective, rewards_of
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Visits
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.checkpoints import checkpoint_iterations
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population
from kmyriad.sweeps.conduct import Task, conduct
from kmyriad.sweeps.executors import Processes
from kmyriad.sweeps.sweep import CONTROL
from kmyriad.sweeps.table import SweepTable
from kmyriad.training.pretrain import fresh_population, pretrain_config

EVALUATION_REPLICAS, LAST_EVALUATION_REPLICAS = 100, 400
"""Episodes of every measurement, and of a second look at the last checkpoint: the KL between agents needs more. There
the agent that covers most goes out alone for as many episodes as all of them had."""
KL_EPISODES_PER_AGENT = 40
"""At least, in that second look: with 8 each, fifty agents that are alike would seem to differ by 2 nats."""
EVALUATION_SEED = 12_345
"""No training run uses it: the rollouts are fresh."""

Curve = list[dict[str, Any]]
"""Measures of the frozen population, one row per checkpoint."""

Result = TypeVar("Result")


def train_all(experiments: Mapping[str, dict[str, Any]], folder: Path, processes: int) -> dict[str, Curve]:
    """The curve of every experiment (a name and `kmyriad.pretrain`'s settings), `processes` at a time."""
    return side_by_side(train_one, experiments, folder, processes)


def side_by_side(
    experiment: Callable[[Path, dict[str, Any]], Result],
    settings: Mapping[str, dict[str, Any]],
    folder: Path,
    processes: int,
    known: Mapping[str, Result] = MappingProxyType({}),
) -> dict[str, Result]:
    """What `experiment(folder / name, its settings)` returns for every name, `processes` at a time, a core each.

    Settings and results are plain JSON. What an experiment says goes to a log in `folder/.sweep`. What is `known`, from
    a file that another machine wrote, is not made again.
    """
    tasks = [
        Task(name, "experiments:call", {"function": _name(experiment), "folder": str(folder / name), "settings": of_it})
        for name, of_it in settings.items()
        if name not in known
    ]
    with SweepTable({}) as table:
        conduct(tasks, Processes(processes), folder / CONTROL, 0, table.show)
    for task in tasks:
        if task.outcome.error is not None:
            raise kmyriad.TrainingStoppedError(f"{task.name} failed: {task.outcome.error}; run it again to go on")
    made = {task.name: task.outcome.value for task in tasks}
    return {name: known[name] if name in known else made[name] for name in settings}


def read_known(path: Path | None) -> dict[str, Any]:
    """`runs` of a file that a benchmark's `--json` wrote; empty without one."""
    if path is None:
        return {}
    runs: dict[str, Any] = json.loads(path.read_text())["runs"]
    return runs


def call(function: str, folder: str, settings: dict[str, Any]) -> Any:
    """Call an experiment by its name, in a process of its own."""
    module, name = function.split(":")
    return getattr(import_module(module), name)(Path(folder), settings)


def _name(experiment: Callable[..., Any]) -> str:
    """`module:name`, also of a function in the script that was started."""
    module = experiment.__module__
    if module == "__main__":
        module = Path(sys.argv[0]).stem
    return f"{module}:{experiment.__name__}"


def train_one(folder: Path, settings: dict[str, Any], objective: Objective = rewards_of) -> Curve:
    """Train on one core and measure every checkpoint; what a file already tells is not computed again."""
    done = folder / "curve.json"
    if done.exists():
        curve: Curve = json.loads(done.read_text())
        return curve
    settings = {"threads": 1, "keep_checkpoints": 10_000, **settings}
    run = kmyriad.pretrain(out=folder, resume=folder.exists(), objective=objective, **settings)
    curve = list(_measure_checkpoints(run))
    partial = done.with_suffix(".partial")
    partial.write_text(json.dumps(curve, indent=1) + "\n")
    os.replace(partial, done)
    return curve


def _measure_checkpoints(run: Run) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    config = run.pretraining
    rows = {row["iteration"]: row for row in run.metrics()}
    iterations = sorted(checkpoint_iterations(run.checkpoints))
    for iteration in iterations:
        trained = {name: rows[iteration][name] for name in ("iteration", "env_steps", "std")}
        population = load_population(run, iteration)
        row = trained | _measure(config, population, EVALUATION_REPLICAS)
        if iteration == iterations[-1]:
            row["last"] = _second_look(config, population)
        yield row


def _second_look(config: PretrainConfig, population: Population) -> dict[str, Any]:
    """More episodes, and those of the widest agent alone."""
    all_agents = alone = _measure(config, population, LAST_EVALUATION_REPLICAS)
    if population.agents > 1:
        widest = int(np.argmax(all_agents["covered_cells_per_agent"]))
        alone = _measure(config, population.select([widest]), LAST_EVALUATION_REPLICAS)
    row = all_agents | {"covered_cells_of_widest_agent": alone["covered_cells"]}
    if KL_EPISODES_PER_AGENT * population.agents > LAST_EVALUATION_REPLICAS:
        more = _measure(config, population, KL_EPISODES_PER_AGENT * population.agents)
        row |= {name: more[name] for name in ("kl_between_agents", "kl_floor")}
    return row


def heading_gap(visits: Visits) -> float | None:
    """The widest angle, in degrees, that no agent's mean last position is in, seen from where all begin.

    360: all go one way; 360 / m: evenly round. None for a single agent.
    """
    if len(visits.valid) < 2:
        return None
    last = visits.valid.shape[2] - 1 - visits.valid[:, :, ::-1].argmax(axis=2)  # (m, p), an episode's last step
    ends = np.take_along_axis(visits.xy, last[:, :, None, None], axis=2)[:, :, 0].mean(axis=1)
    x, y = (ends - visits.xy[:, :, 0].mean(axis=(0, 1))).T
    headings = np.sort(np.degrees(np.arctan2(y, x)))
    return float(np.diff(headings, append=headings[0] + 360).max())


def _measure(config: PretrainConfig, population: Population | None, episodes: int) -> dict[str, Any]:
    """In the world's own features, whatever the run was trained in."""
    visits, cell = fresh_visits(config, population, episodes, EVALUATION_SEED)
    return measure(visits, cell, EVALUATION_SEED, config.world.feature_scale) | {"heading_gap": heading_gap(visits)}


def entropy_of(config: PretrainConfig, population: Population | None) -> float:
    """Of fresh episodes, as at every checkpoint."""
    entropy: float = _measure(config, population, EVALUATION_REPLICAS)["entropy"]
    return entropy


def fresh_visits(
    config: PretrainConfig, population: Population | None, episodes: int, seed: int, features: tuple[str, ...] = ()
) -> tuple[Visits, tuple[float, float]]:
    """(what about so many new episodes visit, the world's cell), in these features or the world's own.

    Without a population, of the one that training begins with.
    """
    count = even_split(episodes, config.population.agents if population is None else population.agents)
    world = config.world
    replicas = make_replicas(
        world.env, count, horizon=world.horizon, features=features, settings=world.env_settings, threads=1
    )
    visits = visit(population or fresh_population(config, replicas), replicas, world.horizon, seed)
    replicas.close()
    return visits, replicas.cell


def iterations_of(settings: Mapping[str, Any]) -> int:
    """How many iterations `kmyriad.pretrain` makes with these settings."""
    settings = dict(settings)
    env, name, method = settings.pop("env"), settings.pop("preset", "quick"), settings.pop("method", None)
    config = pretrain_config(env, name, settings, method)
    return math.ceil(config.run.total_steps / config.rollouts.steps_per_iteration)
