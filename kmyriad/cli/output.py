"""Where commands put their words and numbers."""

from typing import TYPE_CHECKING

from rich.console import Console

from kmyriad.runs.files import shell_path

if TYPE_CHECKING:
    from kmyriad.runs.run import Run

PLAIN_WIDTH = 140
"""Characters of a line where the output is no terminal: no table is cut."""


def output() -> Console:
    """What is asked for goes here; what is told on the way goes to stderr."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def next_steps(run: "Run") -> None:
    """What can be done with a run that has ended, as commands to paste."""
    from kmyriad.runs.progress import say

    path = shell_path(run.path)
    say(f"done; look at it with:\n  kmyriad report {path}\n  kmyriad video {path}")
    if run.command == "pretrain":
        say("the page has a map to pick a goal from, and the command that goes on from there")
