"""One task of a sweep in a process of its own: `python -m kmyriad.sweeps.worker MODULE:FUNCTION FILE`.

The file holds the function's arguments as JSON. What came of it is written to a file beside it, so that processes,
SLURM and Ray can be asked in the same way.
"""

import os
import sys
import threading
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kmyriad.errors import TrainingStoppedError, UsageError, first_line
from kmyriad.runs.files import read_json, write_json


@dataclass(frozen=True)
class Outcome:
    value: Any = None
    """What the function returned, as plain JSON."""
    error: str | None = None
    """A sentence, where it failed."""
    is_final: bool = False
    """Whether trying again is of no use, as the input is at fault."""


def perform(function: str, arguments: str) -> None:
    """Call `module:name` with the arguments in a file, and write down the outcome."""
    path = Path(arguments)
    try:
        module, _, name = function.partition(":")
        value = getattr(import_module(module), name)(**read_json(path))
        outcome = Outcome(value)
    except UsageError as error:
        outcome = Outcome(error=str(error), is_final=True)
    except TrainingStoppedError as error:
        outcome = Outcome(error=str(error))
    except Exception as error:
        traceback.print_exc()  # into the log
        outcome = Outcome(error=f"{type(error).__name__}: {first_line(error)}; its log has the rest")
    write_json(outcome_path(path), vars(outcome))


def perform_there(directory: str, function: str, arguments: str) -> None:
    """`perform` on another machine, in the directory that paths are relative to; what it says goes to the log."""
    os.chdir(directory)
    with open(log_path(Path(arguments)), "a") as log, redirect_stdout(log), redirect_stderr(log):
        perform(function, arguments)


def log_path(arguments: Path) -> Path:
    return arguments.with_suffix(".log")


def outcome_path(arguments: Path) -> Path:
    return arguments.with_suffix(".outcome.json")


def read_outcome(arguments: Path, otherwise: str) -> Outcome:
    """What came of it; the sentence `otherwise` if it ended without a word."""
    try:
        told = read_json(outcome_path(arguments))
    except UsageError:
        return Outcome(error=otherwise)
    return Outcome(told.get("value"), told.get("error"), bool(told.get("is_final")))


def end_with_the_sweep() -> None:
    """End this process when the one that holds the other end of its standard input is gone, however it went."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)  # not through Python's buffer, whose lock Python wants when it ends
        os._exit(1)  # a run can be stopped at any moment

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    end_with_the_sweep()
    perform(*sys.argv[1:])
