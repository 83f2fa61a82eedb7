"""`kmyriad reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Command:
    """Repeat figures and tables of the paper, and judge its claims on a page.

    Stop it at any time and go on with the same command, also on another machine: what a finished run told is kept in
    OUT/measured, and the run itself is not needed any more. Runs that several figures need are trained once.
    """

    targets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="LIST")]
    """What: entropy-curves, budget, kl-table, diversity, success-rates, long-run, goal-regions, goal-maps, heatmaps,
    point-maze, or all."""
    size: Literal["quick", "desk", "paper"] = "quick"
    """Size of the runs: quick (minutes; shows that it works), desk (hours), paper (as printed)."""
    method: Literal["ours", "paper"] = "ours"
    """Method: our default, or the paper's objective, network, rule and rates."""
    out: Path | None = None
    """Folder of runs, what they told, figures, tables, verdicts and page; none: reproduction/SIZE-METHOD."""
    only: tuple[str, ...] = ()
    """Only the runs of these names, with * for any part, such as 'ant-empty-*-seed-0'; none: all."""
    train: bool = True
    """Train what is left. With --no-train the page is made of what was measured."""
    on: Literal["processes", "slurm", "ray"] = "processes"
    """On what the runs are trained: processes of this machine, slurm or ray."""
    processes: int | None = None
    """Runs at a time; none: one per core, and no limit on a cluster."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """List the runs with their steps and about how long they take, and train nothing."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad reproduce")
    from kmyriad.reproduction.reproduce import cost_of, planned, reproduce
    from kmyriad.runs.progress import say
    from kmyriad.sweeps.sweep import cores

    if command.dry_run:
        _, plan, _ = planned(command.targets, command.size, command.method, command.out, command.only)
        for line in cost_of(plan, command.size, command.method, command.processes or cores()):
            print(line)
        return
    page = reproduce(
        command.targets,
        size=command.size,
        method=command.method,
        out=command.out,
        only=command.only,
        train=command.train,
        on=command.on,
        processes=command.processes,
    )
    say(f"done; the page is {page}")
