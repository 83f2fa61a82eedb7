"""Functions for other processes to call."""

import os
import signal
import sys
import time
from pathlib import Path

from kmyriad import TrainingStoppedError, UsageError


def double(number):
    print("a word to the log", file=sys.stderr)
    return 2 * number


def fail_at_first(counter, times):
    """Fails `times` times, then returns how often it was called."""
    path = Path(counter)
    calls = len(path.read_text()) + 1 if path.exists() else 1
    path.write_text("x" * calls)
    if calls <= times:
        raise TrainingStoppedError(f"call {calls} failed")
    return calls


def refuse():
    raise UsageError("the goal lies inside a wall")


def crash():
    raise RuntimeError("first line\nsecond line")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def sleep(begun):
    Path(begun).write_text(str(os.getpid()))
    time.sleep(60)
