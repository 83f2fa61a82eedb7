"""Several runs side by side: those that differ only in their seed make a group, with its means and 95 % intervals.

An interval is over independent runs, that is over seeds: what one seed did in several tasks is averaged first. Groups
are compared seed by seed.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kmyriad.checks import is_number
from kmyriad.config import JumpstartConfig, PretrainConfig, settings_of
from kmyriad.errors import UsageError, nearest_name
from kmyriad.evaluation.evaluate import Evaluation, current_evaluation
from kmyriad.evaluation.statistics import Mean, mean_of, smoothed
from kmyriad.runs.run import Run, open_run

FINAL_ROWS = 10
"""Iterations at the end of a jump-start whose success is averaged."""

HALF = 0.5
"""Smoothed success rate at which a task counts as learned."""

Values = Mapping[str, float | None]
"""One run's measures; None for what it does not have."""

Task = tuple[int, tuple[float, ...]]
"""A seed and the goal, which pretraining does not have."""

MAY_DIFFER = ("seed", "source", "goal", "total_steps", "threads", "checkpoint_every", "keep_checkpoints", "wandb")
"""Settings that make no other group: the steps that were really made are compared instead of those asked for."""

WORDS = {
    "update": {"actor_critic": "actor-critic", "reinforce": "REINFORCE", "trust_region": "trust region"},
    "init": {"best": "best agent", "single": "single policy", "random": "random start"},
}
"""Of values in labels, by setting."""


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
        """For people: what tells it from other groups of the same world."""
        return _joined({key: value for key, value in self.name.items() if key != "env"})

    @property
    def seeds(self) -> list[int]:
        """Each once. Runs of one seed, such as jump-starts to several goals, are no independent runs."""
        return sorted({run.config.run.seed for run in self.runs})

    def by_seed(self, measure: str) -> dict[int, float]:
        """The mean of each seed's runs; seeds of which a run lacks the measure are left out."""
        return _within_seeds(self._by_task(measure))

    def mean(self, measure: str) -> Mean | None:
        """Over the seeds that have this measure; None if none has."""
        return _mean(self.by_seed(measure))

    def minus(self, other: "Group", measure: str) -> dict[int, float]:
        """By seed, how much more this group has than another, over the tasks that both were given with that seed."""
        ours, theirs = self._by_task(measure), other._by_task(measure)
        both = [task for task in ours if task in theirs]
        return _within_seeds({task: _minus(ours[task], theirs[task]) for task in both})

    def as_json(self) -> dict[str, Any]:
        measures: dict[str, Any] = {}
        for measure in self.values[0]:
            mean = self.mean(measure)
            each = [values.get(measure) for values in self.values]
            measures[measure] = None if mean is None else {**vars(mean), "values": each}
        runs = {"runs": [str(run.given) for run in self.runs], "seeds": [run.config.run.seed for run in self.runs]}
        return {**self.name, **runs, "measures": measures, "doubts": self.doubts}

    def _by_task(self, measure: str) -> dict[Task, float | None]:
        """The mean over the runs of one seed and goal, of which there should be one; None if one lacks the measure."""
        found: dict[Task, list[float | None]] = {}
        for run, values in zip(self.runs, self.values, strict=True):
            found.setdefault(_task(run), []).append(values.get(measure))
        return {task: _mean_or_none(values) for task, values in found.items()}


@dataclass(frozen=True)
class Difference:
    """One group minus another of the same world, seed by seed."""

    first: Group
    second: Group

    def by_seed(self, measure: str) -> dict[int, float]:
        """Of the seeds that both groups have."""
        return self.first.minus(self.second, measure)

    def mean(self, measure: str) -> Mean | None:
        """With the 95 % interval of the mean over these seeds; None if there are none."""
        return _mean(self.by_seed(measure))

    def as_json(self) -> dict[str, Any]:
        measures: dict[str, Any] = {}
        for measure in self.first.values[0]:
            mean, each = self.mean(measure), self.by_seed(measure)
            by_seed = {str(seed): value for seed, value in each.items()}
            measures[measure] = None if mean is None else {**vars(mean), "by_seed": by_seed}
        return {"first": self.first.name, "second": self.second.name, "measures": measures}


@dataclass(frozen=True)
class Comparison:
    pretraining: list[Group]
    jumpstarts: list[Group]

    @property
    def pretraining_differences(self) -> list[Difference]:
        """Between any two groups of the same world."""
        return _differences(self.pretraining)

    @property
    def jumpstart_differences(self) -> list[Difference]:
        """Between any two groups of the same world."""
        return _differences(self.jumpstarts)

    def as_json(self) -> dict[str, Any]:
        names = ("pretraining", "jumpstarts", "pretraining_differences", "jumpstart_differences")
        return {name: [one.as_json() for one in getattr(self, name)] for name in names}


def compare(
    runs: Sequence[Run | str | Path],
    evaluation_of: Callable[[Run], Evaluation] = current_evaluation,
    by: Sequence[str] = (),
) -> Comparison:
    """Pretraining runs by environment, update rule, number of agents and priors; jump-starts by environment and init.

    Runs that differ in a setting named in `by` are in different groups too. Of a jump-start, settings that it does not
    have itself are those of the run it started from.
    """
    opened = [open_run(run) for run in runs]
    paths = [run.path.resolve() for run in opened]
    for run, path in zip(opened, paths, strict=True):
        if paths.count(path) > 1:
            raise UsageError(f"{run.given} is named twice; name every run once")
    by = [name.replace("-", "_") for name in by]
    _check_known(by, opened)
    pretraining, jumpstarts = (
        [run for run in opened if (run.command == "jumpstart") is is_jumpstart] for is_jumpstart in (False, True)
    )

    def look(run: Run) -> tuple[Values, str]:
        evaluation = evaluation_of(run)
        return pretraining_values(evaluation), priors_of(evaluation)

    told = {run.path: look(run) for run in pretraining}
    return Comparison(
        _grouped(
            pretraining,
            lambda run: {
                "env": world_name(run),
                "update": run.pretraining.rule,
                "agents": run.pretraining.population.agents,
                "priors": told[run.path][1],
                **_asked(run, by),
            },
            lambda run: told[run.path][0],
            ("env_steps", "episodes"),
        ),
        _grouped(
            jumpstarts,
            lambda run: {"env": world_name(run), "init": run.jumpstart.start.init, **_asked(run, by)},
            jumpstart_values,
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


def priors_of(evaluation: Evaluation) -> str:
    """What agents were told of the robot: names of its symmetries, `none`, or nothing where it was not written down."""
    names = evaluation.measures.get("priors")
    return "" if names is None else ", ".join(names) or "none"


def jumpstart_values(run: Run | str | Path) -> Values:
    """From a run's metrics: success at the end, its mean over the steps (area under the curve), steps to one half.

    The area begins with no success at step 0, so that the steps of selection and warm-up are paid for.
    """
    run = open_run(run)
    rows = [(row["env_steps"], row["success"]) for row in run.metrics() if row.get("success") is not None]
    if not rows:
        raise UsageError(f"{run.given} has no success rates yet; let it train for an episode first")
    steps, success = np.array(rows, np.float64).T
    trapezoids = np.diff(steps, prepend=0.0) * (success + np.array([0.0, *success[:-1]])) / 2
    half = np.flatnonzero(np.array(smoothed(success.tolist())) >= HALF)
    return {
        "final_success": float(success[-FINAL_ROWS:].mean()),
        "area": float(trapezoids.sum() / steps[-1]),
        "steps_to_half": float(steps[half[0]]) if half.size else None,
        "env_steps": float(steps[-1]),
    }


def world_name(run: Run) -> str:
    """The environment with its settings, such as `point-maze map=u`."""
    return " ".join([run.env, *(f"{name}={value}" for name, value in sorted(run.env_settings.items()))])


def labels_of(groups: Sequence[Group]) -> list[str]:
    """A label for each group of one or several worlds: in words, and without what all of them have in common."""
    keys = {key for group in groups for key in group.name if key != "env"}
    telling = {key for key in keys if len({str(group.name.get(key)) for group in groups}) > 1}
    return [
        _joined({key: value for key, value in group.name.items() if key in telling}) or group.label for group in groups
    ]


def steps_before_learning(run: Run) -> tuple[float, float]:
    """Environment steps after which a jump-start had selected its agent, and after which its policy began to learn."""
    rows, config = run.metrics(), run.jumpstart
    per_iteration = config.rollouts.steps_per_iteration
    selected = max(0, rows[0]["env_steps"] - per_iteration) if rows else 0
    return selected, selected + config.start.critic_warm_up * per_iteration


def _joined(name: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (_words(key, value) for key, value in name.items())))


def _words(key: str, value: Any) -> str:
    if key == "agents":
        return "1 agent" if value == 1 else f"{value} agents"
    if key == "priors":
        return "no priors" if value == "none" else value and f"told of {value}"
    return WORDS[key].get(value, str(value)) if key in WORDS else f"{key.replace('_', ' ')} {value}"


def _task(run: Run) -> Task:
    config = run.config
    return config.run.seed, () if isinstance(config, PretrainConfig) else config.task.goal


def _within_seeds(by_task: Mapping[Task, float | None]) -> dict[int, float]:
    seeds: dict[int, list[float | None]] = {}
    for (seed, _), value in sorted(by_task.items(), key=lambda entry: entry[0]):
        seeds.setdefault(seed, []).append(value)
    means = {seed: _mean_or_none(values) for seed, values in seeds.items()}
    return {seed: mean for seed, mean in means.items() if mean is not None}


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _mean(by_seed: Mapping[int, float]) -> Mean | None:
    return mean_of([*by_seed.values()]) if by_seed else None


def _differences(groups: Sequence[Group]) -> list[Difference]:
    pairs = itertools.combinations(groups, 2)
    return [Difference(first, second) for first, second in pairs if first.name["env"] == second.name["env"]]


def _check_known(by: Sequence[str], runs: Sequence[Run]) -> None:
    known = sorted({name for run in runs for name in _settings(run)} - {"seed", "source"})
    for name in by:
        if name not in known:
            raise UsageError(f"--by takes names of settings; there is no {name!r}{nearest_name(name, known)}")


def _asked(run: Run, by: Sequence[str]) -> dict[str, Any]:
    settings = _settings(run)
    return {name: settings.get(name) for name in by if name != "env"}


def _settings(run: Run) -> dict[str, Any]:
    """By name; of a jump-start on top of those of its source, where that is still there."""
    settings = settings_of(run.config)
    if not isinstance(run.config, JumpstartConfig):
        return settings
    try:
        return settings_of(open_run(run.config.start.source).config) | settings
    except UsageError:
        return settings


def _grouped(
    runs: Sequence[Run],
    name_of: Callable[[Run], dict[str, Any]],
    values_of: Callable[[Run], Values],
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
        told = [settings_of(run.config) for run in members]
        names = [setting for setting in told[0] if setting not in MAY_DIFFER]
        differing = {setting: [one[setting] for one in told] for setting in names}
        differing |= {measure: [row[measure] for row in values] for measure in same_values}
        groups.append(Group(name, members, values, _doubts(differing) + _doubts_about_seeds(members)))
    return groups


def _doubts(told: Mapping[str, Sequence[Any]]) -> list[str]:
    differing = {name: sorted(set(map(_plain, values))) for name, values in told.items()}
    return [f"its runs differ in {name}: {', '.join(values)}" for name, values in differing.items() if values[1:]]


def _doubts_about_seeds(runs: Sequence[Run]) -> list[str]:
    doubts = []
    if len({_task(run) for run in runs}) < len(runs):
        doubts.append("some of its runs have the same seed")
    sources = [run.config.start.source for run in runs if isinstance(run.config, JumpstartConfig)]
    is_pretrained = isinstance(runs[0].config, JumpstartConfig) and runs[0].config.start.init != "random"
    if is_pretrained and len({run.config.run.seed for run in runs}) > 1 and len(set(sources)) == 1 and sources[0]:
        doubts.append("all of its seeds start from one pretraining run, so its intervals are about that run alone")
    return doubts


def _plain(value: Any) -> str:
    return f"{value:,.0f}" if is_number(value) and value == int(value) else str(value)
