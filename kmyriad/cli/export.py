"""`kmyriad export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Command:
    """Write policies of a run for another library, with a script that trains on, or fresh episodes as a dataset."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a pretraining run or a jump-start."""
    to: str
    """Target: onnx, torch, sb3-ppo, sb3-sac, rsl-rl, skrl, cleanrl; for data minari, parquet, npz."""
    agent: int | None = None
    """Agent to export; a run of one agent needs none."""
    goal: tuple[float, ...] = ()
    """Goal, metres from the middle of the world: the best agent for it is exported, and the script trains on for it."""
    goal_radius: float | None = None
    """Radius around the goal that counts as there, metres; none takes the world's own."""
    all: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """All agents: in one file with the agent's index as an input (onnx), or in a folder each."""
    episodes: int = 300
    """Episodes of a dataset, of all agents together (or of --agent); with --goal they end there."""
    out: Path | None = None
    """The new folder; by default one below exports/."""
    seed: int = 0
    """Seed of the episodes that are played: for data, or to choose an agent for a goal."""
    threads: int | None = None
    """CPU threads for these; none takes all cores."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad export")
    from kmyriad.config import RunConfig
    from kmyriad.exporters.export import export
    from kmyriad.runs.files import shell_path
    from kmyriad.runs.progress import say

    RunConfig(seed=command.seed, threads=command.threads)  # refuses what it would refuse
    folder = export(
        command.run,
        command.to,
        command.out,
        agent=command.agent,
        goal=command.goal,
        goal_radius=command.goal_radius,
        all_agents=command.all,
        episodes=command.episodes,
        seed=command.seed,
        threads=command.threads,
    )
    readme = next(path for path in (folder / "README.md", folder / "agent-0/README.md") if path.exists())
    say(f"wrote {folder}; how to go on:  cat {shell_path(readme)}")
