"""Which commit of the code trained each run of a campaign that may take weeks."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from kmyriad.runs.files import read_json, write_json
from kmyriad.runs.run import version

PACKAGE = Path(__file__).parents[1]
NOT_TRAINED = "not trained yet"


def current_commit() -> str:
    """Of the code that runs now, with a + if it was changed since; the version where it is no checkout."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # installed somewhere inside another repository
        return f"version {version()}"
    changed = _git("status", "--porcelain", "--untracked-files=no", ".")
    return f"{_git('rev-parse', '--short=10', 'HEAD')}{'+' if changed else ''}"


def note_commit(path: Path, names: Iterable[str]) -> None:
    """Write down in a file that the runs `names` are trained by the present commit from here on."""
    told = read_json(path) if path.exists() else {}
    commit = current_commit()
    for name in names:
        if commit not in told.setdefault(name, []):
            told[name].append(commit)
    write_json(path, told)


def commits_of(path: Path, names: Iterable[str]) -> str:
    """`1a2b3c4d5e`, or several where runs were trained by several."""
    told = read_json(path) if path.exists() else {}
    found = dict.fromkeys(commit for name in names for commit in told.get(name, [NOT_TRAINED]))
    return ", ".join(found) or current_commit()


def _git(*arguments: str) -> str | None:
    """What git says in the package's folder; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
