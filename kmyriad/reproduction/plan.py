"""Which runs the figures of the paper need at each size. Runs that several of them need have one name: trained once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kmyriad.config import even_split
from kmyriad.errors import UsageError, nearest_name
from kmyriad.presets import PAPER_LEARNING_RATES
from kmyriad.reproduction.verdicts import BUDGETS, WORLDS
from kmyriad.sweeps.plan import Job, Plan
from kmyriad.training.pretrain import pretrain_config

TARGETS = ("entropy-curves", "budget", "kl-table", "diversity", "long-run", "heatmaps")
NOT_YET = ("success-rates", "goal-regions", "goal-maps", "point-maze")
"""Figures of the paper that no command makes yet."""
AGENTS = (1, 10, 50)
LONGER = 5
"""Times the updates of the long run."""
Size = Literal["quick", "desk", "paper"]
Method = Literal["paper", "ours"]


@dataclass(frozen=True)
class Scale:
    """How large the runs of a size are."""

    seeds: tuple[int, ...]
    horizon: int
    replicas: int
    total_steps: int
    episodes: int
    """Fresh ones that each population is measured on."""


SIZES = {
    "quick": Scale((0, 1), 50, 50, 10_000, 50),
    "desk": Scale((0, 1, 56, 123), 200, 100, 1_000_000, 300),
    "paper": Scale((0, 1, 56, 123), 600, 1000, 120_000_000, 1000),
}


def targets_of(names: Sequence[str]) -> list[str]:
    """The targets asked for, each once; `all` stands for all that can be made."""
    for name in names:
        if name in NOT_YET:
            raise UsageError(f"{name} cannot be reproduced yet; choose among {', '.join(TARGETS)}")
        if name not in (*TARGETS, "all"):
            raise UsageError(f"unknown target {name!r}{nearest_name(name, (*TARGETS, 'all'))}")
    if not names:
        raise UsageError(f"there is nothing to reproduce; name all, or some of {', '.join(TARGETS)}")
    return [*TARGETS] if "all" in names else [*dict.fromkeys(names)]


def run_name(world: str, agents: int, seed: int, kind: str = "") -> str:
    return "-".join(filter(None, [world, f"{agents}-agents", kind, f"seed-{seed}"]))


def plan_of(targets: Sequence[str], size: Size, method: Method, folder: Path) -> Plan:
    """The runs that `targets` need, in `folder`."""
    jobs = {job.name: job for target in targets for job in _jobs(target, size, method)}
    return Plan(folder, [*jobs.values()], [])


def _jobs(target: str, size: Size, method: Method) -> list[Job]:
    seeds = SIZES[size].seeds
    if target == "budget":
        return [_job(size, method, "ant-empty", 10, seed, times=budget / 2) for budget in BUDGETS for seed in seeds]
    if target == "long-run":
        return [_job(size, method, "ant-empty", agents, seed, longer=LONGER) for agents in AGENTS for seed in seeds]
    if target == "diversity":
        return [_job(size, method, "ant-empty", 10, seed) for seed in seeds]
    counts = (10, 50) if target == "kl-table" else AGENTS
    used = seeds[:1] if target == "heatmaps" else seeds
    jobs = [_job(size, method, world, agents, seed) for world in WORLDS for agents in counts for seed in used]
    if target == "entropy-curves" and method == "paper":
        jobs += [_job(size, method, "ant-empty", 50, seed, one_rate=True) for seed in seeds]
    return jobs


def _job(
    size: Size,
    method: Method,
    world: str,
    agents: int,
    seed: int,
    *,
    times: float = 1.0,
    longer: int = 1,
    one_rate: bool = False,
) -> Job:
    """One run with `times` the trajectories per update, `longer` times the updates, or the rate of one agent."""
    scale = SIZES[size]
    base = even_split(scale.replicas, agents)
    replicas = even_split(int(scale.replicas * times), agents)
    settings: dict[str, Any] = {
        "agents": agents,
        "horizon": scale.horizon,
        "replicas": replicas,
        "total_steps": scale.total_steps * replicas // base * longer,
        "seed": seed,
        "threads": 1,
    }
    if one_rate:
        settings["learning_rate"] = PAPER_LEARNING_RATES[1]
    kind = "one-rate" if one_rate else "long" if longer > 1 else f"{replicas}-replicas" if times != 1 else ""
    config = pretrain_config(world, "paper" if size == "paper" else "quick", settings, method)
    return Job(run_name(world, agents, seed, kind), config)


def budget_run(size: Size, budget: int, seed: int) -> str:
    """The name of the run with `budget` halves of the usual trajectories per update."""
    replicas = even_split(int(SIZES[size].replicas * budget / 2), 10)
    return run_name("ant-empty", 10, seed, "" if budget == 2 else f"{replicas}-replicas")
