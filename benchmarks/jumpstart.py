"""Is a jump-start worth it? Goals beyond 4.5 m, learned from a population, from one max-entropy policy, from nothing.

For every world and seed a population and a single policy are pretrained on the same number of steps. Then each of the
seed's goals is learned from the population's best agent (`best`), from the single policy (`single`) and from the best
of ten random agents that practised (`random`). The steps that selecting an agent and practising take count. Compared
are the area under the success curve, that is the mean success over all steps, and the success of the last policy in
fresh whole episodes.

With `--study` only the best agents are fine-tuned, with some settings as they are by default and as they are elsewhere.

Resumable: run it again and it goes on, on another machine with `--known` and the file that `--json` wrote.
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from experiments import EVALUATION_SEED, read_known, side_by_side
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

WORLDS = ("ant-empty", "ant-maze", "ant-pyramid", "ant-cave")
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
    parser.add_argument("--seeds", type=int, nargs="*", default=[10, 11, 12, 13, 14], help="seeds (default: 10 to 14)")
    parser.add_argument("--goals", type=int, default=2, help="goals of a seed (default: %(default)s)")
    parser.add_argument("--priors", action="store_true", help="populations are told the symmetries of their world")
    parser.add_argument(
        "--pretrain-steps", type=int, default=1_000_000, help="of each population (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=800_000, help="of each goal, with selection (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/jumpstart"), help="where runs are kept")
    parser.add_argument("--known", type=Path, metavar="FILE", help="what runs have told that need not be made again")
    parser.add_argument("--study", action="store_true", help="only compare settings of fine-tuning")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the success curves there")
    arguments = parser.parse_args()
    if arguments.study:
        study(arguments)
        return
    known = read_known(arguments.known)
    found = known | learn(arguments, known)
    values: dict[str, float] = {}
    for world in arguments.worlds:
        values |= show(world, {init: told_of(found, world, init, arguments) for init in INITS})
    if arguments.pictures:
        runs = [arguments.folder / name for name in found]
        for name, figure in figures.draw_comparison(kmyriad.compare([run for run in runs if run.exists()])).items():
            figures.save(figure, arguments.pictures / f"jumpstart-{name}")
    table = Table("figure", "value")
    for name, value in values.items():
        table.add_row(name, f"{value:.3g}")
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": values, "runs": found}, indent=1) + "\n")


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


def learn(arguments: argparse.Namespace, known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What every jump-start told, by name, after the pretraining that those need which are not `known`."""
    fine_tuning: dict[str, dict[str, Any]] = {}
    for init in INITS:
        for world in arguments.worlds:
            fine_tuning |= tasks_of(world, init, arguments)
    if not fine_tuning.keys() <= known.keys():
        pretrain_all(arguments, (10, 1))
    return side_by_side(jumpstart_one, fine_tuning, arguments.folder, arguments.processes, known)


def told_of(
    found: Mapping[str, dict[str, Any]], world: str, init: str, arguments: argparse.Namespace
) -> list[list[dict[str, Any]]]:
    """What the jump-starts from `init` in a world told: for every seed, of each of its goals."""
    return [[found[run_name(world, init, seed, goal)] for goal in range(arguments.goals)] for seed in arguments.seeds]


def pretrain_all(arguments: argparse.Namespace, populations: tuple[int, ...]) -> None:
    """Populations of so many agents in every world, and for every seed."""
    pretraining = {
        source_name(world, agents, seed): {
            "env": world, "agents": agents, "seed": seed, "total_steps": arguments.pretrain_steps,
            "priors": arguments.priors,
        }
        for world in arguments.worlds
        for seed in arguments.seeds
        for agents in populations
    }  # fmt: skip
    side_by_side(pretrain_one, pretraining, arguments.folder, arguments.processes)


def tasks_of(world: str, init: str, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Settings of the jump-starts in a world, every seed and goal, by name."""
    tasks = {}
    for seed in arguments.seeds:
        source = arguments.folder / source_name(world, 1 if init == "single" else 10, seed)
        for index, goal in enumerate(goals_of(world, arguments.goals, seed)):
            settings = {"source": str(source), "init": init, "goal": goal, "seed": seed, "total_steps": arguments.steps}
            tasks[run_name(world, init, seed, index)] = settings
    return tasks


def source_name(world: str, agents: int, seed: int) -> str:
    return f"{world}-{agents}-agents-{seed}"


def run_name(world: str, init: str, seed: int, goal: int) -> str:
    return f"{world}-{init}-{seed}-goal-{goal}"


def goals_of(world: str, count: int, seed: int) -> list[tuple[float, ...]]:
    """A seed's own goals, the same for all starts."""
    made = kmyriad.make_world(world)
    goals = draw_goals(made.terrain, Annulus(AFFORDABLE, FARTHEST), count, made.goal_radius, GOAL_SEED + seed)
    return [tuple(round(float(number), 2) for number in goal) for goal in goals]


def pretrain_one(folder: Path, settings: dict[str, Any]) -> None:
    kmyriad.pretrain(out=folder, resume=folder.exists(), threads=1, **settings)


def jumpstart_one(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune on one core; what its success curve comes to, and `fresh_success`."""
    if folder.exists():
        run = kmyriad.jumpstart(out=folder, resume=True, total_steps=settings["total_steps"])
    else:
        run = kmyriad.jumpstart(out=folder, threads=1, **settings)
    return {"goal": settings["goal"], **jumpstart_values(run), "fresh_success": fresh_success(run)}


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


def show(world: str, inits: Mapping[str, list[list[dict[str, Any]]]]) -> dict[str, float]:
    """Print a world's table of what each start told, by seed and goal; returns its figures.

    The goals of one seed are no independent runs: they are averaged first. Intervals are over seeds, differences from
    the best agent's start paired by seed.
    """
    table = Table("start", "area under the curve", "success at the end", "best is ahead by", "by seed", title=world)
    areas = {init: by_seed(told, "area") for init, told in inits.items()}
    area = {init: float(np.mean(of_init)) for init, of_init in areas.items()}
    ends = {init: by_seed(told, "fresh_success") for init, told in inits.items()}
    values = {f"auc_{init}_{world}": mean for init, mean in area.items()}
    for init, end in ends.items():
        ahead = np.subtract(ends["best"], end)
        each = " ".join(f"{success:.2f}" for success in end)
        table.add_row(
            init, str(mean_of(areas[init])), str(mean_of(end)), "-" if init == "best" else str(mean_of(ahead)), each
        )
        values[f"success_{init}_{world}"] = float(np.mean(end))
    for other in ("random", "single"):
        values[f"auc_best_vs_{other}_{world}"] = area["best"] / max(area[other], LEAST_AREA)
    Console().print(table)
    return values


def by_seed(told: list[list[dict[str, Any]]], what: str) -> list[float]:
    """The mean over each seed's goals."""
    return [float(np.mean([goal[what] for goal in goals])) for goals in told]


if __name__ == "__main__":
    main()
