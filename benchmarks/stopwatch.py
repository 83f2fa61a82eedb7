"""The physics' share of what a benchmark times."""

import time
from typing import Any


class Stopwatch:
    """Times every call of an environment's `step`."""

    def __init__(self, env: Any) -> None:
        self._env, self._step, self.seconds = env, env.step, 0.0
        env.step = self._timed

    def _timed(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = self._step(*arguments)
        self.seconds += time.perf_counter() - start
        return result

    def stop(self) -> float:
        """The seconds so far."""
        self._env.step = self._step
        return self.seconds
