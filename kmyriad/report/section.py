"""One run as plain JSON: all that its part of the page shows."""

import json
import math
import shlex
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from rich.markup import escape

from kmyriad.config import even_split
from kmyriad.envs import IDS, find_id
from kmyriad.envs.vector_env import MujocoVectorEnv
from kmyriad.errors import UsageError
from kmyriad.evaluation.evaluate import EPISODES, Evaluation, evaluate, stored_evaluation
from kmyriad.evaluation.statistics import smoothed
from kmyriad.figures.colours import head_colour
from kmyriad.report.attempt import attempt
from kmyriad.report.ground import pack_ground
from kmyriad.report.paths import pack_paths, settled
from kmyriad.report.words import jumpstart_summary, number, point, pretraining_summary
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run
from kmyriad.runs.tensor_file import newest_checkpoint

CURVE_POINTS = 2000
"""Points of a curve, at most."""

CONFIG_LETTERS = 20_000
"""Of a run's settings that a page shows, at most."""


def section_of(run: Run, episodes: int | None = None) -> dict[str, Any]:
    """What the page shows of `run`; `missing` has a sentence for each part that could not be had."""
    missing: list[str] = []
    rows = attempt("curve", run.metrics, missing) or []
    is_jumpstart = run.config.get("command") == "jumpstart"
    curve = _curve(rows, ("success", "return") if is_jumpstart else ("entropy",), missing)
    parts = _jumpstart(run, rows, missing) if is_jumpstart else _population(run, rows, episodes, missing)
    return {
        "name": run.name,
        "kind": "jumpstart" if is_jumpstart else "pretraining",
        "settings": json.dumps(run.config, indent=2)[:CONFIG_LETTERS],
        "curve": curve,
        **parts,
        "missing": missing,
    }


def _population(run: Run, rows: list[dict[str, Any]], episodes: int | None, missing: list[str]) -> dict[str, Any]:
    """Summary, heads and, where there are positions, ground, paths and the command to go on with."""
    evaluation = attempt("episodes to show", lambda: _evaluation(run, episodes), missing)
    if evaluation is None:
        return {"summary": pretraining_summary(run.config, rows)}
    env = attempt("map", lambda: _make_world(run.config), missing)
    per_head = evaluation.visits.sound.shape[1]
    cell = None if env is None else env.goal_radius
    section: dict[str, Any] = {
        "summary": pretraining_summary(run.config, rows, evaluation.measures, per_head, cell),
        "heads": _heads(evaluation),
        "kl_floor": number(evaluation.measures.get("kl_floor")),
        "episodes": per_head,
    }
    if evaluation.visits.xy is None:
        missing.append("No maps and no goals to pick: this environment has no x and y.")
    if evaluation.visits.xy is None or env is None:
        return section
    paths = attempt("map", lambda: _paths(evaluation, env), missing) or {}
    return section | paths | {"command": f"kmyriad jumpstart {_shell_path(run.path)} --goal"}


def _jumpstart(run: Run, rows: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
    """Summary and, where there is one, the goal on its ground."""
    section: dict[str, Any] = {"summary": jumpstart_summary(run.config, rows)}
    goal = point(run.config.get("goal"))
    if goal is None:
        return section
    env = attempt("map", lambda: _make_world(run.config), missing)
    if env is None:
        return section
    radius = number(run.config.get("goal_radius")) or env.goal_radius
    around = np.array([goal[:2]]) + radius * np.array([[-2, -2], [2, 2]])
    ground = attempt("map", lambda: pack_ground(env.world, around), missing)
    return section | {"ground": ground, "goal": goal[:2], "goal_radius": radius}


def _evaluation(run: Run, episodes: int | None) -> Evaluation:
    """The stored evaluation if it is of the newest checkpoint and has as many episodes as asked for, else a new one."""
    stored = attempt("stored evaluation", lambda: stored_evaluation(run), [])
    checkpoint = attempt("checkpoint", lambda: newest_checkpoint(run.checkpoints), [])
    if stored is not None and (checkpoint is None or _fits(stored, checkpoint.checkpoint.facts.get("epoch"), episodes)):
        return stored
    if checkpoint is not None:
        say(f"playing fresh episodes of {escape(str(run.path))}")
    return evaluate(run, episodes or EPISODES)


def _fits(stored: Evaluation, epoch: int | None, episodes: int | None) -> bool:
    heads, per_head = stored.visits.sound.shape[:2]
    as_many = episodes is None or heads * per_head == even_split(episodes, heads)
    return as_many and stored.measures.get("epoch") == epoch


def _make_world(config: dict[str, Any]) -> MujocoVectorEnv | None:
    """The world of a run, closed again, to ask for its terrain; None for environments that are not ours."""
    env = config.get("env")
    if not isinstance(env, str):
        raise UsageError(f"the settings must name an environment; got {env!r}")
    if find_id(env) not in IDS.values():
        return None
    world: VectorEnv[Any, Any, Any] = gymnasium.make_vec(find_id(env), 1, threads=1, **config.get("env_settings") or {})
    world.close()
    assert isinstance(world, MujocoVectorEnv)
    return world


def _paths(evaluation: Evaluation, env: MujocoVectorEnv) -> dict[str, Any]:
    world, radius = env.world, env.goal_radius
    places = settled(evaluation.visits, world.terrain.start)
    return {
        "ground": pack_ground(world, places.reshape(-1, 2)),
        "paths": pack_paths(evaluation.visits, world.terrain.start, radius),
        "goal_radius": radius,
        "seconds_per_step": world.decimation * float(world.model.opt.timestep),
    }


def _heads(evaluation: Evaluation) -> list[dict[str, Any]]:
    """A dict per head: its colour and its numbers, None where there is none."""
    count = len(evaluation.visits.sound)
    names = {"entropy": "entropy_per_head", "cells": "covered_cells_per_head", "kl": "kl_between_heads"}
    columns = {name: evaluation.measures.get(key) or [None] * count for name, key in names.items()}
    return [
        {"colour": head_colour(head, count)} | {name: number(column[head]) for name, column in columns.items()}
        for head in range(count)
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


def _shell_path(path: Path) -> str:
    """As one word for a shell, that no command takes for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
