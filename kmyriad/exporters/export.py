"""`km.export`: a run's policies or fresh episodes of them, in another library's format."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kmyriad.checks import Between, checked
from kmyriad.config import PretrainConfig, TaskConfig
from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError, nearest_name
from kmyriad.evaluation.selection import select
from kmyriad.exporters.data import DATA_TARGETS, write_data
from kmyriad.exporters.folder import new_folder
from kmyriad.exporters.onnx import write_onnx, write_population_onnx
from kmyriad.exporters.plain import write_cleanrl, write_torch
from kmyriad.exporters.portable import Portable, Source, open_source, portable
from kmyriad.exporters.rsl_rl import write_rsl_rl
from kmyriad.exporters.sb3 import write_sb3_ppo, write_sb3_sac
from kmyriad.exporters.skrl import write_skrl
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, open_run

POLICY_TARGETS: dict[str, Callable[[Portable, Path], None]] = {
    "onnx": write_onnx,
    "torch": write_torch,
    "sb3-ppo": write_sb3_ppo,
    "sb3-sac": write_sb3_sac,
    "rsl-rl": write_rsl_rl,
    "skrl": write_skrl,
    "cleanrl": write_cleanrl,
}
"""What writes a policy into a folder, by the target's name."""


def export(
    run: Run | str | Path,
    to: str,
    out: str | Path | None = None,
    *,
    agent: int | None = None,
    goal: Sequence[float] = (),
    goal_radius: float | None = None,
    all_agents: bool = False,
    episodes: int = 300,
    seed: int = 0,
    threads: int | None = None,
) -> Path:
    """Write policies of a run, or fresh episodes of all of them, for another library. Returns the new folder.

    Policies come with a README and a script that trains on.

    Args:
        run: a pretraining run or a jump-start, or its folder.
        to: onnx, torch, sb3-ppo, sb3-sac, rsl-rl, skrl or cleanrl; for data minari, parquet or npz.
        out: the new folder; by default one below `exports/`.
        agent: which agent; a run of one needs none.
        goal: what is to be learned, metres; without `agent` the agent that does best there is exported.
        goal_radius: metres around the goal that count as there; None takes the world's own.
        all_agents: every agent: in one file with its index as input (onnx), or in a folder each.
        episodes: of data, of all agents together; with `goal` in the world with that goal, where they end.
        seed: of the episodes that are played, for data or to choose an agent for a goal.
        threads: CPU threads for these; None takes all cores.
    """
    run = open_run(run)
    if to not in (*POLICY_TARGETS, *DATA_TARGETS):
        raise UsageError(f"unknown target {to!r}{nearest_name(str(to), (*POLICY_TARGETS, *DATA_TARGETS))}")
    if all_agents and agent is not None:
        raise UsageError(f"agent {agent} and all agents exclude each other; leave one out")
    task = TaskConfig(goal=checked("goal", goal, tuple[float, ...]), goal_radius=goal_radius)  # refuses bad ones
    source = open_source(run, task.goal, task.goal_radius)
    if to in DATA_TARGETS:
        return _export_data(source, to, out, agent, episodes, seed, threads)
    if not all_agents and agent is None:
        agent = _chosen(source, task, seed, threads)
    folder = Path(out) if out is not None else Path("exports") / _name(run, to, agent)
    with new_folder(folder) as temporary:
        if agent is not None:
            POLICY_TARGETS[to](portable(source, agent), temporary)
        elif to == "onnx":
            write_population_onnx(source, portable(source, 0), temporary)
        else:
            for index in range(source.population.agents):
                below = temporary / f"agent-{index}"
                below.mkdir()
                POLICY_TARGETS[to](portable(source, index), below)
    return folder


def _export_data(
    source: Source, to: str, out: str | Path | None, agent: int | None, episodes: int, seed: int, threads: int | None
) -> Path:
    """Episodes of all agents, or of one."""
    checked("episodes", episodes, Annotated[int, Between(1, 1_000_000_000)])
    if agent is not None:
        source = replace(source, population=source.population.select([agent]))
    folder = Path(out) if out is not None else Path("exports") / _name(source.run, to, agent)
    goal, radius = tuple(source.facts["goal"]), source.facts["env_settings"].get("goal_radius")
    with new_folder(folder) as temporary:
        size = write_data(to, source, temporary, episodes, goal, radius, seed, threads)
    say(f"{size.episodes:,} episodes, {size.steps:,} steps")
    return folder


def _chosen(source: Source, task: TaskConfig, seed: int, threads: int | None) -> int:
    """The agent to export where none was named."""
    run, agents = source.run, source.population.agents
    if agents == 1:
        return 0
    has_own_reward = short_name(run.env) not in WORLDS
    if isinstance(run.config, PretrainConfig) and (task.goal or has_own_reward):
        ranking = select(run, task.goal, task.goal_radius, seed=seed, threads=threads)
        say(f"agent {ranking.best}: {ranking.standings[0].described}")
        return ranking.best
    best = ", or a goal (--goal 6 3) to take the best for it" if isinstance(run.config, PretrainConfig) else ""
    raise UsageError(f"{run.given} has {agents} agents; name one (--agent {agents - 1}){best}, or take all (--all)")


def _name(run: Run, to: str, agent: int | None) -> str:
    return f"{run.name}-{'all' if agent is None else f'agent-{agent}'}-{to}"
