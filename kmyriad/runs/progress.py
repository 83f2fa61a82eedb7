"""What a person sees while a run is under way: a live line on a terminal, a plain line now and then elsewhere."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from kmyriad.torchrun import is_one_of_many, talks

PLAIN_LINE_EVERY = 10.0
"""Seconds between lines where the output is no terminal."""

HEADLINES = ("entropy", "success", "return")
"""Metrics that are shown, where there are any."""

_said: set[str] = set()


def say(sentence: str, console: Console | None = None, style: str = "") -> None:
    """A sentence that stays on the screen, on stderr. It is text: nothing in it is taken for markup.

    Of many processes that train one run, only the first talks.
    """
    if not talks():
        return
    (console or Console(stderr=True)).print(Text(sentence, style), soft_wrap=True)


def say_once(sentence: str) -> None:
    """A warning that is told once, however often it comes up."""
    if sentence not in _said:
        _said.add(sentence)
        say(sentence, style="yellow")


class RunProgress:
    """Shows steps done, what was reached, rate and time left. Use as a context."""

    def __init__(self, command: str, total_steps: int, done: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._total, self._first = total_steps, done
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn(f"[bold]{command}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal or is_one_of_many(),
        )
        self._task = self._bar.add_task(command, total=total_steps, completed=done, state="the first iteration")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, sentence: str, style: str = "") -> None:
        """A sentence that stays on the screen, above the bar."""
        say(sentence, self.console, style)

    def update(self, row: dict[str, Any]) -> None:
        """After an iteration."""
        done = row["env_steps"]
        reached = [f"{name} {row[name]:.3f}" for name in HEADLINES if row.get(name) is not None]
        state = "  ".join([*reached, f"{row['steps_per_second']:,.0f} steps/s"])
        self._bar.update(self._task, completed=min(done, self._total), state=state)
        now = time.monotonic()
        if self._bar.disable and (now - self._last_line > PLAIN_LINE_EVERY or done >= self._total):
            self._last_line = now
            left = (now - self._started) / max(done - self._first, 1) * max(self._total - done, 0)
            self.say(f"iteration {row['iteration']}  {done:,}/{self._total:,} steps  {state}  {left:.0f} s left")
