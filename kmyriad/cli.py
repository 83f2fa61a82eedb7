"""The command line: parsing only."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.config import PretrainConfig, config_from
from kmyriad.envs import find_id
from kmyriad.errors import TrainingStoppedError, UsageError, nearest_name
from kmyriad.presets import preset as preset_config

if TYPE_CHECKING:
    from kmyriad.runs import Run

USAGE = """kmyriad: populations of policies that explore together

  kmyriad pretrain ant-maze --agents 10    train a population without reward
  kmyriad runs                             list the runs and how far they are

Each command explains its settings: kmyriad pretrain --help
"""


@dataclass(frozen=True)
class Pretrain:
    """Train a population of policies, without reward, to cover a world's states together (the paper's Algorithm 1).

    Stop it at any time and go on with: kmyriad pretrain --out FOLDER --resume
    """

    config: Annotated[PretrainConfig, tyro.conf.arg(name="")]
    preset: str = "quick"
    """Settings to start from: quick (3 minutes on two cores), desk (15), paper (Table 2); flags change single ones."""
    out: Path | None = None
    """Folder of the run; by default a new one below runs/."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on from the newest good checkpoint of the run in --out."""
    env_setting: tuple[str, ...] = ()
    """Further settings of the environment, such as map=u or size=7 reset_noise=0.5."""


@dataclass(frozen=True)
class Runs:
    """List runs, newest first."""

    root: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder to look in."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    commands = {"pretrain": _pretrain, "runs": _runs}
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(USAGE, end="")
            return
        if arguments[0] not in commands:
            raise UsageError(f"unknown command {arguments[0]!r}{nearest_name(arguments[0], commands)}")
        commands[arguments[0]](arguments[1:])
    except UsageError as error:
        print(f"kmyriad: {error}", file=sys.stderr)
        sys.exit(2)
    except TrainingStoppedError as error:
        print(f"kmyriad: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("kmyriad: stopped; go on with the same --out and --resume", file=sys.stderr)
        sys.exit(130)


def _pretrain(arguments: list[str]) -> None:
    asked = _parse_pretrain(arguments, PretrainConfig())
    find_id(asked.config.env)
    world, agents = asked.config.env, asked.config.agents
    base = _config_of(asked.out) if asked.resume else preset_config(asked.preset, world, agents)
    command = _parse_pretrain(arguments, base)
    from kmyriad.pretraining import train  # torch takes seconds to import; most bad input is told before

    train(command.config, command.out, command.resume)


def _config_of(folder: Path | None) -> PretrainConfig:
    from kmyriad.runs import open_run

    if folder is None:
        raise UsageError("--resume needs the run's folder; add --out FOLDER")
    return config_from(open_run(folder).config)


def _parse_pretrain(arguments: list[str], base: PretrainConfig) -> Pretrain:
    """The command with `base` where the arguments say nothing. The world may come first, without its flag."""
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--env", *arguments]
    command = tyro.cli(Pretrain, args=arguments, default=Pretrain(base), prog="kmyriad pretrain")
    settings = base.env_settings | dict(_parse_setting(text) for text in command.env_setting)
    return replace(command, config=replace(command.config, env_settings=settings))


def _parse_setting(text: str) -> tuple[str, object]:
    """`size=7` to ("size", 7): values are JSON where they can be, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env-setting takes name=value, such as map=u; got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _runs(arguments: list[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from kmyriad.runs import list_runs

    command = tyro.cli(Runs, args=arguments, prog="kmyriad runs")
    runs = list_runs(command.root)
    if not runs:
        raise UsageError(f"no runs in {command.root}; start one with: kmyriad pretrain")
    table = Table(Column("run", overflow="fold"), "world", "agents", "epochs", "env steps", "entropy", "state")
    for run in runs:
        table.add_row(*_run_row(run))
    Console().print(table)


def _run_row(run: "Run") -> tuple[str, ...]:
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
