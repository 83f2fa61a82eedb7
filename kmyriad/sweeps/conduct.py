"""Run tasks side by side until all have ended: those that others wait for first, failed ones again."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kmyriad.runs.files import os_errors, write_json
from kmyriad.sweeps.executors import Call, Executor
from kmyriad.sweeps.worker import Outcome, outcome_path, read_outcome

POLL = 0.2
"""Seconds between two looks at what has ended."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Task:
    """A function to be called, and how far that is."""

    name: str
    function: str
    """`module:name`, importable by another process."""
    arguments: Mapping[str, Any]
    """Plain JSON."""
    after: str | None = None
    """The task that must be done first."""
    threads: int = 1
    state: State = State.WAITING
    attempts: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    """Of the last attempt."""


def conduct(
    tasks: Sequence[Task], executor: Executor, folder: Path, retries: int, show: Callable[[Sequence[Task]], None]
) -> None:
    """Bring every task to DONE or FAILED; arguments, outcomes and logs go to `folder`.

    `show` is called with all tasks after every change and every POLL. Whatever ends this, Ctrl-C above all, ends what
    is running too.
    """
    with os_errors(f"make the folder {folder}", "choose another"):
        folder.mkdir(parents=True, exist_ok=True)
    by_name = {task.name: task for task in tasks}
    try:
        while any(task.state in (State.WAITING, State.RUNNING) for task in tasks):
            for task in tasks:
                _begin_if_ready(task, by_name, executor, folder)
            for name, how in executor.ended().items():
                _end(by_name[name], folder, how, retries)
            show(tasks)
            time.sleep(POLL)
    finally:
        executor.stop()
        show(tasks)


def _begin_if_ready(task: Task, by_name: Mapping[str, Task], executor: Executor, folder: Path) -> None:
    if task.state != State.WAITING:
        return
    source = by_name[task.after] if task.after is not None else None
    if source is not None and source.state == State.FAILED:
        task.state = State.FAILED
        task.outcome = Outcome(error=f"it starts from {source.name}, which failed")
    elif (source is None or source.state == State.DONE) and executor.room > 0:
        task.state, task.attempts = State.RUNNING, task.attempts + 1
        call = _call(task, folder)
        write_json(call.arguments, task.arguments)
        outcome_path(call.arguments).unlink(missing_ok=True)
        executor.start(task.name, call)


def _end(task: Task, folder: Path, how: str, retries: int) -> None:
    call = _call(task, folder)
    task.outcome = read_outcome(call.arguments, otherwise=how)
    if task.outcome.error is None:
        task.state = State.DONE
    else:
        tries_again = task.attempts <= retries and not task.outcome.is_final
        task.state = State.WAITING if tries_again else State.FAILED


def _call(task: Task, folder: Path) -> Call:
    return Call(task.function, folder / f"{task.name}.json", task.threads)
