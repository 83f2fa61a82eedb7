"""What a run leaves behind while it goes on: metrics, TensorBoard, W&B, a line on the screen, checkpoints."""

import os
import socket
import time
import uuid
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from kmyriad.config import JumpstartConfig, PretrainConfig
from kmyriad.errors import TrainingStoppedError, UsageError, first_line
from kmyriad.processes import check_alike, leads
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.checkpoints import checkpoint_path, prune_checkpoints
from kmyriad.runs.files import read_json, write_json
from kmyriad.runs.progress import RunProgress
from kmyriad.runs.run import Run, append_metrics
from kmyriad.runs.state import TrainingState, save_last_horizon
from kmyriad.runs.tensor_file import CheckpointError, write_tensor_file

BAD_GRADIENTS_ALLOWED = 3
"""A non-finite gradient is skipped; this many in a row stop the run."""

STILL_AGENTS_EVERY = 10
"""Iterations between two reminders on the screen that an agent stands still."""

WANDB_SECONDS = 60.0
"""That the end of a run waits for Weights & Biases to take what is left."""


class Logger:
    """Writes down every iteration of a run. Use as a context."""

    def __init__(
        self, run: Run, config: PretrainConfig | JumpstartConfig, replicas: Replicas, state: TrainingState
    ) -> None:
        self._run, self._settings = run, config.run
        self._checkpoint_every = config.run.checkpoint_every or config.rollouts.per_horizon
        self._replicas = replicas if config.rollouts.are_segments else None
        self._progress = RunProgress(run.command, config.run.total_steps, state.env_steps)
        self._boards: list[Board | WandbBoard] = [Board(run, state.iteration, self._warn)] if leads() else []
        if config.run.wandb and leads():
            self._boards.append(WandbBoard(run, config, self._warn))
        self._unsaved: CheckpointError | None = None

    def __enter__(self) -> Self:
        self._progress.__enter__()
        self._progress.say(f"run {self._run.path}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.__exit__(kind, error, at)
        for board in self._boards:
            board.close(has_failed=kind is not None)
        if kind is None and self._unsaved is not None:
            raise self._unsaved

    def record(self, state: TrainingState, row: dict[str, Any]) -> None:
        """The metrics of the iteration that `state` has just done, and a checkpoint when it is time.

        Of many processes the first writes; all of them come by, as all have a part of a checkpoint. Raises
        `TrainingStoppedError` when learning has broken down.
        """
        if leads():
            self._write(state.iteration, row)
        is_last = state.env_steps >= self._settings.total_steps
        if state.iteration % self._checkpoint_every == 0 or is_last:
            self.save(state)
        if state.bad_gradients >= BAD_GRADIENTS_ALLOWED:
            self.save(state)
            raise TrainingStoppedError(
                f"the gradient was not finite in {BAD_GRADIENTS_ALLOWED} iterations in a row, up to iteration"
                f" {state.iteration}; the last checkpoint has the weights from before, try a lower learning_rate"
            )

    def _write(self, iteration: int, row: dict[str, Any]) -> None:
        try:
            append_metrics(self._run, row)
        except UsageError as error:  # a full disk: training goes on
            self._warn(f"metrics of iteration {iteration} not saved: {error}")
        for board in self._boards:
            board.add(iteration, row)
        if row.get("still_agents") and iteration % STILL_AGENTS_EVERY == 0:
            agents = ", ".join(map(str, row["still_agents"]))
            self._warn(f"iteration {iteration}: standing still: agent {agents}")
        self._progress.update(row)

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint. A full disk does not end the run: the old one stays, the user is told, the next is tried.

        If the last one cannot be written either, leaving the context raises.
        """
        folder = self._run.checkpoints
        check_alike(state.population.parameters())
        path, content = checkpoint_path(folder, state.iteration), state.checkpoint(self._replicas)
        if not leads():
            return
        try:
            try:
                write_tensor_file(path, content)
            except CheckpointError as error:
                if not error.is_full_disk:
                    raise
                prune_checkpoints(folder, keep=1)  # makes room, and leaves the newest good one
                write_tensor_file(path, content)
            prune_checkpoints(folder, self._settings.keep_checkpoints)
            if state.pool:
                save_last_horizon(self._run, state.pool)
            self._unsaved = None
        except CheckpointError as error:
            self._warn(f"checkpoint of iteration {state.iteration} not saved: {error}")
            self._unsaved = error

    def _warn(self, sentence: str) -> None:
        self._progress.say(sentence, style="yellow")


class Board:
    """TensorBoard's event file. Whatever goes wrong with it is told once, and the run goes on without it.

    TensorBoard's own writer has a thread, which prints a traceback when it fails; here the file is opened anew for
    every iteration, so that a full disk or a folder that is gone shows at once.
    """

    def __init__(self, run: Run, done: int, warn: Callable[[str], None]) -> None:
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path, self._warn, self._works = run.path / "tensorboard" / name, warn, True
        self._try(partial(self._begin, done + 1))

    def add(self, iteration: int, row: dict[str, Any]) -> None:
        """All numbers of a row of metrics."""
        if self._works:
            self._try(partial(self._add, iteration, row))

    def close(self, has_failed: bool) -> None:
        """Nothing is open between iterations."""

    def _begin(self, first: int) -> None:
        """What an event file opens with; TensorBoard drops what others have from iteration `first` on."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._write(file_version="brain.Event:2")
        self._write(step=first, session_log=SessionLog(status=SessionLog.START))

    def _add(self, iteration: int, row: dict[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=number) for name, number in _numbers(row).items()]
        self._write(step=iteration, summary=Summary(value=values))

    def _write(self, **event: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        with self._path.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **event).SerializeToString())

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # a full disk, a folder that is gone, a clash of versions: none is worth a run
            self._works = False
            self._warn(f"TensorBoard's files are no longer written: {error or type(error).__name__}")


class WandbBoard:
    """Weights & Biases. Whatever goes wrong with it is told once, and the run goes on without it.

    A run that is resumed goes on under the same id, which is kept in its folder. `WANDB_MODE=offline` keeps everything
    in the folder too, for `wandb sync` to send later.
    """

    def __init__(self, run: Run, config: PretrainConfig | JumpstartConfig, warn: Callable[[str], None]) -> None:
        self._warn, self._works = warn, True
        self._wandb_run: Any = None
        self._try(partial(self._begin, run, config))

    def add(self, iteration: int, row: dict[str, Any]) -> None:
        """All numbers of a row of metrics."""
        if self._works:
            self._try(partial(self._add, iteration, row))

    def close(self, has_failed: bool) -> None:
        """Send what is left, for a while."""
        if self._works and self._wandb_run is not None:
            self._try(partial(self._wandb_run.finish, exit_code=int(has_failed)))

    def _begin(self, run: Run, config: PretrainConfig | JumpstartConfig) -> None:
        try:
            import wandb
        except ModuleNotFoundError:
            raise UsageError("it is not installed; install it with: pip install 'kmyriad[wandb]'") from None
        kept = run.path / "wandb.json"
        if not kept.exists():
            write_json(kept, {"id": uuid.uuid4().hex})
        self._wandb_run = wandb.init(
            project=config.run.wandb,
            name=run.name,
            id=str(read_json(kept).get("id")),
            resume="allow",
            dir=run.path,
            config=config.as_json(),
            settings=wandb.Settings(console="off", silent=True, finish_timeout=WANDB_SECONDS),
        )

    def _add(self, iteration: int, row: dict[str, Any]) -> None:
        self._wandb_run.log(_numbers(row), step=iteration)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # not installed, no account, no network: none is worth a run
            self._works = False
            self._warn(f"nothing is sent to Weights & Biases: {first_line(error)}")


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
