"""`kmyriad pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Command:
    """Write a run into one file to share: policies, settings, evaluation, page and card. Commands take it as a run."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a pretraining run or a jump-start."""
    out: Path | None = None
    """The file; by default the run's name with the ending .kmyriad."""
    page: bool = True
    """Put the run's page in."""
    episodes: int | None = None
    """Episodes that evaluation and page show; none takes those already played, 300 at least."""
    threads: int | None = None
    """CPU threads; none takes all cores. Changes no number."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad pack")
    from kmyriad.checks import Between, checked
    from kmyriad.config import RunConfig
    from kmyriad.exporters.pack import pack
    from kmyriad.runs.files import shell_path
    from kmyriad.runs.progress import say

    RunConfig(threads=command.threads)  # refuses what it would refuse
    checked("episodes", command.episodes, Annotated[int | None, Between(1, 10_000_000)])
    path = pack(command.run, command.out, page=command.page, episodes=command.episodes, threads=command.threads)
    say(f"wrote {path} ({path.stat().st_size:,} bytes); it goes where a run does:  kmyriad report {shell_path(path)}")
