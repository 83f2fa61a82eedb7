"""`kmyriad reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Command:
    """Repeat figures and tables of the paper, and judge its claims on a page.

    Stop it at any time and go on with the same command. Runs that several figures need are trained once.
    """

    targets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="LIST")]
    """What: entropy-curves, budget, kl-table, diversity, long-run, heatmaps, or all."""
    size: Literal["quick", "desk", "paper"] = "quick"
    """Size of the runs: quick (minutes; shows that it works), desk (hours), paper (as printed)."""
    method: Literal["paper", "ours"] = "paper"
    """Method: the paper's objective, network, rule and rates, or our default."""
    out: Path | None = None
    """Folder of runs, figures, tables, verdicts and page; none: reproduction/SIZE-METHOD."""
    processes: int | None = None
    """Runs at a time; none: one per core."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad reproduce")
    from kmyriad.reproduction.reproduce import reproduce
    from kmyriad.runs.progress import say

    page = reproduce(
        command.targets, size=command.size, method=command.method, out=command.out, processes=command.processes
    )
    say(f"done; the page is {page}")
