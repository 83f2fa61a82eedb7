"""The one error that is the user's to mend, and what its sentences say of misspelt names and missing libraries."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module


class UsageError(ValueError):
    """Bad input, told in one sentence: what, where, the value received, what to do instead."""

    is_full_disk = False
    """Whether it came of a disk without room."""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` where one is close, then the list of known names: the tail of an error sentence."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{hint}; known: {', '.join(names)}"


def first_line(error: object) -> str:
    """What an exception says, as far as one sentence has room for it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def need(what: str, extra: str, *modules: str) -> None:
    """Refuse `what`, whose libraries are in an extra that is not installed."""
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            package = module.split(".")[0]
            if error.name is None or error.name.split(".")[0] != package:
                raise
            raise UsageError(
                f"{what} needs the package {package}, which is not installed; install it with:"
                f" pip install 'kmyriad[{extra}]'"
            ) from None


class TrainingStoppedError(RuntimeError):
    """A run that cannot go on by itself; the sentence says why, what is safe, and what to try."""
