"""Parts of a page that may be missing."""

from collections.abc import Callable
from typing import TypeVar

from kmyriad.errors import UsageError

Part = TypeVar("Part")


def attempt(what: str, make: Callable[[], Part], missing: list[str]) -> Part | None:
    """What `make` gives, or None and a sentence in `missing` that says what is not there, and why."""
    try:
        return make()
    except UsageError as error:
        reason = str(error)
    except Exception as error:  # what a damaged run or a user's own environment raises is anyone's guess
        reason = f"{type(error).__name__}: {error}"
    missing.append(f"No {what}: {reason}.")
    return None
