"""One run as plain JSON: all that its part of the page shows."""

import json
import math
from typing import Any

import numpy as np

from kmyriad.envs.world import World
from kmyriad.evaluation.evaluate import Evaluation, current_evaluation, world_of
from kmyriad.evaluation.statistics import smoothed
from kmyriad.figures.colours import agent_colour
from kmyriad.report.attempt import attempt
from kmyriad.report.attempts import pack_attempts
from kmyriad.report.ground import pack_ground
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
    world = attempt("map", lambda: world_of(run), missing)
    per_agent = evaluation.visits.valid.shape[1]
    cell = None if world is None else world.goal_radius
    section: dict[str, Any] = {
        "summary": pretraining_summary(run.pretraining, rows, evaluation.measures, per_agent, cell),
        "agents": _agents(evaluation),
        "kl_floor": number(evaluation.measures.get("kl_floor")),
        "episodes": per_agent,
    }
    if evaluation.visits.xy is None:
        missing.append("No maps and no goals to pick: this environment has no x and y.")
    if evaluation.visits.xy is None or world is None:
        return section
    paths = attempt("map", lambda: _paths(evaluation, world), missing) or {}
    return section | paths | {"command": f"kmyriad jumpstart {shell_path(run.path)} --goal"}


def _jumpstart(run: Run, rows: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
    """Summary and, where there is one, the goal on its ground."""
    task = run.jumpstart.task
    section: dict[str, Any] = {"summary": jumpstart_summary(run.jumpstart, rows)}
    if not task.goal:
        return section
    world = attempt("map", lambda: world_of(run), missing)
    if world is None:
        return section
    radius = task.goal_radius or world.goal_radius
    start = world.terrain.start
    attempts = attempt("episodes to show", lambda: pack_attempts(run, start, radius), missing) or []
    around = np.array([task.goal[:2]]) + radius * np.array([[-2, -2], [2, 2]])
    seen = [around, *(corners(one["paths"]) for one in attempts)]
    ground = attempt("map", lambda: pack_ground(world, np.concatenate(seen)), missing)
    return section | {"ground": ground, "goal": [*task.goal[:2]], "goal_radius": radius, "attempts": attempts}


def _paths(evaluation: Evaluation, world: World) -> dict[str, Any]:
    places = settled(evaluation.visits, world.terrain.start)
    return {
        "ground": pack_ground(world, places.reshape(-1, 2)),
        "paths": pack_paths(evaluation.visits, world.terrain.start, world.goal_radius),
        "goal_radius": world.goal_radius,
        "seconds_per_step": world.decimation * float(world.model.opt.timestep),
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
