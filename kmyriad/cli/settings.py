"""Commands that are a config with a few flags more: `pretrain` and `jumpstart`."""

import json
from dataclasses import replace
from typing import Any, TypeVar

import tyro

from kmyriad.errors import UsageError

Command = TypeVar("Command", bound=Any)


def parse_training(default: Command, arguments: list[str], name: str, first: str) -> Command:
    """`default` (which has `config` and `env_setting`) with what the arguments say.

    The first argument may come without its flag, `first`. Settings of the environment go on top of the config's.
    """
    if arguments and not arguments[0].startswith("-"):
        arguments = [first, *arguments]
    command = tyro.cli(type(default), args=arguments, default=default, prog=f"kmyriad {name}")
    settings = default.config.env_settings | dict(_setting(text) for text in command.env_setting)
    return replace(command, config=replace(command.config, env_settings=settings))


def parse_asked(default: Command, arguments: list[str], name: str, first: str) -> Command:
    """As `parse_training`, to see what defaults the arguments ask for, which `--help` then shows."""
    return parse_training(default, [text for text in arguments if text not in ("-h", "--help")], name, first)


def _setting(text: str) -> tuple[str, Any]:
    """`size=7` to ("size", 7): values are JSON where they can be, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env-setting takes name=value, such as map=u; got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
