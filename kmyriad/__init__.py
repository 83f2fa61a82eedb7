"""kmyriad: populations of policies that explore together, and reinforcement learning started from the best of them."""

import os
from typing import TYPE_CHECKING, Any

# GNU OpenMP's threads, which torch has on Linux, spin for milliseconds after every operation before they sleep; the
# physics runs on the same cores right after. Only has an effect if torch was not imported before.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

import kmyriad.envs as envs  # registers the Gymnasium ids
from kmyriad.errors import TrainingStoppedError, UsageError

if TYPE_CHECKING:
    import kmyriad.figures as figures
    import kmyriad.presets as presets
    from kmyriad.config import JumpstartConfig, PretrainConfig
    from kmyriad.envs.goal import Annulus, draw_goals
    from kmyriad.envs.make import make_world
    from kmyriad.evaluation.comparison import compare, jumpstart_values
    from kmyriad.evaluation.evaluate import evaluate, plane_of, play, world_of
    from kmyriad.evaluation.selection import select
    from kmyriad.exporters.export import export
    from kmyriad.exporters.pack import pack
    from kmyriad.objective.rewards import Rewards
    from kmyriad.report.page import write_report
    from kmyriad.reproduction.reproduce import reproduce
    from kmyriad.rollout.collect import Segment, Visits
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import Run, list_runs, open_run
    from kmyriad.runs.state import load_last_horizon, load_population
    from kmyriad.sweeps.sweep import sweep
    from kmyriad.training.jumpstart import jumpstart
    from kmyriad.training.pretrain import pretrain
    from kmyriad.video.film import write_video

    __version__: str

_HOMES = {
    "Annulus": "envs.goal",
    "JumpstartConfig": "config",
    "PretrainConfig": "config",
    "Rewards": "objective.rewards",
    "Run": "runs.run",
    "Segment": "rollout.collect",
    "Visits": "rollout.collect",
    "compare": "evaluation.comparison",
    "draw_goals": "envs.goal",
    "evaluate": "evaluation.evaluate",
    "export": "exporters.export",
    "jumpstart": "training.jumpstart",
    "jumpstart_values": "evaluation.comparison",
    "list_runs": "runs.run",
    "load_last_horizon": "runs.state",
    "load_population": "runs.state",
    "make_world": "envs.make",
    "open_run": "runs.run",
    "pack": "exporters.pack",
    "plane_of": "evaluation.evaluate",
    "play": "evaluation.evaluate",
    "pretrain": "training.pretrain",
    "reproduce": "reproduction.reproduce",
    "say": "runs.progress",
    "select": "evaluation.selection",
    "sweep": "sweeps.sweep",
    "world_of": "evaluation.evaluate",
    "write_report": "report.page",
    "write_video": "video.film",
}
"""Where the public names live. They are fetched when first used: torch takes seconds to import."""

_ROOMS = ("figures", "presets")

__all__ = [
    "Annulus",
    "JumpstartConfig",
    "PretrainConfig",
    "Rewards",
    "Run",
    "Segment",
    "TrainingStoppedError",
    "UsageError",
    "Visits",
    "__version__",
    "compare",
    "draw_goals",
    "envs",
    "evaluate",
    "export",
    "figures",
    "jumpstart",
    "jumpstart_values",
    "list_runs",
    "load_last_horizon",
    "load_population",
    "make_world",
    "open_run",
    "pack",
    "plane_of",
    "play",
    "presets",
    "pretrain",
    "reproduce",
    "say",
    "select",
    "sweep",
    "world_of",
    "write_report",
    "write_video",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    if name == "__version__":
        return metadata.version("kmyriad")
    if name in _ROOMS:
        return import_module(f"kmyriad.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'kmyriad' has no attribute {name!r}")
    return getattr(import_module(f"kmyriad.{_HOMES[name]}"), name)
