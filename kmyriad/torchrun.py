"""What torchrun tells the processes that it starts, by environment variables. Needs no torch."""

import os


def is_one_of_many() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def talks() -> bool:
    """Whether this process talks to the user: alone, or the first of many."""
    return not is_one_of_many() or os.environ.get("RANK") == "0"


def restarts() -> int:
    """How often torchrun has started the processes again after one of them had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if is_one_of_many() else 0


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if is_one_of_many() else 0


def threads(asked: int | None) -> int | None:
    """Threads of this process: what was asked for, or its share of the machine's cores; None for all of them."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if is_one_of_many() else 1
    return asked if asked is not None or here == 1 else max(1, len(os.sched_getaffinity(0)) // here)
