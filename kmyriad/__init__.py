"""kmyriad: populations of policies that explore together, and reinforcement learning started from the best of them."""

import os
from typing import TYPE_CHECKING, Any

# GNU OpenMP's threads, which torch has on Linux, spin for milliseconds after every operation before they sleep; the
# physics runs on the same cores right after. Only has an effect if torch was not imported before.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

import kmyriad.envs  # noqa: F401  (registers the Gymnasium ids)
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.version import VERSION as __version__

if TYPE_CHECKING:
    from kmyriad.evaluation.evaluate import evaluate
    from kmyriad.runs.run import Run, list_runs, open_run
    from kmyriad.runs.state import load_population
    from kmyriad.training.jumpstart import jumpstart
    from kmyriad.training.pretrain import pretrain

__all__ = [
    "Run",
    "TrainingStoppedError",
    "UsageError",
    "__version__",
    "evaluate",
    "jumpstart",
    "list_runs",
    "load_population",
    "open_run",
    "pretrain",
]

_LAZY = {
    "Run": "kmyriad.runs.run",
    "evaluate": "kmyriad.evaluation.evaluate",
    "jumpstart": "kmyriad.training.jumpstart",
    "list_runs": "kmyriad.runs.run",
    "load_population": "kmyriad.runs.state",
    "open_run": "kmyriad.runs.run",
    "pretrain": "kmyriad.training.pretrain",
}
"""Names that need torch, which takes seconds to import: fetched when first used."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kmyriad' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
