"""What a person sees while a run is under way: a live line on a terminal, a plain line now and then elsewhere."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_LINE_EVERY = 10.0
"""Seconds between lines where the output is no terminal."""

HEADLINES = ("entropy", "success", "return")
"""Metrics that are shown, where there are any."""


def say(sentence: str, console: Console | None = None) -> None:
    """A sentence that stays on the screen."""
    (console or Console(stderr=True)).print(sentence, highlight=False)


class EpochProgress:
    """Shows epochs done, what was reached, rate and time left. Use as a context."""

    def __init__(self, command: str, epochs: int, done: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._epochs, self._first = epochs, done
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn(f"[bold]{command}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(command, total=epochs, completed=done, state="collecting the first epoch")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, sentence: str) -> None:
        """A sentence that stays on the screen, above the bar."""
        say(sentence, self.console)

    def update(self, row: dict[str, Any]) -> None:
        """After an epoch."""
        epoch = row["epoch"]
        reached = [f"{name} {row[name]:.3f}" for name in HEADLINES if row.get(name) is not None]
        state = "  ".join([*reached, f"{row['steps_per_second']:,.0f} steps/s"])
        self._bar.update(self._task, completed=epoch, state=state)
        now = time.monotonic()
        if not self.console.is_terminal and (now - self._last_line > PLAIN_LINE_EVERY or epoch == self._epochs):
            self._last_line = now
            left = (now - self._started) / (epoch - self._first) * (self._epochs - epoch)
            self.say(f"epoch {epoch}/{self._epochs}  {state}  {left:.0f} s left")
