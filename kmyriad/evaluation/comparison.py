"""Several runs side by side: those that differ only in their seed make a group, with its means and 95 % intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kmyriad.config import settings_of
from kmyriad.errors import UsageError
from kmyriad.evaluation.evaluate import Evaluation, current_evaluation
from kmyriad.evaluation.statistics import Mean, mean_of, smoothed
from kmyriad.runs.run import Run, open_run

FINAL_ROWS = 10
"""Iterations at the end of a jump-start whose success is averaged."""

HALF = 0.5
"""Smoothed success rate at which a task counts as learned."""

Values = Mapping[str, float | None]
"""One run's measures; None for what it does not have."""


@dataclass(frozen=True)
class Group:
    name: dict[str, Any]
    """What its runs have in common, such as env, update and agents."""
    runs: list[Run]
    values: list[Values]
    """Of each run."""
    doubts: list[str]
    """Sentences about what makes its means questionable."""

    @property
    def label(self) -> str:
        """For legends: what tells it from other groups of the same world."""
        words = {"agents": "{} agents"}
        return ", ".join(words.get(key, "{}").format(value) for key, value in self.name.items() if key != "env")

    def mean(self, measure: str) -> Mean | None:
        """Over the runs that have this measure; None if none has."""
        known = [value for values in self.values if (value := values.get(measure)) is not None]
        return mean_of(known) if known else None

    def as_json(self) -> dict[str, Any]:
        measures: dict[str, Any] = {}
        for measure in self.values[0]:
            mean = self.mean(measure)
            each = [values.get(measure) for values in self.values]
            measures[measure] = None if mean is None else {**vars(mean), "values": each}
        return {**self.name, "runs": [str(run.path) for run in self.runs], "measures": measures, "doubts": self.doubts}


@dataclass(frozen=True)
class Comparison:
    pretraining: list[Group]
    jumpstarts: list[Group]

    def as_json(self) -> dict[str, Any]:
        return {name: [group.as_json() for group in groups] for name, groups in vars(self).items()}


def compare(
    runs: Sequence[Run | str | Path], evaluation_of: Callable[[Run], Evaluation] = current_evaluation
) -> Comparison:
    """Pretraining runs by environment, update rule and number of agents; jump-starts by environment and init."""
    opened = [open_run(run) for run in runs]
    paths = [run.path.resolve() for run in opened]
    for run, path in zip(opened, paths, strict=True):
        if paths.count(path) > 1:
            raise UsageError(f"{run.path} is named twice; name every run once")
    pretraining, jumpstarts = (
        [run for run in opened if (run.command == "jumpstart") is is_jumpstart] for is_jumpstart in (False, True)
    )
    return Comparison(
        _grouped(
            pretraining,
            lambda run: {
                "env": world_name(run),
                "update": run.pretraining.rule,
                "agents": run.pretraining.population.agents,
            },
            lambda run: pretraining_values(evaluation_of(run)),
            ("horizon", "features"),
            ("env_steps", "episodes"),
        ),
        _grouped(
            jumpstarts,
            lambda run: {"env": world_name(run), "init": run.jumpstart.start.init},
            jumpstart_values,
            ("horizon",),
            ("env_steps",),
        ),
    )


def pretraining_values(evaluation: Evaluation) -> Values:
    """What counts of an evaluation."""
    measures = evaluation.measures
    kl = measures.get("kl_between_agents")
    agents, episodes, _ = evaluation.visits.valid.shape
    return {
        "entropy": measures["entropy"],
        "kl_between_agents": None if kl is None else float(np.mean(kl)),
        "kl_floor": measures.get("kl_floor"),
        "covered_cells": measures.get("covered_cells"),
        "env_steps": measures["env_steps"],
        "episodes": agents * episodes,
    }


def jumpstart_values(run: Run | str | Path) -> Values:
    """From a run's metrics: success at the end, its mean over the steps (area under the curve), steps to one half.

    The area begins with no success at step 0, so that the steps of selection and warm-up are paid for.
    """
    run = open_run(run)
    rows = [(row["env_steps"], row["success"]) for row in run.metrics() if row.get("success") is not None]
    if not rows:
        raise UsageError(f"{run.path} has no success rates yet; let it train for an episode first")
    steps, success = np.array(rows, np.float64).T
    half = np.flatnonzero(np.array(smoothed(success.tolist())) >= HALF)
    return {
        "final_success": float(success[-FINAL_ROWS:].mean()),
        "area": float(np.trapezoid([0.0, *success], [0.0, *steps]) / steps[-1]),
        "steps_to_half": float(steps[half[0]]) if half.size else None,
        "env_steps": float(steps[-1]),
    }


def world_name(run: Run) -> str:
    """The environment with its settings, such as `point-maze map=u`."""
    return " ".join([run.env, *(f"{name}={value}" for name, value in sorted(run.env_settings.items()))])


def _grouped(
    runs: Sequence[Run],
    name_of: Callable[[Run], dict[str, Any]],
    values_of: Callable[[Run], Values],
    same_settings: tuple[str, ...],
    same_values: tuple[str, ...],
) -> list[Group]:
    """Groups in the order of their names."""
    found: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        name = name_of(run)
        found.setdefault(repr(name), (name, []))[1].append(run)
    groups = []
    for name, members in sorted(found.values(), key=lambda group: [str(value).zfill(8) for value in group[0].values()]):
        values = [values_of(run) for run in members]
        told = {setting: [settings_of(run.config).get(setting) for run in members] for setting in same_settings}
        told |= {measure: [row[measure] for row in values] for measure in same_values}
        groups.append(Group(name, members, values, _doubts(told, [_seed(run) for run in members])))
    return groups


def _doubts(told: Mapping[str, Sequence[Any]], seeds: Sequence[str]) -> list[str]:
    differing = {name: sorted(set(map(_plain, values))) for name, values in told.items()}
    doubts = [f"its runs differ in {name}: {', '.join(values)}" for name, values in differing.items() if values[1:]]
    if len(set(seeds)) < len(seeds):
        doubts.append("some of its runs have the same seed")
    return doubts


def _seed(run: Run) -> str:
    """Jump-starts to other goals, or from other runs, count as other seeds."""
    settings = settings_of(run.config)
    return str([settings.get(name) for name in ("seed", "goal", "source")])


def _plain(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
