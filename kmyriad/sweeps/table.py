"""How far a sweep is: one table on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kmyriad.runs.progress import PLAIN_LINE_EVERY, say
from kmyriad.sweeps.conduct import State, Task

REFRESH = 1.0
"""Seconds between two looks at the runs' files."""

MOST_ROWS = 24
"""Runs in the table: those that run, then those that failed, then those that ended last."""

ORDER = {State.RUNNING: 0, State.FAILED: 1, State.WAITING: 2, State.DONE: 3}


class Steps(NamedTuple):
    """How far one run is."""

    done: int
    total: int
    reached: str = ""
    """What it measured last, in words."""


class SweepTable:
    """Shows all tasks, rate and time left. Use as a context; `show` is called often and does little most times."""

    def __init__(self, steps_of: Mapping[str, Callable[[], Steps]], console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._steps_of = steps_of
        self._steps = {name: of_it() for name, of_it in steps_of.items()}
        self._begun_with = sum(steps.done for steps in self._steps.values())
        self._started = self._looked = self._line = time.monotonic()
        self._told: dict[str, tuple[State, int]] = {}
        self._rates: dict[str, tuple[float, int]] = {}
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, tasks: Sequence[Task]) -> None:
        now = time.monotonic()
        changed = [task for task in tasks if self._told.get(task.name) != (task.state, task.attempts)]
        for task in changed:
            self._tell(task)
            self._told[task.name] = (task.state, task.attempts)
        if not changed and now - self._looked < REFRESH:
            return
        self._looked = now
        for task in tasks:
            if task in changed or task.state == State.RUNNING:
                self._look(task, now)
        if self._live is not None:
            self._live.update(Group(self._table(tasks), Text(self.summary(tasks))), refresh=True)
        elif now - self._line > PLAIN_LINE_EVERY:
            self._line = now
            say(self.summary(tasks), self.console)

    def summary(self, tasks: Sequence[Task]) -> str:
        """`3 of 12 runs done, 2 running, 7 waiting; 40,000/120,000 steps, 5,000 steps/s, 16 s left`."""
        counts = {state: sum(task.state == state for task in tasks) for state in State}
        others = [f"{counts[state]} {state}" for state in (State.RUNNING, State.WAITING, State.FAILED) if counts[state]]
        said = ", ".join([f"{counts[State.DONE]} of {len(tasks)} runs done", *others])
        done, total = (sum(getattr(steps, name) for steps in self._steps.values()) for name in ("done", "total"))
        rate = (done - self._begun_with) / max(time.monotonic() - self._started, 1e-9)
        if not total:
            return said
        failed = {task.name for task in tasks if task.state == State.FAILED}
        left = sum(steps.total - steps.done for name, steps in self._steps.items() if name not in failed)
        eta = f", {_duration(left / rate)} left" if rate > 0 and counts[State.RUNNING] else ""
        return f"{said}; {done:,}/{total:,} steps, {rate:,.0f} steps/s{eta}"

    def _tell(self, task: Task) -> None:
        """A sentence that stays, where something has ended. The table itself shows what is running."""
        if task.state == State.FAILED:
            say(f"{task.name} failed: {task.outcome.error}", self.console, "red")
        elif task.state == State.WAITING and task.attempts:
            say(f"{task.name} is tried again: {task.outcome.error}", self.console, "yellow")
        elif self._live is None and task.state == State.DONE and task.attempts:
            say(f"{task.name} done", self.console)

    def _look(self, task: Task, now: float) -> None:
        if task.name in self._steps_of:
            self._steps[task.name] = self._steps_of[task.name]()
            if task.state == State.RUNNING:
                self._rates.setdefault(task.name, (now, self._steps[task.name].done))
            else:
                self._rates.pop(task.name, None)

    def _table(self, tasks: Sequence[Task]) -> Table:
        table = Table("run", "state", "steps", "steps/s", "reached", box=None, pad_edge=False)
        ordered = sorted(tasks, key=lambda task: ORDER[task.state])
        for task in ordered[:MOST_ROWS]:
            table.add_row(*(Text(cell) for cell in self._row(task)))
        if len(ordered) > MOST_ROWS:
            table.add_row(f"and {len(ordered) - MOST_ROWS} more")
        return table

    def _row(self, task: Task) -> tuple[str, ...]:
        again = f" ({task.attempts}. time)" if task.attempts > 1 else ""
        steps = self._steps.get(task.name)
        if steps is None:
            return task.name, f"{task.state}{again}", "", "", task.outcome.error or ""
        rate = ""
        if task.name in self._rates:
            since, before = self._rates[task.name]
            rate = f"{(steps.done - before) / max(time.monotonic() - since, 1e-9):,.0f}"
        reached = task.outcome.error or steps.reached
        return task.name, f"{task.state}{again}", f"{steps.done:,}/{steps.total:,}", rate, reached


def _duration(seconds: float) -> str:
    """`3:07:21`, or `42 s`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
