"""`kmyriad sweep`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from kmyriad.cli.output import output
from kmyriad.runs.files import shell_path

if TYPE_CHECKING:
    from kmyriad.sweeps.plan import Plan


@dataclass(frozen=True)
class Command:
    """Train many runs: a grid over settings, worlds, agents and seeds, written in a TOML file.

    Stop it at any time and go on with the same command. Finished runs are left alone, all others are resumed.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """TOML file with tables [pretrain.NAME] and [jumpstart.NAME]."""
    folder: Path | None = None
    """Folder of the runs; none takes the file's own, or runs/ and the file's name."""
    on: Literal["processes", "slurm", "ray"] = "processes"
    """Where: processes of this machine, slurm (extra: slurm) or a Ray cluster (extra: ray)."""
    processes: int | None = None
    """Runs at a time; none: one per core, and no limit on a cluster."""
    retries: int = 1
    """How often a run that failed is tried again."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the runs and how far they are, and do nothing."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad sweep")
    from kmyriad.runs.progress import say
    from kmyriad.sweeps.plan import read_plan
    from kmyriad.sweeps.sweep import sweep

    plan = read_plan(command.file, command.folder)
    if command.list:
        _list(plan)
        return
    runs = sweep(plan, on=command.on, processes=command.processes, retries=command.retries)
    by = " ".join(["", "--by", *plan.by]) if plan.by else ""
    say(f"all {len(runs)} runs are done; compare them with:\n  kmyriad compare {shell_path(plan.folder)}/*{by}")


def _list(plan: "Plan") -> None:
    from rich.table import Table
    from rich.text import Text

    from kmyriad.sweeps.sweep import steps_of

    table = Table("run", "command", "env steps", "starts from")
    for job in plan.jobs:
        steps = steps_of(job, plan.folder / job.name)
        cells = (str(plan.folder / job.name), job.command, f"{steps.done:,}/{steps.total:,}", job.after or "-")
        table.add_row(*map(Text, cells))
    output().print(table)
