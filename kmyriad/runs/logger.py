"""What a run leaves behind while it goes on: metrics, TensorBoard, a line on the screen, checkpoints."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.rollout.collect import Visits
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.progress import EpochProgress
from kmyriad.runs.run import Run, append_metrics, save_last_epoch
from kmyriad.runs.state import TrainingState
from kmyriad.runs.tensor_file import CheckpointError, checkpoint_path, prune_checkpoints, write_checkpoint

BAD_GRADIENTS_ALLOWED = 3
"""A non-finite gradient is skipped; this many in a row stop the run."""

STILL_HEADS_EVERY = 10
"""Epochs between two reminders on the screen that a head stands still."""


@dataclass(frozen=True)
class Schedule:
    """When a run ends, and when it is saved."""

    epochs: int
    checkpoint_every: int
    keep_checkpoints: int
    saves_replicas: bool
    """Whether checkpoints hold the replicas too: needed where they are in the middle of episodes."""


class Journal:
    """Writes down every epoch of a run. Use as a context."""

    def __init__(self, run: Run, schedule: Schedule, replicas: Replicas, done: int) -> None:
        self._run, self._schedule, self._replicas = run, schedule, replicas
        self._progress = EpochProgress(run.command, schedule.epochs, done)
        self._board = SummaryWriter(str(run.path / "tensorboard"), purge_step=done + 1)
        self._unsaved: CheckpointError | None = None

    def __enter__(self) -> Self:
        self._progress.__enter__()
        self._progress.say(f"run {self._run.path}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.__exit__(kind, error, at)
        self._board.close()
        if kind is None and self._unsaved is not None:
            raise self._unsaved

    def record(self, state: TrainingState, row: dict[str, Any]) -> None:
        """The metrics of the epoch that `state` has just done, and a checkpoint when it is time.

        Raises `TrainingStoppedError` when learning has broken down.
        """
        try:
            append_metrics(self._run, row)
        except UsageError as error:  # a full disk: training goes on
            self._progress.say(f"[yellow]metrics of epoch {state.epoch} not saved:[/] {error}")
        for name, value in row.items():
            if isinstance(value, int | float):
                self._board.add_scalar(name, value, state.epoch)
        if row.get("still_heads") and state.epoch % STILL_HEADS_EVERY == 0:
            heads = ", ".join(map(str, row["still_heads"]))
            self._progress.say(f"[yellow]epoch {state.epoch}: standing still:[/] head {heads}")
        self._progress.update(row)
        if state.epoch % self._schedule.checkpoint_every == 0 or state.epoch == self._schedule.epochs:
            self.save(state)
        if state.bad_gradients >= BAD_GRADIENTS_ALLOWED:
            self.save(state)
            raise TrainingStoppedError(
                f"the gradient was not finite in {BAD_GRADIENTS_ALLOWED} epochs in a row, up to epoch {state.epoch};"
                " the last checkpoint has the weights from before, try a lower learning_rate"
            )

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint. A full disk does not end the run: the old one stays, the user is told, the next is tried.

        If the last one cannot be written either, leaving the context raises.
        """
        try:
            checkpoint = state.checkpoint(self._replicas if self._schedule.saves_replicas else None)
            write_checkpoint(checkpoint_path(self._run.checkpoints, state.epoch), checkpoint)
            prune_checkpoints(self._run.checkpoints, self._schedule.keep_checkpoints)
            if state.pool:
                save_last_epoch(self._run, _visited(state.pool))
            self._unsaved = None
        except CheckpointError as error:
            self._progress.say(f"[yellow]checkpoint of epoch {state.epoch} not saved:[/] {error}")
            self._unsaved = error


def _visited(pool: list[Visits]) -> dict[str, NDArray[Any]]:
    """What figures need of the last horizon: features, positions and soundness of every step, (m, p, T, ...)."""
    names = ["features", "sound"] + ["xy"] * (pool[-1].xy is not None)
    return {name: np.concatenate([getattr(segment, name) for segment in pool], axis=2) for name in names}
