"""The command line: which command, and how it ends."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from kmyriad.errors import TrainingStoppedError, UsageError, nearest_name

COMMANDS = {
    "pretrain": "train a population without reward             kmyriad pretrain ant-maze --agents 10",
    "evaluate": "how much heads cover, and how they differ     kmyriad evaluate RUN",
    "report": "one page about runs, with goals to pick       kmyriad report RUN",
    "select": "rank the heads for a goal                     kmyriad select RUN --goal 6 3",
    "jumpstart": "fine-tune the best head to a goal with PPO    kmyriad jumpstart RUN --goal 6 3",
    "compare": "means and intervals over seeds                kmyriad compare RUN RUN RUN",
    "video": "film what the heads do                        kmyriad video RUN --heads 0,3,7",
    "runs": "list the runs and how far they are            kmyriad runs",
}
"""Each is a module of `kmyriad.commands`."""

RESUMABLE = ("pretrain", "jumpstart")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_usage(), end="")
            return
        name, *rest = arguments
        if name not in COMMANDS:
            raise UsageError(f"unknown command {name!r}{nearest_name(name, COMMANDS)}")
        import_module(f"kmyriad.cli.{name}").run(rest)
        sys.stdout.flush()
    except UsageError as error:
        print(f"kmyriad: {error}", file=sys.stderr)
        sys.exit(2)
    except TrainingStoppedError as error:
        print(f"kmyriad: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        goes_on = "; go on with the same --out and --resume" if arguments[0] in RESUMABLE else ""
        print(f"kmyriad: stopped{goes_on}", file=sys.stderr)
        sys.exit(130)


def _usage() -> str:
    lines = "".join(f"  kmyriad {name:<10} {what}\n" for name, what in COMMANDS.items())
    return (
        f"kmyriad: populations of policies that explore together\n\n{lines}\n"
        "Each command explains its settings: kmyriad pretrain --help\n"
    )
