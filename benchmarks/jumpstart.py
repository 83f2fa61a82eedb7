"""Is a jump-start worth it? Goals beyond 4.5 m, learned from a population, from one max-entropy policy, from nothing.

For every world and seed a population and a single policy are pretrained on the same number of steps; then each goal is
learned from the population's best agent (`best`), from the single policy (`single`) and from the best of ten random
agents (`random`). The steps that selecting an agent takes count. Compared is the area under the success curve, that is
the mean success over all steps, with the steps to 50 %, and the success of the last policy in fresh whole episodes.

With `--study` only the best agents are fine-tuned, with some settings as they are by default and as they are elsewhere.

Resumable: run it again and it goes on.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from experiments import EVALUATION_SEED, side_by_side
from rich.console import Console
from rich.table import Table

import kmyriad
from kmyriad import figures
from kmyriad.envs.goal import AFFORDABLE, Annulus, draw_goals
from kmyriad.evaluation.comparison import jumpstart_values
from kmyriad.evaluation.selection import trials
from kmyriad.evaluation.statistics import mean_of
from kmyriad.rollout.task import task_of
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population

WORLDS = ("ant-empty", "ant-maze")
INITS = ("best", "single", "random")
FARTHEST = 7.0
"""Metres from the start, of the goals; the nearest lie where plain PPO gives up."""
GOAL_SEED = 7
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "critic learns with the policy": {"critic_epochs": 0},
    "lambda 0.95": {"gae_lambda": 0.95},
    "episodes go on at the goal": {"stop_at_goal": False},
    "episodes are never given up": {"episode_limit": 1_000_000},
    "none of these: plain PPO": {"critic_epochs": 0, "gae_lambda": 0.95, "stop_at_goal": False},
}
"""Settings of fine-tuning to be compared, by the name they have in the table."""
FRESH_EPISODES = 200
"""Played at the end, by the policy as it then is. Training's own episodes end as soon as its limit says."""
LEAST_AREA = 0.005
"""An area below this counts as this in ratios: the curve of a run that never succeeds has none."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=WORLDS, help="some of the worlds")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: %(default)s)")
    parser.add_argument("--goals", type=int, default=2, help="goals per world (default: %(default)s)")
    parser.add_argument(
        "--pretrain-steps", type=int, default=1_000_000, help="of each population (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=800_000, help="of each goal, with selection (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/jumpstart"), help="where runs are kept")
    parser.add_argument("--study", action="store_true", help="only compare settings of fine-tuning")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the success curves there")
    arguments = parser.parse_args()
    if arguments.study:
        study(arguments)
        return
    found = learn(arguments)
    ratios: dict[str, float] = {}
    for world in arguments.worlds:
        runs = {init: [found[name] for name in tasks_of(world, init, arguments)] for init in INITS}
        areas = show(world, runs)
        for other in ("random", "single"):
            ratios[f"auc_best_vs_{other}_{world}"] = areas["best"] / max(areas[other], LEAST_AREA)
    if arguments.pictures:
        for name, figure in figures.draw_comparison(kmyriad.compare([*found.values()])).items():
            figures.save(figure, arguments.pictures / f"jumpstart-{name}")
    table = Table("figure", "value")
    for name, value in ratios.items():
        table.add_row(name, f"{value:.3g}")
    Console().print(table)
    if arguments.json:
        values = {name: {**jumpstart_values(run), "fresh_success": fresh_success(run)} for name, run in found.items()}
        arguments.json.write_text(json.dumps({"figures": ratios, "runs": values}, indent=1) + "\n")


def study(arguments: argparse.Namespace) -> None:
    """Print the success in fresh episodes of every variant, seed and goal."""
    pretrain_all(arguments, (10,))
    table = Table("setting", *arguments.worlds, title=f"{arguments.steps:,} steps, success in fresh episodes")
    for variant, changes in VARIANTS.items():
        prefix = re.sub("[^a-z0-9.]+", "-", variant.lower())
        cells = []
        for world in arguments.worlds:
            tasks = tasks_of(world, "best", arguments)
            runs = {f"{prefix}-{name}": settings | changes for name, settings in tasks.items()}
            side_by_side(jumpstart_one, runs, arguments.folder, arguments.processes)
            final = [fresh_success(kmyriad.open_run(arguments.folder / name)) for name in runs]
            cells.append(f"{np.mean(final):.2f} ({' '.join(f'{success:.2f}' for success in final)})")
        table.add_row(variant, *cells)
    Console().print(table)


def learn(arguments: argparse.Namespace) -> dict[str, Run]:
    """The jump-start runs by name, after the pretraining that they need."""
    pretrain_all(arguments, (10, 1))
    fine_tuning: dict[str, dict[str, Any]] = {}
    for init in INITS:
        for world in arguments.worlds:
            fine_tuning |= tasks_of(world, init, arguments)
    side_by_side(jumpstart_one, fine_tuning, arguments.folder, arguments.processes)
    return {name: kmyriad.open_run(arguments.folder / name) for name in fine_tuning}


def pretrain_all(arguments: argparse.Namespace, populations: tuple[int, ...]) -> None:
    """Populations of so many agents in every world, and for every seed."""
    pretraining = {
        source_name(world, agents, seed): {
            "env": world, "agents": agents, "seed": seed, "total_steps": arguments.pretrain_steps
        }
        for world in arguments.worlds
        for seed in range(arguments.seeds)
        for agents in populations
    }  # fmt: skip
    side_by_side(pretrain_one, pretraining, arguments.folder, arguments.processes)


def tasks_of(world: str, init: str, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Settings of the jump-starts in a world, every seed and goal, by name."""
    goals = goals_of(world, arguments.goals)
    tasks = {}
    for seed in range(arguments.seeds):
        source = arguments.folder / source_name(world, 1 if init == "single" else 10, seed)
        for index, goal in enumerate(goals):
            settings = {"source": str(source), "init": init, "goal": goal, "seed": seed, "total_steps": arguments.steps}
            tasks[f"{world}-{init}-{seed}-goal-{index}"] = settings
    return tasks


def source_name(world: str, agents: int, seed: int) -> str:
    return f"{world}-{agents}-agents-{seed}"


def goals_of(world: str, count: int) -> list[tuple[float, ...]]:
    made = kmyriad.make_world(world)
    goals = draw_goals(made.terrain, Annulus(AFFORDABLE, FARTHEST), count, made.goal_radius, GOAL_SEED)
    return [tuple(round(float(number), 2) for number in goal) for goal in goals]


def pretrain_one(folder: Path, settings: dict[str, Any]) -> None:
    kmyriad.pretrain(out=folder, resume=folder.exists(), threads=1, **settings)


def jumpstart_one(folder: Path, settings: dict[str, Any]) -> None:
    if folder.exists():
        kmyriad.jumpstart(out=folder, resume=True, total_steps=settings["total_steps"])
    else:
        kmyriad.jumpstart(out=folder, threads=1, **settings)
    fresh_success(kmyriad.open_run(folder))


def fresh_success(run: Run) -> float:
    """Of the newest policy in fresh episodes of the whole horizon; kept with the run."""
    kept, iterations = run.path / "fresh.json", len(run.metrics())
    if kept.exists():
        known = json.loads(kept.read_text())
        if known["iterations"] == iterations:
            return float(known["success"])
    play = trials(task_of(run.jumpstart), load_population(run), EVALUATION_SEED, threads=1)
    solved = play([0], FRESH_EPISODES, 0).success
    assert solved is not None  # its task has a goal
    success = float(solved.mean())
    kept.write_text(json.dumps({"iterations": iterations, "success": success}) + "\n")
    return success


def show(world: str, runs: dict[str, list[Run]]) -> dict[str, float]:
    """Print a world's table; returns the mean area under the success curve of every init.

    Intervals are over seeds: the goals of one seed are averaged first.
    """
    table = Table("start", "area under the curve", "success at the end", "each run", "steps to 50 %", title=world)
    areas = {}
    for init, of_init in runs.items():
        values = [jumpstart_values(run) for run in of_init]
        seeds = [run.config.run.seed for run in of_init]
        area = mean_of(by_seed(seeds, [float(value["area"] or 0) for value in values]))
        fresh = [fresh_success(run) for run in of_init]
        steps = [value["steps_to_half"] for value in values if value["steps_to_half"] is not None]
        reached = f"{np.median(steps):,.0f} ({len(steps)} of {len(values)})" if steps else f"none of {len(values)}"
        each = " ".join(f"{success:.2f}" for success in fresh)
        table.add_row(init, str(area), str(mean_of(by_seed(seeds, fresh))), each, reached)
        areas[init] = area.mean
    Console().print(table)
    return areas


def by_seed(seeds: list[int], values: list[float]) -> list[float]:
    """The mean of each seed's values."""
    return [
        float(np.mean([value for one, value in zip(seeds, values, strict=True) if one == seed])) for seed in {*seeds}
    ]


if __name__ == "__main__":
    main()
