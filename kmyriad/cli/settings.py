"""Commands that are a config with a few options more: `pretrain` and `jumpstart`."""

import dataclasses
import json
import re
from dataclasses import dataclass, field, fields, make_dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import tyro

from kmyriad.cli.output import output
from kmyriad.config import Config, settings_of, with_settings
from kmyriad.errors import UsageError

FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
"""`--agents 10` instead of `--population.agents 10`, and still a panel of its own for every block."""


@dataclass(frozen=True)
class Options:
    """What is no setting of the run itself."""

    out: Path | None = None
    """Folder of the run; by default a new one below runs/."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Resume the run in --out from its newest good checkpoint."""
    show_config: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the settings that all this comes to, and do nothing."""
    env_setting: tuple[str, ...] = ()
    """Settings of the environment itself, such as map=u or size=7 reset_noise=0.5."""


def parse(base: Config, options: Options, arguments: list[str], prog: str, description: str) -> tuple[Config, Any]:
    """(`base` and `options` with what the arguments say). Environment settings go on top of the base's."""
    told = parse_blocks(base, options, arguments, prog, description)
    config = dataclasses.replace(base, **{block.name: getattr(told, block.name) for block in fields(base)})
    if not told.options.env_setting:
        return config, told.options
    env_settings = settings_of(base)["env_settings"] | dict(_setting(text) for text in told.options.env_setting)
    return with_settings(config, {"env_settings": env_settings}), told.options


def parse_blocks(base: Config, options: Options, arguments: list[str], prog: str, description: str) -> Any:
    """The blocks of `base`, and `options`, with what the arguments say; whether they go together is not checked."""
    arguments = ["None" if text == "none" else text for text in with_goal_names(arguments)]
    blocks: list[tuple[str, Any]] = [(block.name, getattr(base, block.name)) for block in fields(base)]
    command = make_dataclass(
        "Command",
        [
            ("options", Annotated[type(options), tyro.conf.arg(name="")], field(default=options)),
            *((name, type(block), field(default=block)) for name, block in blocks),
        ],
        frozen=True,
    )
    return tyro.cli(command, args=arguments, prog=f"kmyriad {prog}", description=description, config=FLAT)


def with_goal_names(arguments: list[str]) -> list[str]:
    """`--goal x=10 z=1` as `--goal 10 1 --goal-names x z`; goals without names stay as they are."""
    if "--goal" not in arguments:
        return arguments
    first = arguments.index("--goal") + 1
    words = list(takewhile(lambda word: re.fullmatch(r"[^-=][^=]*=.*", word), arguments[first:]))
    if not words:
        return arguments
    names, numbers = zip(*(word.split("=", 1) for word in words), strict=True)
    rest = arguments[first + len(words) :]
    return [*arguments[:first], *numbers, "--goal-names", *names, *rest]


def flag(arguments: list[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value` among the arguments, before they are parsed."""
    for index, text in enumerate(arguments):
        word, equals, value = text.replace("_", "-").partition("=")
        if word == f"--{name}":
            return value if equals else (arguments[index + 1] if index + 1 < len(arguments) else "")
    return None


def show(config: Config) -> None:
    """Print a config block by block."""
    console = output()
    for name, block in config.as_json().items():
        if isinstance(block, dict):
            console.print(f"\n[bold]{name}[/]")
            for setting, value in block.items():
                console.print(f"  {setting:<24} {json.dumps(value)}", highlight=False, markup=False)


def _setting(text: str) -> tuple[str, Any]:
    """`size=7` to ("size", 7): values are JSON where they can be, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env-setting takes name=value, such as map=u; got {text!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
