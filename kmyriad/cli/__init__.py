"""The command line: which command, and how it ends."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from kmyriad.errors import TrainingStoppedError, UsageError, nearest_name
from kmyriad.torchrun import is_one_of_many, talks

COMMANDS = {
    "pretrain": ("train a population without reward", "pretrain ant-maze --agents 10"),
    "evaluate": ("measure coverage, and how agents differ", "evaluate RUN"),
    "report": ("write a page about runs, with goals to pick", "report RUN"),
    "select": ("rank the agents for a goal", "select RUN --goal 6 3"),
    "jumpstart": ("fine-tune the best agent to a goal with PPO", "jumpstart RUN --goal 6 3"),
    "sweep": ("train many runs: a grid of settings in a file", "sweep sweep.toml"),
    "compare": ("compare runs: means and intervals over seeds", "compare RUN RUN RUN"),
    "reproduce": ("repeat the paper and judge its claims", "reproduce all --size quick"),
    "video": ("film what agents do", "video RUN --agents 0,3,7"),
    "export": ("write policies for other libraries", "export RUN --to sb3-ppo --goal 6 3"),
    "pack": ("write a run into one file to share", "pack RUN"),
    "runs": ("list runs and their progress", "runs"),
}
"""What each does, and an example. Each is a module of `kmyriad.cli`."""

RESUMED_BY = {
    "pretrain": "the same --out and --resume",
    "jumpstart": "the same --out and --resume",
    "sweep": "the same command",
    "reproduce": "the same command",
}
"""How a command goes on that was stopped."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    if not is_one_of_many():
        _main(arguments)
        return
    signal.signal(signal.SIGTERM, _ended_by_torchrun)
    code: str | int | None = 0
    try:
        _main(arguments)
    except SystemExit as error:
        code = error.code
    _leave(code if isinstance(code, int) else 1)


def _ended_by_torchrun(*_: object) -> None:
    _say("torchrun ends this process, as it does when another one has ended; resume from the last checkpoint")
    _leave(1)


def _leave(code: int) -> NoReturn:
    """Threads of the process group may still run, and the interpreter would abort when it takes them down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _main(arguments: Sequence[str] | None) -> None:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_usage(), end="")
            return
        name, *rest = arguments
        if name in ("-V", "--version"):
            from importlib.metadata import version

            print(f"kmyriad {version('kmyriad')}")
            return
        if name not in COMMANDS:
            raise UsageError(f"unknown command {name!r}{nearest_name(name, COMMANDS)}")
        from kmyriad.cli.numbers import whole_numbers

        with whole_numbers():
            import_module(f"kmyriad.cli.{name}").run(rest)
        sys.stdout.flush()
    except UsageError as error:
        _say(error)
        sys.exit(2)
    except TrainingStoppedError as error:
        _say(error)
        sys.exit(1)
    except MemoryError as error:
        _say(f"there is not enough memory ({error}); use fewer replicas or smaller layers")
        sys.exit(2)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        goes_on = f"; go on with {RESUMED_BY[arguments[0]]}" if arguments[0] in RESUMED_BY else ""
        _say(f"stopped{goes_on}")
        sys.exit(130)


def _say(sentence: object) -> None:
    who = "kmyriad" if talks() else f"kmyriad, process {os.environ.get('RANK')}"
    print(f"{who}: {sentence}", file=sys.stderr)


def _usage() -> str:
    lines = "".join(f"  {name:<10} {what:<46} kmyriad {example}\n" for name, (what, example) in COMMANDS.items())
    return (
        f"kmyriad: populations of policies that explore together\n\n{lines}\n"
        "Each command explains its settings: kmyriad pretrain --help\n"
    )
