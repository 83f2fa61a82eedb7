"""Which commits of the code trained a run."""

import subprocess
from pathlib import Path

from kmyriad.runs.files import read_json, write_json
from kmyriad.runs.run import version

PACKAGE = Path(__file__).parents[1]


def current_commit() -> str:
    """Of the code that runs now, with a + if it was changed since; the version where it is no checkout."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # installed somewhere inside another repository
        return f"version {version()}"
    changed = _git("status", "--porcelain", "--untracked-files=no", ".")
    return f"{_git('rev-parse', '--short=10', 'HEAD')}{'+' if changed else ''}"


def note_commit(run: Path) -> None:
    """Add the present commit to those that trained the run in a folder."""
    commits = commits_of(run)
    if current_commit() not in commits:
        write_json(_path(run), {"commits": [*commits, current_commit()]})


def commits_of(run: Path) -> list[str]:
    """Those that trained the run in a folder, the first one first."""
    commits: list[str] = read_json(_path(run))["commits"] if _path(run).exists() else []
    return commits


def _path(run: Path) -> Path:
    return run / "commits.json"


def _git(*arguments: str) -> str | None:
    """What git says in the package's folder; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
