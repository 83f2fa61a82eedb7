"""MuJoCo's warnings, kept off the terminal and out of MUJOCO_LOG.TXT.

A diverging simulation warns at every step. The engine reads the warning counters instead of the text.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco

_IGNORE = ctypes.pythonapi.Py_IsInitialized
"""MuJoCo calls its warning handler from its own threads, which do not hold Python's lock, so it must be a C function.
This one takes nothing, does nothing and needs no lock."""

_lock = threading.Lock()
_inside = 0
_saved: object = None


@contextmanager
def silenced() -> Iterator[None]:
    """Ignore MuJoCo's warnings within; whoever handles them otherwise gets them again afterwards."""
    global _inside, _saved
    with _lock:
        if _inside == 0:
            _saved = mujoco.get_mju_user_warning()
            mujoco.set_mju_user_warning(_IGNORE)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                mujoco.set_mju_user_warning(_saved)
