"""Settings of environments on the command line."""

import json
from collections.abc import Sequence
from typing import Any

from kmyriad.errors import UsageError


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """`size=7` to {"size": 7}: values are JSON where they can be, else text."""
    return dict(_parse(text) for text in texts)


def _parse(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env-setting takes name=value, such as map=u; got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
