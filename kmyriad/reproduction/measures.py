"""What finished runs tell: numbers per seed, from fresh episodes and from their metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.evaluation.evaluate import Evaluation, current_evaluation
from kmyriad.objective.entropy import knn_entropy, weighted_knn_entropy
from kmyriad.objective.neighbours import nearest_neighbours
from kmyriad.reproduction.plan import AGENTS, LONGER, SIZES, Size, budget_run, run_name
from kmyriad.reproduction.verdicts import BUDGETS, WORLDS
from kmyriad.runs.run import Run, open_run

NEIGHBOURS = 5
"""Of the classifier of agents."""

FINAL_ROWS = 3
"""Updates at the end of a run whose entropy is averaged."""

Numbers = dict[str, dict[int, float]]


def facts_of(folder: Path, size: Size) -> Numbers:
    """Everything that the finished runs in `folder` tell about the claims."""
    facts: Numbers = {"weighted_error": {0: weighted_error()}}
    for seed in SIZES[size].seeds:
        for world in WORLDS:
            _populations(facts, folder, size, world, seed)
        for budget in BUDGETS:
            _put(facts, f"budget/{budget}", seed, _final_entropy(folder / budget_run(size, budget, seed)))
        for agents in AGENTS:
            path = folder / run_name("ant-empty", agents, seed, "long")
            _put(facts, f"long_fifth/{agents}", seed, _entropy_at(path, 1 / LONGER))
            _put(facts, f"long_end/{agents}", seed, _entropy_at(path, 1.0))
    return facts


def evaluation_of(run: Run, size: Size) -> Evaluation:
    return current_evaluation(run, threads=1, episodes=SIZES[size].episodes)


def finished(path: Path) -> Run | None:
    """The run in a folder, None if there is none that has made all of its steps."""
    run = open_run(path) if (path / "config.json").exists() else None
    return run if run is not None and run.is_finished else None


def _populations(facts: Numbers, folder: Path, size: Size, world: str, seed: int) -> None:
    names = {str(agents): run_name(world, agents, seed) for agents in AGENTS}
    names["50-one-rate"] = run_name(world, 50, seed, "one-rate")
    runs = {name: run for name, path in names.items() if (run := finished(folder / path)) is not None}
    curves = {name: _entropies(run) for name, run in runs.items()}
    mark = min((float(ys[-FINAL_ROWS:].mean()) for _, ys in curves.values()), default=0.0)
    for name, run in runs.items():
        steps, entropies = curves[name]
        there = np.flatnonzero(entropies >= mark)
        _put(facts, f"steps/{world}/{name}", seed, float(steps[there[0]]) if there.size else None)
        rows = run.metrics()
        _put(facts, f"rate/{world}/{name}", seed, float(np.mean([row["steps_per_second"] for row in rows])))
        measures = evaluation_of(run, size).measures
        _put(facts, f"entropy/{world}/{name}", seed, measures["entropy"])
        if "kl_between_agents" in measures:
            _put(facts, f"kl/{world}/{name}", seed, float(np.mean(measures["kl_between_agents"])))
            _put(facts, f"kl_floor/{world}/{name}", seed, measures["kl_floor"])
        if name == "10" and world == "ant-empty":
            visits = evaluation_of(run, size).visits
            _put(facts, "accuracy/10", seed, accuracy(visits.xy[:, :, -1], visits.valid[:, :, -1]))


def accuracy(ends: NDArray[np.float32], valid: NDArray[np.bool_]) -> float | None:
    """How often the agent is told from where an episode ended, (m, p, 2), by its neighbours among the others' ends.

    Every episode is held out in turn. None where an agent has fewer than two.
    """
    agents, points = np.nonzero(valid)[0], ends[valid]
    if valid.sum(axis=1).min() < 2:
        return None
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    nearest = agents[np.argsort(apart, axis=1, kind="stable")[:, :NEIGHBOURS]]
    told = np.array([np.bincount(row, minlength=len(valid)).argmax() for row in nearest])
    return float((told == agents).mean())


def weighted_error() -> float:
    """Claim 15: how far the weighted form is from Eq. 1 when every weight is 1, on a fixed cloud of points."""
    points = np.random.default_rng(0).normal(size=(500, 3))
    weighted = weighted_knn_entropy(torch.zeros(500, dtype=torch.float64), nearest_neighbours(points, 5), 3)
    return abs(float(weighted) - knn_entropy(points, 5))


def _entropies(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = [(row["env_steps"], row["entropy"]) for row in run.metrics() if row.get("entropy") is not None]
    steps, entropies = np.array(rows, np.float64).reshape(-1, 2).T
    return steps, entropies


def _final_entropy(path: Path) -> float | None:
    return _entropy_at(path, 1.0)


def _entropy_at(path: Path, part: float) -> float | None:
    """The entropy that a run had after a part of its steps."""
    run = finished(path)
    if run is None:
        return None
    steps, entropies = _entropies(run)
    last = int(np.searchsorted(steps, part * steps[-1] - 0.5)) + 1
    return float(entropies[max(0, last - FINAL_ROWS) : last].mean())


def _put(facts: Numbers, name: str, seed: int, value: Any) -> None:
    if value is not None and np.isfinite(value):
        facts.setdefault(name, {})[seed] = float(value)
