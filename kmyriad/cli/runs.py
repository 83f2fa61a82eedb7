"""`kmyriad runs`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.checks import is_number
from kmyriad.config import PretrainConfig
from kmyriad.errors import UsageError

if TYPE_CHECKING:
    from kmyriad.runs.run import Run

REACHED = ("entropy", "success", "return")


@dataclass(frozen=True)
class Command:
    """List runs and their progress, newest first."""

    root: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder to look in."""


def run(arguments: list[str]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    from kmyriad.cli.output import output
    from kmyriad.runs.run import list_runs

    command = tyro.cli(Command, args=arguments, prog="kmyriad runs")
    runs = list_runs(command.root)
    if not runs:
        raise UsageError(f"no runs in {command.root}; start one with: kmyriad pretrain")
    columns = ("command", "world", "agents", "iterations", "env steps", "reached", "state")
    table = Table(Column("run", overflow="fold"), *columns)
    for one in runs:
        table.add_row(*(Text(cell) for cell in _row(one)))
    output().print(table)


def _row(run: "Run") -> tuple[str, ...]:
    from kmyriad.runs.run import is_training

    try:
        config, last = run.config, run.last_row()
    except UsageError as error:
        return str(run.path), "-", "-", "-", "-", "-", "-", str(error)
    agents = config.population.agents if isinstance(config, PretrainConfig) else config.start.top
    reached = [f"{name} {last[name]:.2f}" for name in REACHED if is_number(last.get(name))]
    steps = last.get("env_steps", 0)
    done = f"{steps:,}/{config.run.total_steps:,}" if is_number(steps) else "-"
    state = "finished" if run.is_finished else "training" if is_training(run) else "can be resumed"
    named = (str(run.path), run.command, run.env, str(agents), str(last.get("iteration", 0)))
    return *named, done, (reached or ["-"])[0], state
