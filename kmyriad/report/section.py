"""One run as plain JSON: all that its part of the page shows."""

import json
import math
from typing import Any

import numpy as np

from kmyriad.config import TaskConfig
from kmyriad.envs.plane import Plane
from kmyriad.evaluation.evaluate import Evaluation, current_evaluation, plane_of
from kmyriad.evaluation.statistics import smoothed
from kmyriad.figures.colours import agent_colour
from kmyriad.report.attempt import attempt
from kmyriad.report.attempts import pack_attempts
from kmyriad.report.ground import pack_ground, page_radius, page_scale
from kmyriad.report.paths import corners, pack_paths, settled
from kmyriad.report.words import jumpstart_summary, number, pretraining_summary
from kmyriad.runs.files import shell_path
from kmyriad.runs.run import Run

CURVE_POINTS = 2000
"""Points of a curve, at most."""

CONFIG_LETTERS = 20_000
"""Of a run's settings that a page shows, at most."""


def section_of(run: Run, episodes: int | None = None) -> dict[str, Any]:
    """What the page shows of `run`; `missing` has a sentence for each part that could not be had."""
    missing: list[str] = []
    rows = attempt("curve", run.metrics, missing) or []
    is_jumpstart = run.command == "jumpstart"
    curve = _curve(rows, ("success", "return") if is_jumpstart else ("entropy",), missing)
    parts = _jumpstart(run, rows, missing) if is_jumpstart else _population(run, rows, episodes, missing)
    return {
        "name": run.name,
        "kind": "jumpstart" if is_jumpstart else "pretraining",
        "settings": json.dumps(run.config.as_json(), indent=2)[:CONFIG_LETTERS],
        "curve": curve,
        **parts,
        "missing": missing,
    }


def _population(run: Run, rows: list[dict[str, Any]], episodes: int | None, missing: list[str]) -> dict[str, Any]:
    """Summary, agents and, where there are positions, ground, paths and the command to go on with."""
    evaluation = attempt("episodes to show", lambda: current_evaluation(run, episodes=episodes), missing)
    if evaluation is None:
        return {"summary": pretraining_summary(run.pretraining, rows)}
    plane = attempt("map", lambda: plane_of(run), missing)
    per_agent = evaluation.visits.valid.shape[1]
    section: dict[str, Any] = {
        "summary": pretraining_summary(run.pretraining, rows, evaluation.measures, per_agent, plane),
        "agents": _agents(evaluation),
        "kl_floor": number(evaluation.measures.get("kl_floor")),
        "episodes": per_agent,
    }
    if plane is None:
        return section
    paths = attempt("map", lambda: _paths(evaluation, plane), missing) or {}
    return section | paths | {"command": f"kmyriad jumpstart {shell_path(run.given)} --goal"}


def _jumpstart(run: Run, rows: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
    """Summary and, where there is one, the goal on its ground."""
    task = run.jumpstart.task
    section: dict[str, Any] = {"summary": jumpstart_summary(run.jumpstart, rows)}
    if not task.goal:
        return section
    plane = attempt("map", lambda: plane_of(run), missing)
    if plane is None:
        return section
    per, radius = np.array(page_scale(plane)), page_radius(plane, task.goal_radius)
    attempts = attempt("episodes to show", lambda: pack_attempts(run, plane, radius), missing) or []
    goal = _goal_on_page(task, plane)
    around = np.array([goal]) + radius * np.array([[-2, -2], [2, 2]])
    seen = [around, *(corners(one["paths"]) for one in attempts)]
    ground = attempt("map", lambda: pack_ground(plane, np.concatenate(seen) * per), missing)
    return section | {"ground": ground, "goal": [*goal], "goal_radius": radius, "attempts": attempts}


def _goal_on_page(task: TaskConfig, plane: Plane) -> list[float]:
    """Where the goal is on the map; a coordinate that it leaves open is that of the start."""
    names = task.goal_names or plane.names
    place = dict(zip(plane.names, plane.start, strict=False)) | dict(zip(names, task.goal, strict=False))
    on_map = [place[name] for name in plane.names] + [0.0]
    return [number / per for number, per in zip(on_map, page_scale(plane), strict=False)]


def _paths(evaluation: Evaluation, plane: Plane) -> dict[str, Any]:
    places, radius = settled(evaluation.visits, plane.start), page_radius(plane)
    return {
        "ground": pack_ground(plane, places.reshape(-1, 2)),
        "paths": pack_paths(evaluation.visits, plane, radius),
        "goal_radius": radius,
        "seconds_per_step": plane.seconds_per_step,
    }


def _agents(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A dict per agent: its colour and its numbers, None where there is none."""
    count = len(evaluation.visits.valid)
    names = {"entropy": "entropy_per_agent", "cells": "covered_cells_per_agent", "kl": "kl_between_agents"}
    columns = {name: evaluation.measures.get(key) or [None] * count for name, key in names.items()}
    return [
        {"colour": agent_colour(agent, count)} | {name: number(column[agent]) for name, column in columns.items()}
        for agent in range(count)
    ]


def _curve(rows: list[dict[str, Any]], names: tuple[str, ...], missing: list[str]) -> dict[str, Any] | None:
    """{"name", "x": environment steps, "y"} of the first of `names` that the rows have, None if they have none."""
    for name in names:
        pairs = [(number(row.get("env_steps")), number(row.get(name))) for row in rows]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        if name == "success":
            known = list(zip([x for x, _ in known], smoothed([y for _, y in known]), strict=True))
        shown = known[:: -max(1, math.ceil(len(known) / CURVE_POINTS))][::-1]
        if known:
            return {"name": name, "x": [x for x, _ in shown], "y": [float(f"{y:.5g}") for _, y in shown]}
    missing.append(f"No curve: the metrics have no {names[0]} yet.")
    return None
