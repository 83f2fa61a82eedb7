"""Which commit of the code trained each run of a campaign that may take weeks."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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


def note_commits(path: Path, steps: Mapping[str, int]) -> None:
    """Credit the runs that have made steps since the last call to the commit of then, and go on with the present one.

    To be called before training and after it: what was killed on the way is credited the next time. `steps` are those
    that each run has made by now.
    """
    told = _read(path)
    for name, before in told["steps"].items():
        commits = told["runs"].setdefault(name, [])
        if steps.get(name, before) > before and told["commit"] not in commits:
            commits.append(told["commit"])
    write_json(path, {"commit": current_commit(), "steps": dict(steps), "runs": told["runs"]})


def commits_of(path: Path, names: Iterable[str]) -> str:
    """`1a2b3c4d5e`, or several where runs were trained by several; the present one where no run is needed."""
    runs = _read(path)["runs"]
    found = dict.fromkeys(commit for name in names for commit in runs.get(name) or [NOT_TRAINED])
    return ", ".join(found) or current_commit()


def _read(path: Path) -> dict[str, Any]:
    return {"commit": "", "steps": {}, "runs": {}} | (read_json(path) if path.exists() else {})


def _git(*arguments: str) -> str | None:
    """What git says in the package's folder; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
