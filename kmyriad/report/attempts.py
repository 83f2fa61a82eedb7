"""Where a jump-start's policy goes, before and after training: fresh episodes, packed for the page."""

from typing import Any

import torch

from kmyriad.checks import checked
from kmyriad.envs.plane import Plane
from kmyriad.evaluation.evaluate import play
from kmyriad.population.population import Population
from kmyriad.report.paths import pack_paths
from kmyriad.rollout.collect import Segment
from kmyriad.runs.files import read_json
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population

EPISODES = 40
"""Of all policies together, before and after."""
SEED = 54_321
"""Unlike any training run's."""


def pack_attempts(run: Run, plane: Plane, radius: float) -> list[dict[str, Any]]:
    """`title`, `success` and `paths` of the policies that a jump-start began with, and of its own."""
    attempts = []
    if run.jumpstart.start.init not in ("random", "policy"):
        attempts.append(("before", load_population(run.jumpstart.start.source).select(_chosen(run))))
    attempts.append(("after", load_population(run)))
    return [{"title": title, **_attempt(run, population, plane, radius)} for title, population in attempts]


def _chosen(run: Run) -> list[int]:
    """The agents that were selected, as `selection.json` tells."""
    standings = checked("standings", read_json(run.selection_path).get("standings"), tuple[dict[str, Any], ...])
    return [checked("agent", one.get("agent"), int) for one in standings[: run.jumpstart.start.top]]


def _attempt(run: Run, population: Population, plane: Plane, radius: float) -> dict[str, Any]:
    trajectory = play(run, EPISODES, SEED, population=population)
    assert trajectory.success is not None
    solved_before = torch.zeros_like(trajectory.success)
    solved_before[..., 1:] = trajectory.success[..., :-1]
    counts = trajectory.valid & trajectory.in_first_episode & ~solved_before  # the goal is where a way ends
    visits = Segment(trajectory.features, trajectory.xy, counts).visits
    return {
        "success": float((trajectory.success & trajectory.in_first_episode).any(dim=-1).double().mean()),
        "episodes": int(counts.shape[0] * counts.shape[1]),
        "paths": pack_paths(visits, plane, radius),
    }
