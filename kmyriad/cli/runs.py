"""`kmyriad runs`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.errors import UsageError

if TYPE_CHECKING:
    from kmyriad.runs.run import Run


@dataclass(frozen=True)
class Command:
    """List runs, newest first."""

    root: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder to look in."""


def run(arguments: list[str]) -> None:
    from rich.table import Column, Table

    from kmyriad.cli.output import output
    from kmyriad.runs.run import list_runs

    command = tyro.cli(Command, args=arguments, prog="kmyriad runs")
    runs = list_runs(command.root)
    if not runs:
        raise UsageError(f"no runs in {command.root}; start one with: kmyriad pretrain")
    columns = ("command", "world", "agents", "epochs", "env steps", "reached", "state")
    table = Table(Column("run", overflow="fold"), *columns)
    for one in runs:
        table.add_row(*_row(one))
    output().print(table)


def _row(run: "Run") -> tuple[str, ...]:
    config = run.config
    named = (str(run.path), run.command, str(config.get("env")), str(config.get("agents", config.get("top"))))
    try:
        rows = run.metrics()
    except UsageError as error:
        return *named, "-", "-", "-", str(error)
    last = rows[-1] if rows else {}
    state = "finished" if run.is_finished else "can be resumed"
    reached = [f"{name} {last[name]:.2f}" for name in ("entropy", "success") if last.get(name) is not None]
    done = f"{last.get('epoch', 0)}/{config.get('epochs')}"
    return *named, done, f"{last.get('env_steps', 0):,}", *(reached or ["-"])[:1], state
