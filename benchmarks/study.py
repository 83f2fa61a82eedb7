"""What matters for learning: one setting changed at a time, several seeds each, entropy on fresh rollouts.

The tables of docs/trials.md and docs/learning.md that name it come from here. Resumable: run it again and it goes on.
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from experiments import Curve, epochs_for, side_by_side, train_one
from rich.console import Console
from rich.table import Table

from kmyriad.objective.rewards import Novelty, estimate_novelty, slide
from kmyriad.presets import PRESETS, preset
from kmyriad.rollout.collect import ParallelTrajectory, Visits
from kmyriad.training import pretrain as pretraining

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "nothing in common": {"own_rate": None},
    "own rate 0.01": {"own_rate": 0.01},
    "own rate 0.1": {"own_rate": 0.1},
    "own rate 1": {"own_rate": 1.0},
    "compass 0": {"compass": 0.0},
    "compass 0.5": {"compass": 0.5},
    "compass 2": {"compass": 2.0},
    "no mirrors": {"mirrors": False},
    "turned views": {"turns": True},
    "no turned views": {"turns": False},
    "many heads before turned views": {
        "turns": False,
        "diversity": 0.5,
        "direction_rate": 0.1,
        "gae_lambda": 0.9,
    },
    "adapters in common": {"own_adapters": False},
    "direction rate 0": {"direction_rate": 0.0},
    "direction rate 0.03": {"direction_rate": 0.03},
    "direction rate 0.1": {"direction_rate": 0.1},
    "no compass, as before": {"compass": 0.0, "diversity": 1.0, "own_rate": 0.1},
    "diversity 0": {"diversity": 0.0},
    "diversity 0.3": {"diversity": 0.3},
    "diversity 1": {"diversity": 1.0},
    "diversity 2": {"diversity": 2.0},
    "50 replicas": {"replicas": 50},
    "200 replicas": {"replicas": 200},
    "200 replicas, k 15": {"replicas": 200, "k": 15},
    "500 replicas": {"replicas": 500},
    "500 replicas, segment 10": {"replicas": 500, "segment": 10},
    "segment 10": {"segment": 10},
    "segment 50": {"segment": 50},
    "whole horizons": {"segment": 200},
    "learning rate 0.0003": {"learning_rate": 3e-4},
    "learning rate 0.003": {"learning_rate": 3e-3},
    "target KL 0.03": {"target_kl": 0.03},
    "target KL 0.06": {"target_kl": 0.06},
    "2 minibatches": {"minibatches": 2},
    "8 minibatches": {"minibatches": 8},
    "2 passes, 8 minibatches": {"passes": 2, "minibatches": 8},
    "8 passes": {"passes": 8},
    "gamma 0.97": {"gamma": 0.97},
    "gamma 0.995": {"gamma": 0.995},
    "lambda 0.6": {"gae_lambda": 0.6},
    "lambda 0.8": {"gae_lambda": 0.8},
    "lambda 0.9": {"gae_lambda": 0.9},
    "lambda 0.95": {"gae_lambda": 0.95},
    "sigma 0.14": {"initial_sigma": 0.14},
    "sigma 0.22": {"initial_sigma": 0.22},
    "sigma 0.37": {"initial_sigma": 0.37},
    "sigma at least 0.05": {"sigma_min": 0.05},
    "sigma at least 0.1": {"sigma_min": 0.1},
    "sigma at most 0.3": {"sigma_max": 0.3},
    "sigma at most 0.18": {"sigma_max": 0.18},
    "k 15": {"k": 15},
    "k 40": {"k": 40},
    "features x y": {"features": ("x", "y")},
    "ReLU": {"activation": "relu"},
    "raw observations": {"normalise_observations": False},
    "actor 128-128-64": {"trunk": (128, 128)},
    "actor 256-128-128": {"adapter": 128},
    "actor 512-256-256": {"trunk": (512, 256), "adapter": 256},
    "critic 128-128": {"critic": (128, 128)},
    "critic 256-256": {"critic": (256, 256)},
}
"""What differs from the defaults, by the name it has in the table."""

POOLS: dict[str, dict[str, Any]] = {
    "z times 0.3": {"feature_scales": (1.0, 1.0, 0.3)},
    "z times 3": {"feature_scales": (1.0, 1.0, 3.0)},
    "each feature by its deviation": {"feature_scales": "deviation"},
    "pool of half a horizon": {"pool_horizons": 0.5},
    "pool of two horizons": {"pool_horizons": 2.0},
}
"""What no setting gives; `train_variant` does."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="ant-empty", help="world (default: %(default)s)")
    parser.add_argument(
        "--steps", type=int, default=250_000, help="environment steps of each run (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: %(default)s)")
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="NAME",
        choices=[*VARIANTS, *POOLS],
        help="some of the variants; those of z and of sigma's upper bound are for Ants",
    )
    parser.add_argument("--agents", type=int, default=10, help="heads (default: %(default)s)")
    parser.add_argument(
        "--preset", default="quick", choices=PRESETS, help="settings to start from (default: %(default)s)"
    )
    parser.add_argument("--horizon", type=int, help="control steps per episode (default: the preset's)")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/study"), help="where runs are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there")
    arguments = parser.parse_args()
    names = arguments.only or [*VARIANTS, *POOLS]
    base = preset(arguments.preset, arguments.env, arguments.agents)
    horizon = arguments.horizon or base.horizon
    group = f"{arguments.env}-{arguments.preset}-{arguments.agents}-{horizon}-{arguments.steps}"
    experiments = {}
    for name in names:
        for seed in range(arguments.seeds):
            settings = {"env": arguments.env, "preset": arguments.preset, "agents": arguments.agents}
            settings |= {"horizon": horizon, "seed": seed, **VARIANTS.get(name, {})}
            settings["epochs"] = epochs_for(arguments.steps, base, settings)
            settings |= {"checkpoint_every": settings["epochs"], **POOLS.get(name, {})}
            experiments[f"{group}/{re.sub(r'[^a-z0-9.]+', '-', name.lower())}-{seed}"] = settings
    curves = list(side_by_side(train_variant, experiments, arguments.folder, arguments.processes).values())
    rows = {name: curves[i * arguments.seeds : (i + 1) * arguments.seeds] for i, name in enumerate(names)}
    show(rows, f"{arguments.env}, {arguments.agents} heads, {arguments.steps:,} steps, {arguments.seeds} seeds")
    if arguments.json:
        table = {name: [curve[-1] for curve in found] for name, found in rows.items()}
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


def train_variant(folder: Path, settings: dict[str, Any]) -> Curve:
    """`train_one`, with the pool that `settings` ask for.

    `pool_horizons` is how many horizons the pool holds; `feature_scales` multiply the features that neighbours are
    searched in, or are "deviation": every feature is divided by its standard deviation in the pool.
    """
    settings = dict(settings)
    horizons, scales = settings.pop("pool_horizons", 1.0), settings.pop("feature_scales", 1.0)

    def slide_by_horizons(pool: Sequence[Visits], trajectory: ParallelTrajectory, segments: int) -> list[Visits]:
        return slide(pool, trajectory, max(1, round(horizons * segments)))

    def scaled_novelty(pool: Sequence[Visits], *rest: Any) -> Novelty:
        factors = scales
        if scales == "deviation":
            factors = 1 / np.concatenate([visits.features[visits.sound] for visits in pool]).std(0)
        factors = np.float32(factors)
        return estimate_novelty([replace(visits, features=visits.features * factors) for visits in pool], *rest)

    with (
        patch.object(pretraining, "slide", slide_by_horizons),
        patch.object(pretraining, "estimate_novelty", scaled_novelty),
    ):
        return train_one(folder, settings)


def show(rows: dict[str, list[Curve]], title: str) -> None:
    table = Table(
        "setting", "entropy", "each seed", "cells", "cells per head", "KL between heads", "sigma", title=title
    )
    for name, curves in rows.items():
        last = [curve[-1]["last"] for curve in curves]
        entropies = np.array([row["entropy"] for row in last])
        table.add_row(
            name,
            f"{entropies.mean():.2f}",
            " ".join(f"{entropy:.2f}" for entropy in entropies),
            f"{np.mean([row['covered_cells'] for row in last]):.0f}",
            f"{np.mean([np.mean(row['covered_cells_per_head']) for row in last]):.0f}",
            f"{np.mean([np.mean(row.get('kl_between_heads', [np.nan])) for row in last]):.2f}",
            f"{np.mean([curve[-1]['sigma'] for curve in curves]):.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
