"""`kmyriad select`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.cli.settings import with_goal_names
from kmyriad.runs.files import shell_path

if TYPE_CHECKING:
    from kmyriad.evaluation.selection import Ranking


@dataclass(frozen=True)
class Command:
    """Rank the agents of a run by how often they come to a goal, to see where a jump-start should begin."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a pretraining run."""
    goal: tuple[float, ...] = ()
    """Goal: a point in the features that were explored, such as 6 3, or x=10 by name. Without one agents are ranked by
    the environment's own reward."""
    goal_names: tuple[str, ...] = ()
    """Features that the goal is a point in, as x=10 says; empty for the first ones."""
    goal_radius: float | None = None
    """Radius around the goal that counts as there; none takes the environment's own."""
    stored: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Stored episodes of the run rank its agents at once; nothing is simulated."""
    steps: int | None = None
    """Environment steps to spend at most; none lets them grow with agents and horizon."""
    seed: int = 0
    """Seed of the new episodes."""
    threads: int | None = None
    """CPU threads; none takes all cores."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=with_goal_names(arguments), prog="kmyriad select")
    from kmyriad.config import RunConfig, StartConfig, TaskConfig
    from kmyriad.evaluation.selection import select, task_in
    from kmyriad.runs.run import open_run

    RunConfig(seed=command.seed, threads=command.threads)  # refuse what they would refuse
    StartConfig(selection_steps=command.steps)
    source = open_run(command.run)
    names = command.goal_names
    goal = dict(zip(names, command.goal, strict=False)) if names else command.goal
    task = task_in(source, goal, command.goal_radius)
    ranking = select(
        source,
        goal,
        command.goal_radius,
        steps=command.steps,
        seed=command.seed,
        threads=command.threads,
        stored=command.stored,
    )
    show(ranking, bool(task.goal), 0 if command.stored else ranking.episodes * task.horizon)
    words = [f"kmyriad jumpstart {shell_path(command.run)}"]
    if task.goal:
        words.append("--goal " + " ".join(TaskConfig(task.goal, task.goal_names).goal_words))
    if task.goal_radius is not None:
        words.append(f"--goal-radius {task.goal_radius:g}")
    print(" ".join([*words, f"--agent {ranking.best}"]))


def show(ranking: "Ranking", has_goal: bool, env_steps: int) -> None:
    """Print the table and, in a sentence, what it says."""
    from rich.table import Table

    from kmyriad.cli.output import output

    console = output()
    by_return = ranking.standings[0].by_return
    other = () if by_return else ("steps to success", "closest" if has_goal else "return")
    table = Table("agent", "return" if by_return else "success", "95 % interval", *other, "episodes")
    for standing in ranking.standings:
        low, high = standing.interval
        steps = "-" if standing.steps is None else f"{standing.steps:.0f}"
        shortfall = f"{standing.shortfall if has_goal else -standing.shortfall:.2f}"
        score = shortfall if by_return else f"{standing.success:.2f}"
        cells = () if by_return else (steps, shortfall)
        table.add_row(str(standing.agent), score, f"{low:.2f} to {high:.2f}", *cells, str(standing.episodes))
    console.print(table)
    console.print(_verdict(ranking, has_goal), f"{env_steps:,} environment steps were simulated.", highlight=False)


def _verdict(ranking: "Ranking", has_goal: bool) -> str:
    if ranking.is_by_shortfall:
        return f"No agent ever succeeded: ranked by {'closest approach' if has_goal else 'return'}."
    if len(ranking.standings) == 1:
        return "There is no other agent to compare it with."
    if ranking.is_certain:
        return f"Agent {ranking.best} is the best beyond doubt (95 %)."
    return f"Agent {ranking.best} leads, but others may be as good."
