"""How many environment steps our method and the paper's need to raise the entropy by 1, 2, 3 and 4 nats.

    python benchmarks/learning.py --json FILE     # all of it: days on two cores, resumable
    python benchmarks/learning.py --quick         # does it work? some minutes
    python benchmarks/learning.py --only timing   # only what updates and agents cost
    python benchmarks/learning.py --known FILE --json FILE    # go on with what another machine has measured

Three contestants with ten agents each, over several seeds: `ours`, `reinforce` (ours with the paper's update rule) and
`paper` (--method paper). The latter two train in stages, after which they have twice as many steps as before, until
they are at the first mark, or for `--most` steps. All are measured on fresh episodes of the frozen population, with the
same features and neighbours, and so is what they were before they learned. Nats count from the highest entropy that any
of them has untrained: noise alone reaches none of the marks. Beside that, of ours: what 1, 10 and 50 agents cover after
as many steps, together and the widest of them alone, and how much they differ. Symmetries are left out but with
`--priors`. Then, alone on the machine: what an update costs beside its iteration's physics, and 50 agents beside 1.
"""

import kmyriad  # noqa: I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments import Curve, entropy_of, iterations_of, read_known, side_by_side, train_one
from rich.console import Console
from rich.table import Table
from stopwatch import TimedTraining

from kmyriad import figures
from kmyriad.evaluation.statistics import mean_of
from kmyriad.runs.files import read_json, write_json
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import pretrain_config

WORLDS = ("ant-empty", "ant-maze", "ant-pyramid", "ant-cave", "point-maze")
METHODS: dict[str, dict[str, Any]] = {"ours": {}, "reinforce": {"update": "reinforce"}, "paper": {"method": "paper"}}
NATS = (1, 2, 3, 4)
AGENTS = (1, 10, 50)
OURS_STEPS, FIRST_STEPS = 1_000_000, 2_000_000
"""Environment steps of ours, and of the first stage of the others."""
WIDE = 140
"""Letters in a row of a table."""
QUICK = {"replicas": 20, "horizon": 50}
NAMES = {
    "50-agents": "50 agents",
    "ours": "10 agents",
    "1-agents": "1 agent",
    "reinforce": "REINFORCE",
    "paper": "paper",
}
"""In pictures, where numbers of agents stand for ours, and the others have 10."""
Found = dict[str, list[dict[str, Any]]]
"""Of every seed, {"reference": entropy that nats count from, "untrained": entropy, "curve": rows}, by contestant."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=WORLDS, help="some of the worlds")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="some of the contestants")
    parser.add_argument("--agents", type=int, nargs="*", default=list(AGENTS), help="of ours (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds (default: 0 1 2)")
    parser.add_argument(
        "--most", type=int, default=120_000_000, help="steps of the paper's rule (default: %(default)s)"
    )
    parser.add_argument("--priors", action="store_true", help="with the symmetries that worlds declare")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument(
        "--measurements", type=int, default=20, help="how often a stage is measured on its way (default: %(default)s)"
    )
    parser.add_argument("--known", type=Path, metavar="FILE", help="what runs have told that need not be made again")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"), help="where runs are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the curves there")
    parser.add_argument("--only", choices=("learning", "timing"), help="a part of it; timing needs a quiet machine")
    parser.add_argument("--quick", action="store_true", help="one small world, one seed, few steps: does it work?")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.worlds, arguments.seeds, arguments.agents = ["point-maze"], [0], [1, 10]
        arguments.most, arguments.folder = 8000, arguments.folder / "quick"
    values: dict[str, float] = {}
    told: dict[str, Any] = read_known(arguments.known)
    if arguments.only != "timing":
        found, told = learn(arguments, told)
        for world, of_world in found.items():
            values |= show_methods(world, of_world)
            show_agents(world, of_world)
        values |= cells_by_agents(found)
        if arguments.pictures:
            worlds = {
                world: {name: curves(of[key]) for key, name in NAMES.items() if key in of}
                for world, of in found.items()
            }
            figures.save(figures.learning_curves(worlds), arguments.pictures / "learning")
    if arguments.only != "learning":
        values |= timing(rounds=2 if arguments.quick else 30)
    table = Table("figure", "value", "aim")
    for name, value in values.items():
        table.add_row(name, f"{value:.4g}", AIMS.get(name, ""))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": values, "runs": told}, indent=1) + "\n")


AIMS = {
    "ten_vs_one_cells": ">= 1",
    "fifty_vs_ten_cells": ">= 1",
    "least_kl_above_floor": ">= 1",
    "update_vs_physics": "<= 1",
    "agents_50_vs_1": "<= 1.15",
}


def learn(arguments: argparse.Namespace, known: Mapping[str, Any]) -> tuple[dict[str, Found], dict[str, Any]]:
    """(what every contestant learned, by world; what is `known`, with these, by name of the run)."""
    asked = {**({} if arguments.priors else {"priors": False}), **(QUICK if arguments.quick else {})}
    contestants = {name: {"agents": 10, **METHODS[name]} for name in arguments.methods}
    contestants |= {f"{agents}-agents": {"agents": agents} for agents in arguments.agents if agents != 10}
    folder = "priors-" if arguments.priors else ""
    experiments = {
        f"{folder}{world}-{name}-{seed}": {
            "run": {"env": world, "seed": seed, **asked, **of_it},
            "most": arguments.most,
            "measurements": arguments.measurements,
        }
        for world in arguments.worlds
        for name, of_it in contestants.items()
        for seed in arguments.seeds
    }
    done = side_by_side(learn_one, experiments, arguments.folder, arguments.processes, known)
    found = {
        world: {name: [done[f"{folder}{world}-{name}-{seed}"] for seed in arguments.seeds] for name in contestants}
        for world in arguments.worlds
    }
    return found, {**known, **done}


def learn_one(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one run on one core, ours for a fixed time and others until they have risen by a nat, and measure it."""
    torch.set_num_threads(1)
    done, run, most = folder / "learned.json", settings["run"], settings["most"]
    if done.exists():
        return read_json(done)
    shared = {name: value for name, value in run.items() if name not in ("method", "update")}
    untrained = untrained_entropy(run)
    reference = max(untrained, *(untrained_entropy(shared | of_it) for of_it in METHODS.values()))
    is_ours = "method" not in run and "update" not in run
    steps = min(OURS_STEPS if is_ours else FIRST_STEPS, most)
    while True:
        stage = run | {"total_steps": steps, "threads": 1, "keep_checkpoints": 10_000}
        stage = measured(stage, settings["measurements"])
        if is_ours or steps >= most:
            break
        trained = kmyriad.pretrain(out=folder / "run", resume=(folder / "run").exists(), **stage)
        if entropy_of(trained.pretraining, load_population(trained)) >= reference + 1:
            break
        steps = min(2 * steps, most)
    found = {"reference": reference, "untrained": untrained, "curve": train_one(folder / "run", stage)}
    write_json(done, found)
    return found


def untrained_entropy(run: Mapping[str, Any]) -> float:
    """Of fresh episodes before anything was learned."""
    settings = dict(run)
    env, method = settings.pop("env"), settings.pop("method", None)
    return entropy_of(pretrain_config(env, "quick", settings, method), None)


def measured(settings: dict[str, Any], times: int) -> dict[str, Any]:
    """`settings` with about so many checkpoints on the way."""
    return settings | {"checkpoint_every": max(1, iterations_of(settings) // times)}


def curves(of_seeds: list[dict[str, Any]]) -> list[Curve]:
    return [found["curve"] for found in of_seeds]


def steps_to(curve: Curve, mark: float) -> float:
    """Environment steps after which the entropy stays at `mark` or above; infinite if it never does."""
    below = [index for index, row in enumerate(curve) if row["entropy"] < mark]
    first = below[-1] + 1 if below else 0
    return curve[first]["env_steps"] if first < len(curve) else np.inf


def show_methods(world: str, found: Found) -> dict[str, float]:
    """Print how fast each method learns; returns the steps to each mark, the median over seeds, and paper's / ours."""
    titles = [f"steps to +{nats}" for nats in NATS]
    table = Table(
        "method", "untrained", "counted from", "entropy", "steps", *titles, "cells", title=f"{world}, 10 agents"
    )
    values: dict[str, float] = {}
    for method in (name for name in METHODS if name in found):
        seeds, rows = found[method], []
        for nats in NATS:
            steps = [steps_to(one["curve"], one["reference"] + nats) for one in seeds]
            rows.append(" ".join("-" if np.isinf(count) else f"{count:,}" for count in steps))
            if np.isfinite(np.median(steps)):
                values[f"steps_to_{nats}_{world}_{method}"] = float(np.median(steps))
        table.add_row(
            method,
            each(seeds, lambda one: f"{one['untrained']:.2f}"),
            each(seeds, lambda one: f"{one['reference']:.2f}"),
            each(seeds, lambda one: f"{one['curve'][-1]['entropy']:.2f}"),
            each(seeds, lambda one: f"{one['curve'][-1]['env_steps']:,}"),
            *rows,
            each(seeds, lambda one: one["curve"][-1]["last"]["covered_cells"]),
        )
    Console(width=WIDE).print(table)
    for nats in NATS:
        both = [f"steps_to_{nats}_{world}_{method}" for method in ("paper", "ours")]
        if all(name in values for name in both):
            values[f"steps_ratio_{nats}_{world}"] = values[both[0]] / values[both[1]]
    return values


def last_rows(found: Found, agents: int) -> list[dict[str, Any]]:
    """The second look at the end of ours with so many agents, of every seed; empty where it was not asked for."""
    return [curve[-1]["last"] for curve in curves(found.get("ours" if agents == 10 else f"{agents}-agents", []))]


def show_agents(world: str, found: Found) -> None:
    """Print what different numbers of agents cover after the same number of steps, and how much they differ.

    Cells more than those of the next fewer agents are paired by seed. The gap is the widest angle without an agent.
    """
    table = Table(
        "agents", "entropy, each seed", "cells", "more than fewer", "widest agent alone", "KL above its floor", "gap",
        title=f"{world}, ours",
    )  # fmt: skip
    fewer: list[dict[str, Any]] = []
    for agents in AGENTS:
        last = last_rows(found, agents)
        if not last:
            continue
        more = [row["covered_cells"] - few["covered_cells"] for row, few in zip(last, fewer, strict=False)]
        table.add_row(
            str(agents),
            each(last, lambda row: f"{row['entropy']:.2f}"),
            each(last, lambda row: row["covered_cells"]),
            mean_of(more).text("+.0f") if more else "-",
            each(last, lambda row: row["covered_cells_of_widest_agent"]),
            each(last, lambda row: f"{above_floor(row):.1f}" if "kl_floor" in row else "-"),
            each(last, lambda row: "-" if row["heading_gap"] is None else f"{row['heading_gap']:.0f}"),
        )
        fewer = last
    Console(width=WIDE).print(table)


def above_floor(last: dict[str, Any]) -> float:
    """The mean KL between agents, less what agents that are all alike would show."""
    return float(np.mean(last["kl_between_agents"])) - float(last["kl_floor"])


def cells_by_agents(found: Mapping[str, Found]) -> dict[str, float]:
    """Cells of ten agents over those of one, and of fifty over ten: means over seeds, then over the Ant's worlds.

    And the least that ten agents of any world and seed have parted.
    """
    values = {}
    for name, (many, few) in {"ten_vs_one_cells": (10, 1), "fifty_vs_ten_cells": (50, 10)}.items():
        ratios = []
        for world in (world for world in found if world.startswith("ant-")):
            both = [[row["covered_cells"] for row in last_rows(found[world], agents)] for agents in (many, few)]
            if all(both):
                ratios.append(np.mean(both[0]) / np.mean(both[1]))
        if ratios:
            values[name] = float(np.mean(ratios))
    parted = [above_floor(row) for of_world in found.values() for row in last_rows(of_world, 10) if "kl_floor" in row]
    if parted:
        values["least_kl_above_floor"] = min(parted)
    return values


def each(seeds: list[Any], text: Callable[[Any], Any]) -> str:
    """`text` of every seed, side by side."""
    return " ".join(str(text(seed)) for seed in seeds)


def timing(rounds: int = 30) -> dict[str, float]:
    """Cost of an update beside physics, and of 50 agents beside 1: medians over iterations in turns."""
    contestants = {agents: TimedTraining(agents) for agents in (10, 1, 50)}
    for _ in range(rounds):
        for contestant in contestants.values():
            contestant.iteration()
    ten, one, fifty = (np.array(contestant.seconds) for contestant in contestants.values())
    return {
        "update_vs_physics": float(np.median(ten[:, 1] / ten[:, 0])),
        "agents_50_vs_1": float(np.median(fifty.sum(axis=1) / one.sum(axis=1))),
    }


if __name__ == "__main__":
    main()
