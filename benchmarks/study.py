"""What matters for learning: one setting changed at a time, several seeds each, entropy on fresh rollouts.

The tables of research/notebook.md that name it come from here. Resumable: run it again and it goes on.
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments import Curve, iterations_of, side_by_side, train_one
from learners import LEARNERS, learn_by
from rich.console import Console
from rich.table import Table

from kmyriad.config import PretrainConfig
from kmyriad.objective.rewards import Rewards, rewards_of, slide
from kmyriad.presets import PRESETS, preset
from kmyriad.rollout.collect import Segment

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no priors": {"priors": False},
    "entropy alone": {"diversity_weight": 0.0},
    "entropy alone, independent layers": {"diversity_weight": 0.0, "code_size": None},
    "diversity weight 0.5": {"diversity_weight": 0.5},
    "diversity weight 1": {"diversity_weight": 1.0},
    "diversity weight 4": {"diversity_weight": 4.0},
    "code of 3": {"code_size": 3},
    "code of one number each": {"code_size": 10_000},
    "code rate 0.03": {"code_rate": 0.03},
    "code rate 0.3": {"code_rate": 0.3},
    "50 replicas": {"replicas": 50},
    "200 replicas": {"replicas": 200},
    "200 replicas, 15 neighbours": {"replicas": 200, "neighbours": 15},
    "500 replicas": {"replicas": 500},
    "500 replicas, rollouts of 10 steps": {"replicas": 500, "rollout_steps": 10},
    "rollouts of 10 steps": {"rollout_steps": 10},
    "rollouts of 50 steps": {"rollout_steps": 50},
    "whole horizons": {"rollout_steps": None},
    "learning rate 0.0003": {"learning_rate": 3e-4},
    "learning rate 0.003": {"learning_rate": 3e-3},
    "desired KL 0.03": {"desired_kl": 0.03},
    "desired KL 0.06": {"desired_kl": 0.06},
    "2 minibatches": {"minibatches": 2},
    "8 minibatches": {"minibatches": 8},
    "2 update epochs, 8 minibatches": {"update_epochs": 2, "minibatches": 8},
    "8 update epochs": {"update_epochs": 8},
    "gamma 0.97": {"gamma": 0.97},
    "gamma 0.995": {"gamma": 0.995},
    "lambda 0.6": {"gae_lambda": 0.6},
    "lambda 0.8": {"gae_lambda": 0.8},
    "lambda 0.9": {"gae_lambda": 0.9},
    "lambda 0.95": {"gae_lambda": 0.95},
    "std 0.14": {"initial_std": 0.14},
    "std 0.22": {"initial_std": 0.22},
    "std 0.37": {"initial_std": 0.37},
    "std at least 0.05": {"std_range": (0.05, 2.0)},
    "std at least 0.1": {"std_range": (0.1, 2.0)},
    "std at most 0.3": {"std_range": (0.01, 0.3)},
    "std at most 0.18": {"std_range": (0.01, 0.18)},
    "15 neighbours": {"neighbours": 15},
    "40 neighbours": {"neighbours": 40},
    "features x y": {"features": ("x", "y")},
    "ReLU": {"activation": "relu"},
    "raw observations": {"normalise_observations": False},
    "actor 128-128-64": {"trunk_hidden": (128, 128)},
    "actor 256-128-128": {"agent_hidden": 128},
    "actor 512-256-256": {"trunk_hidden": (512, 256), "agent_hidden": 256},
    "critic 128-128": {"critic_hidden": (128, 128)},
    "critic 256-256": {"critic_hidden": (256, 256)},
    "critic at a rate of its own, 0.001": {"critic_learning_rate": 1e-3},
    "critic learns first, 4 epochs": {"critic_epochs": 4, "critic_learning_rate": 1e-3},
}
"""What differs from the defaults, by the name it has in the table."""

POOLS: dict[str, dict[str, Any]] = {
    "z times 0.3": {"feature_scales": (1.0, 1.0, 0.3)},
    "z times 3": {"feature_scales": (1.0, 1.0, 3.0)},
    "each feature by its deviation": {"feature_scales": "deviation"},
    "pool of half a horizon": {"pool_horizons": 0.5},
    "pool of two horizons": {"pool_horizons": 2.0},
}
"""What no setting gives; `OtherPool` does."""

OTHERS = POOLS | {name: {"learner": name} for name in LEARNERS}
"""All that no setting gives."""


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
        choices=[*VARIANTS, *OTHERS],
        help="some of the variants; those of z and of std's upper bound are for Ants",
    )
    parser.add_argument("--agents", type=int, default=10, help="agents (default: %(default)s)")
    parser.add_argument(
        "--preset", default="quick", choices=PRESETS, help="settings to start from (default: %(default)s)"
    )
    parser.add_argument("--no-priors", action="store_true", help="leave out the symmetries that worlds declare")
    parser.add_argument("--horizon", type=int, help="control steps per episode (default: the preset's)")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/study"), help="where runs are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there")
    arguments = parser.parse_args()
    names = arguments.only or [*VARIANTS, *OTHERS]
    base = preset(arguments.preset, arguments.env, arguments.agents)
    horizon = arguments.horizon or base.world.horizon
    group = f"{arguments.env}-{arguments.preset}-{arguments.agents}-{horizon}-{arguments.steps}"
    common: dict[str, Any] = {"env": arguments.env, "preset": arguments.preset, "agents": arguments.agents}
    if arguments.no_priors:
        group, common = f"{group}-no-priors", common | {"priors": False}
    experiments = {}
    for name in names:
        for seed in range(arguments.seeds):
            settings = {"horizon": horizon, "seed": seed, "total_steps": arguments.steps}
            settings = common | settings | VARIANTS.get(name, {})
            settings |= {"checkpoint_every": iterations_of(settings), **OTHERS.get(name, {})}
            experiments[f"{group}/{re.sub(r'[^a-z0-9.]+', '-', name.lower())}-{seed}"] = settings
    curves = list(side_by_side(train_variant, experiments, arguments.folder, arguments.processes).values())
    rows = {name: curves[i * arguments.seeds : (i + 1) * arguments.seeds] for i, name in enumerate(names)}
    show(rows, f"{arguments.env}, {arguments.agents} agents, {arguments.steps:,} steps, {arguments.seeds} seeds")
    if arguments.json:
        table = {name: [curve[-1] for curve in found] for name, found in rows.items()}
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


def train_variant(folder: Path, settings: dict[str, Any]) -> Curve:
    """`train_one`, with the pool or the learner that `settings` ask for."""
    settings = dict(settings)
    if "learner" in settings:
        learn_by(settings.pop("learner"))
    pool = {name: settings.pop(name) for name in ("pool_horizons", "feature_scales") if name in settings}
    return train_one(folder, settings, OtherPool(**pool) if pool else rewards_of)


class OtherPool:
    """The objective that the settings ask for, on another pool.

    `pool_horizons` is how many horizons the pool holds; `feature_scales` multiply the features that neighbours are
    searched in, or are "deviation": every feature is divided by its standard deviation in the pool. After a resume a
    pool longer than a horizon fills again from the last horizon.
    """

    def __init__(self, pool_horizons: float = 1.0, feature_scales: Sequence[float] | str = (1.0,)) -> None:
        self._horizons, self._scales = pool_horizons, feature_scales
        self._pool: list[Segment] = []

    def __call__(self, pool: Sequence[Segment], config: PretrainConfig) -> Rewards:
        segments = max(1, round(self._horizons * config.rollouts.per_horizon))
        self._pool = slide(self._pool or pool[:-1], pool[-1], segments)
        factors = self._factors()
        return rewards_of([replace(segment, features=segment.features * factors) for segment in self._pool], config)

    def _factors(self) -> torch.Tensor:
        if isinstance(self._scales, str):
            return 1 / torch.cat([segment.features[segment.valid] for segment in self._pool]).std(0)
        return torch.tensor(self._scales, dtype=torch.float32)


def show(rows: dict[str, list[Curve]], title: str) -> None:
    table = Table(
        "setting", "entropy", "each seed", "cells", "cells per agent", "KL between agents", "std", title=title
    )
    for name, curves in rows.items():
        last = [curve[-1]["last"] for curve in curves]
        entropies = np.array([row["entropy"] for row in last])
        table.add_row(
            name,
            f"{entropies.mean():.2f}",
            " ".join(f"{entropy:.2f}" for entropy in entropies),
            f"{np.mean([row['covered_cells'] for row in last]):.0f}",
            f"{np.mean([np.mean(row['covered_cells_per_agent']) for row in last]):.0f}",
            f"{np.mean([np.mean(row.get('kl_between_agents', [np.nan])) for row in last]):.2f}",
            f"{np.mean([curve[-1]['std'] for curve in curves]):.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
