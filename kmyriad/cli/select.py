"""`kmyriad select`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from kmyriad.evaluation.selection import Ranking


@dataclass(frozen=True)
class Command:
    """Rank the heads of a run by how often they come to a goal, to see where a jump-start should begin."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a pretraining run."""
    goal: tuple[float, ...] = ()
    """Where to go, metres from the middle of the world: x y, or x y z. Other environments have rewards of their own."""
    goal_radius: float | None = None
    """Metres around the goal that count as there; none takes the world's own."""
    stored: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Rank at once by the episodes that are stored with the run; nothing is simulated."""
    steps: int = 60_000
    """Environment steps to spend at most."""
    seed: int = 0
    """Of the new episodes."""
    threads: int | None = None
    """CPU threads; none takes all cores."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad select")
    from kmyriad.jumpstart_config import JumpstartConfig
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run
    from kmyriad.runs.state import load_population
    from kmyriad.training.jumpstart import rank_heads, rank_stored, task_of, with_source

    config = with_source(
        JumpstartConfig(
            str(command.run),
            command.goal,
            command.goal_radius,
            selection_steps=command.steps,
            seed=command.seed,
            threads=command.threads,
        )
    )
    task, source = task_of(config), open_run(command.run)
    if command.stored:
        ranking, spent = rank_stored(task, source), 0
    else:
        population = load_population(source)
        say(f"trying heads: {population.agents}; {command.steps:,} environment steps at most")
        ranking = rank_heads(task, population, command.steps, command.seed, command.threads)
        spent = ranking.episodes * task.horizon
    show(ranking, bool(task.goal), spent)
    if task.goal:
        goal = " ".join(f"{number:g}" for number in task.goal)
        print(f"kmyriad jumpstart {command.run} --goal {goal} --head {ranking.best}")


def show(ranking: "Ranking", has_goal: bool, env_steps: int) -> None:
    """Print the table and, in a sentence, what it says."""
    from rich.table import Table

    from kmyriad.cli.output import output

    console = output()
    table = Table(
        "head", "success", "95 % interval", "steps to success", "closest, m" if has_goal else "return", "episodes"
    )
    for standing in ranking.standings:
        low, high = standing.interval
        shortfall = standing.shortfall if has_goal else -standing.shortfall
        table.add_row(
            str(standing.head), f"{standing.success:.2f}", f"{low:.2f} to {high:.2f}",
            "-" if standing.steps is None else f"{standing.steps:.0f}", f"{shortfall:.2f}", str(standing.episodes),
        )  # fmt: skip
    console.print(table)
    console.print(_verdict(ranking, has_goal), f"{env_steps:,} environment steps were simulated.", highlight=False)


def _verdict(ranking: "Ranking", has_goal: bool) -> str:
    if ranking.is_by_shortfall:
        return f"No head ever succeeded: ranked by {'closest approach' if has_goal else 'return'}."
    if len(ranking.standings) == 1:
        return "There is no other head to compare it with."
    if ranking.is_certain:
        return f"Head {ranking.best} is the best beyond doubt (95 %)."
    return f"Head {ranking.best} leads, but others may be as good."
