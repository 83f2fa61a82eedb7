"""Where commands put their numbers: on the screen and in files."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from kmyriad.errors import UsageError
from kmyriad.runs.files import write_atomically

PLAIN_WIDTH = 140
"""Characters of a line where the output is no terminal: no table is cut."""


def output() -> Console:
    """What is asked for goes here; what is told on the way goes to stderr."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def write_json(path: Path, content: Any) -> None:
    """Put plain JSON at `path`, whole or not at all; folders are made."""
    data = json.dumps(content, allow_nan=False, indent=2).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; choose another --json or free some space"
        ) from error
