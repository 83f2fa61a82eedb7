"""The checkpoints of a run: `iteration-000123.safetensors` and so on in one folder."""

import re
from pathlib import Path
from typing import NamedTuple

from kmyriad.errors import UsageError
from kmyriad.runs.files import os_errors, remove_temporaries
from kmyriad.runs.progress import say_once
from kmyriad.runs.tensor_file import CheckpointError, TensorFile, read_tensor_file


class NewestCheckpoint(NamedTuple):
    iteration: int
    content: TensorFile


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """`iteration-000123.safetensors` in `folder`."""
    if iteration < 0:
        raise UsageError(f"the iteration of a checkpoint must be 0 or above; got {iteration}")
    return folder / f"iteration-{iteration:06d}.safetensors"


def checkpoint_iterations(folder: Path) -> list[int]:
    """Iterations of the checkpoint files in `folder`, good or damaged, newest first."""
    with os_errors(f"list the checkpoints in {folder}", kind=CheckpointError):
        try:
            names = [path.name for path in folder.iterdir() if path.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
    matches = (re.fullmatch(r"iteration-([0-9]{6,18})\.safetensors", name) for name in names)
    iterations = {int(match[1]) for match in matches if match}
    return sorted((one for one in iterations if checkpoint_path(folder, one).name in names), reverse=True)


def newest_checkpoint(folder: Path) -> NewestCheckpoint | None:
    """The newest good checkpoint in `folder`; None if there are no files, CheckpointError if all are damaged.

    Damaged ones that it passes over are told.
    """
    skipped: list[str] = []
    for iteration in checkpoint_iterations(folder):
        try:
            newest = NewestCheckpoint(iteration, read_tensor_file(checkpoint_path(folder, iteration)))
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        for sentence in skipped:
            say_once(f"skipped: {sentence}")
        return newest
    if skipped:
        raise CheckpointError(
            f"none of the {len(skipped)} checkpoints in {folder} can be read (the newest: {skipped[0]}); "
            "restore one from a backup or start a new run"
        )
    return None


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove half-written files and all but the newest `keep` checkpoints, yet never the last good one."""
    if keep < 1:
        raise UsageError(f"the number of checkpoints to keep must be at least 1; got {keep}")
    paths = [checkpoint_path(folder, iteration) for iteration in checkpoint_iterations(folder)]
    if len(paths) > keep:
        newest_good = next((index for index, path in enumerate(paths) if _is_good(path)), len(paths))
        keep = max(keep, newest_good + 1)
    with os_errors(f"remove old checkpoints from {folder}", kind=CheckpointError):
        for path in paths[keep:]:
            path.unlink(missing_ok=True)
        remove_temporaries(folder)


def _is_good(path: Path) -> bool:
    try:
        read_tensor_file(path)
    except CheckpointError:
        return False
    return True
