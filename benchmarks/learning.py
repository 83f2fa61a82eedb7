"""How many environment steps each update rule needs, in all five worlds, over several seeds.

`reinforce` (the paper's gradient) trains for N steps; the highest mean entropy over seeds that it reaches, on fresh
rollouts of the frozen population, is the mark. Counted is after how many steps `actor_critic` is there for good.
`trust_region` runs for a tenth of N. All are measured with the same particles, features and neighbours. Beside that:
what 1, 10 and 50 heads cover after as many steps, together and the widest of them alone, and how much they differ.
Then, alone on the machine: what an update costs beside the physics of its epoch, and what 50 heads cost beside 1.

Resumable: run it again and it goes on.
"""

import kmyriad  # noqa: F401, I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from experiments import Curve, epochs_for, train_all
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch

from kmyriad import figures
from kmyriad.rollout.replicas import make_replicas
from kmyriad.objective.rewards import slide
from kmyriad.presets import preset
from kmyriad.training.pretrain import assign_policies_to_processes, initial_state, update
from kmyriad.rollout.collect import collect

STEPS = {
    "ant-empty": 5_000_000,
    "ant-maze": 2_000_000,
    "ant-pyramid": 2_000_000,
    "ant-cave": 2_000_000,
    "point-maze": 2_000_000,
}
"""N, by world."""
AIMS = {"ant-empty": 20}
OTHER_AIM = 10
"""reinforce's steps over actor_critic's, at least."""
REINFORCE = {
    "update": "reinforce",
    "replicas": 300,
    "segment": None,
    "k": 5,
    "learning_rate": 1e-3,
    "initial_sigma": 0.6,
    "normalise_observations": False,
    "own_rate": None,
    "adapter": 128,
}
"""The best rate and sigma found for it by `--search`."""
TRUST_REGION = {**REINFORCE, "update": "trust_region", "learning_rate": 1e-4, "trust_region_steps": 10}
SEARCH = [(rate, sigma) for rate in (1e-3, 3e-3) for sigma in (0.22, 0.37, 0.6, 1.0)]
ACTOR_CRITIC_STEPS, MEASUREMENTS = 1_000_000, 20
"""Of each actor_critic run: environment steps, and how often it is measured on the way."""
HEADS = (1, 10, 50)
RULES = ("actor_critic", "reinforce", "trust_region")
NAMES = {
    "50-heads": "50 heads",
    "actor_critic": "10 heads",
    "1-heads": "1 head",
    "reinforce": "reinforce",
    "trust_region": "trust_region",
}
"""In pictures, where numbers of heads stand for `actor_critic`, and the other rules have 10."""
Found = dict[str, list[Curve]]
"""Curves of every seed, by rule or number of heads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", default=list(STEPS), choices=list(STEPS), help="some of the worlds")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"), help="where runs are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the curves there")
    parser.add_argument("--search", action="store_true", help="only look for reinforce's best rate and sigma")
    parser.add_argument("--timing", action="store_true", help="only measure the cost of updates and heads")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.folder, arguments.seeds, arguments.processes)
        return
    values: dict[str, float] = {}
    curves: dict[str, Found] = {}
    if not arguments.timing:
        curves = learn(arguments.worlds, arguments.seeds, arguments.folder, arguments.processes)
        for world, found in curves.items():
            values[f"steps_ratio_{world}"] = show_rules(world, found)
            show_heads(world, found)
            if arguments.pictures:
                named = {name: found[key] for key, name in NAMES.items()}
                figures.save(figures.entropy_curves(named), arguments.pictures / f"learning-{world}")
    values |= timing()
    table = Table("figure", "value", "aim")
    for name, value in values.items():
        table.add_row(name, f"{value:.3g}", aim_of(name))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": values, "curves": curves}, indent=1) + "\n")


def aim_of(figure: str) -> str:
    if figure.startswith("steps_ratio_"):
        return f">= {AIMS.get(figure.removeprefix('steps_ratio_'), OTHER_AIM)}"
    return {"update_vs_physics": "<= 1", "heads_50_vs_1": "<= 1.15"}[figure]


def settings_of(world: str, rule: str, agents: int, seed: int) -> dict[str, Any]:
    """What `kmyriad.pretrain` gets: the default preset of the world, or the baseline on the same environment."""
    defaults = preset("quick", world, agents)
    settings: dict[str, Any] = {"env": world, "preset": "quick", "agents": agents, "seed": seed}
    if rule == "actor_critic":
        settings["epochs"] = epochs_for(ACTOR_CRITIC_STEPS, defaults, settings)
        settings["checkpoint_every"] = max(1, settings["epochs"] // MEASUREMENTS)
    else:
        settings |= REINFORCE if rule == "reinforce" else TRUST_REGION
        steps = STEPS[world] if rule == "reinforce" else STEPS[world] // 10
        settings["epochs"] = epochs_for(steps, defaults, settings)
        settings["checkpoint_every"] = max(1, settings["epochs"] // 5)
    return settings


def learn(worlds: list[str], seeds: int, folder: Path, processes: int) -> dict[str, Found]:
    """Curves by world."""
    contestants = {rule: (rule, 10) for rule in RULES} | {
        heads_name(agents): ("actor_critic", agents) for agents in HEADS if agents != 10
    }
    experiments = {
        f"{world}-{name}-{seed}": settings_of(world, rule, agents, seed)
        for world in worlds
        for name, (rule, agents) in contestants.items()
        for seed in range(seeds)
    }
    curves = train_all(experiments, folder, processes)
    return {
        world: {name: [curves[f"{world}-{name}-{seed}"] for seed in range(seeds)] for name in contestants}
        for world in worlds
    }


def heads_name(agents: int) -> str:
    return "actor_critic" if agents == 10 else f"{agents}-heads"


def steps_to(curve: Curve, mark: float) -> float:
    """Environment steps after which the entropy stays at `mark` or above; infinite if it never does."""
    below = [index for index, row in enumerate(curve) if row["entropy"] < mark]
    first = below[-1] + 1 if below else 0
    return curve[first]["env_steps"] if first < len(curve) else np.inf


def best_mean(curves: list[Curve]) -> float:
    """The highest entropy, averaged over seeds, that was measured along the way."""
    return float(np.max(np.mean([[row["entropy"] for row in curve] for curve in curves], axis=0)))


def show_rules(world: str, found: Found) -> float:
    """Print how fast each rule learns; returns reinforce's steps over actor_critic's, the median over seeds."""
    mark = best_mean(found["reinforce"])
    table = Table("rule", "steps", "entropy, each seed", f"steps to {mark:.2f}", "cells", title=f"{world}, 10 heads")
    for rule in RULES:
        table.add_row(
            rule,
            f"{found[rule][0][-1]['env_steps']:,}",
            each(found[rule], lambda curve: f"{curve[-1]['entropy']:.2f}"),
            each(found[rule], lambda curve: f"{steps_to(curve, mark):,.0f}"),
            each(found[rule], lambda curve: curve[-1]["last"]["covered_cells"]),
        )
    Console().print(table)
    steps = np.array([steps_to(curve, mark) for curve in found["actor_critic"]])
    return float(np.median(found["reinforce"][0][-1]["env_steps"] / steps))


def show_heads(world: str, found: Found) -> None:
    """Print what 1, 10 and 50 heads cover after the same number of steps, and how much they differ."""
    steps = found["actor_critic"][0][-1]["env_steps"]
    table = Table(
        "heads", "entropy, each seed", "cells", "widest head alone", "least head", "KL between heads", "its floor",
        title=f"{world}, {steps:,} steps",
    )  # fmt: skip
    for agents in HEADS:
        curves = found[heads_name(agents)]
        last = [curve[-1]["last"] for curve in curves]
        table.add_row(
            str(agents),
            each(curves, lambda curve: f"{curve[-1]['entropy']:.2f}"),
            each(last, lambda row: row["covered_cells"]),
            each(last, lambda row: row["covered_cells_of_widest_head"]),
            each(last, lambda row: min(row["covered_cells_per_head"])),
            each(last, lambda row: f"{np.mean(row['kl_between_heads']):.2f}" if "kl_floor" in row else "-"),
            each(last, lambda row: f"{row['kl_floor']:.2f}" if "kl_floor" in row else "-"),
        )
    Console().print(table)


def each(seeds: list[Any], text: Callable[[Any], Any]) -> str:
    """`text` of every seed, side by side."""
    return " ".join(str(text(seed)) for seed in seeds)


def search(folder: Path, seeds: int, processes: int) -> None:
    """The entropy that reinforce reaches on ant-empty in a million steps, by rate and initial sigma."""
    experiments = {}
    for rate, sigma in SEARCH:
        for seed in range(seeds):
            settings = settings_of("ant-empty", "reinforce", 10, seed) | {"learning_rate": rate, "initial_sigma": sigma}
            settings["epochs"] = epochs_for(1_000_000, preset("quick", "ant-empty", 10), settings)
            settings["checkpoint_every"] = settings["epochs"]
            experiments[f"search-{rate:g}-{sigma:g}-{seed}"] = settings
    curves = list(train_all(experiments, folder, processes).values())
    table = Table("rate", "sigma", "entropy, each seed", "mean", title="reinforce, ant-empty, 1M steps")
    for index, (rate, sigma) in enumerate(SEARCH):
        found = [curve[-1]["entropy"] for curve in curves[index * seeds : (index + 1) * seeds]]
        table.add_row(f"{rate:g}", f"{sigma:g}", " ".join(f"{e:.2f}" for e in found), f"{np.mean(found):.2f}")
    Console().print(table)


def timing(rounds: int = 30) -> dict[str, float]:
    """Cost of an update beside physics, and of 50 heads beside 1: medians over epochs in turns."""
    contestants = {agents: TimedTraining(agents) for agents in (10, 1, 50)}
    for _ in range(rounds):
        for contestant in contestants.values():
            contestant.epoch()
    ten, one, fifty = (np.array(contestant.seconds) for contestant in contestants.values())
    return {
        "update_vs_physics": float(np.median(ten[:, 1] / ten[:, 0])),
        "heads_50_vs_1": float(np.median(fifty.sum(axis=1) / one.sum(axis=1))),
    }


class TimedTraining:
    """Epochs of ant-empty with the default settings, timed: (physics, update, everything else) in seconds."""

    def __init__(self, agents: int) -> None:
        self.config = preset("quick", "ant-empty", agents)
        self.replicas = make_replicas("ant-empty", self.config.replica_count, horizon=self.config.horizon)
        self.state = initial_state(self.config, self.replicas)
        self.seconds: list[tuple[float, float, float]] = []

    def epoch(self) -> None:
        config, state = self.config, self.state
        stopwatch, start = Stopwatch(self.replicas.env), time.perf_counter()
        state.epoch += 1
        assign_policies_to_processes(config, self.replicas, state.epoch)
        trajectory = collect(
            self.replicas, state.population, config.epoch_steps, config.seed, state.epoch, keep_arrivals=True
        )
        middle, physics = time.perf_counter(), stopwatch.stop()
        state.pool = slide(state.pool, trajectory, config.epochs_per_horizon)
        update(config, state, trajectory)
        end = time.perf_counter()
        self.seconds.append((physics, end - middle, middle - start - physics))


if __name__ == "__main__":
    main()
