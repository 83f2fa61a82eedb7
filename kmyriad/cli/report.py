"""`kmyriad report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kmyriad.errors import UsageError


@dataclass(frozen=True)
class Command:
    """Write one HTML page about runs: what came of them, where each agent goes, and which agent suits a goal."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs."""
    out: Path = Path("report.html")
    """The page; it opens from disk and needs no network."""
    episodes: int | None = None
    """Episodes to show of each population, all its agents together; none takes those already played, 300 at least."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad report")
    if not command.runs:
        raise UsageError("name at least one run's folder:  kmyriad report runs/NAME")
    if command.episodes is not None and command.episodes < 1:
        raise UsageError(f"--episodes must be at least 1; got {command.episodes}")
    from kmyriad.report import write_report
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run

    write_report([open_run(path) for path in command.runs], command.out, command.episodes)
    say(f"wrote {command.out}")
