"""`kmyriad runs`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.errors import UsageError

if TYPE_CHECKING:
    from kmyriad.runs import Run


@dataclass(frozen=True)
class Command:
    """List runs, newest first."""

    root: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder to look in."""


def run(arguments: list[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from kmyriad.runs import list_runs

    command = tyro.cli(Command, args=arguments, prog="kmyriad runs")
    runs = list_runs(command.root)
    if not runs:
        raise UsageError(f"no runs in {command.root}; start one with: kmyriad pretrain")
    table = Table(Column("run", overflow="fold"), "world", "agents", "epochs", "env steps", "entropy", "state")
    for one in runs:
        table.add_row(*_row(one))
    Console().print(table)


def _row(run: "Run") -> tuple[str, ...]:
    config = run.config
    try:
        rows = run.metrics()
    except UsageError as error:
        return str(run.path), str(config.get("env")), str(config.get("agents")), "-", "-", "-", str(error)
    last = rows[-1] if rows else {}
    state = "finished" if run.is_finished else "can be resumed"
    entropy = f"{last['entropy']:.3f}" if last.get("entropy") is not None else "-"
    done = f"{last.get('epoch', 0)}/{config.get('epochs')}"
    steps = f"{last.get('env_steps', 0):,}"
    return str(run.path), str(config.get("env")), str(config.get("agents")), done, steps, entropy, state
