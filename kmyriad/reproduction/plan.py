"""Which runs the figures of the paper need at each size. Runs that several of them need have one name: trained once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kmyriad.config import PretrainConfig, even_split, with_settings
from kmyriad.envs.goal import AFFORDABLE, Annulus, draw_goals
from kmyriad.envs.make import make_world
from kmyriad.errors import UsageError, nearest_name
from kmyriad.presets import PAPER_LEARNING_RATES
from kmyriad.reproduction.verdicts import BUDGETS, WORLDS
from kmyriad.runs.pack import SUFFIX
from kmyriad.sweeps.plan import Job, Plan
from kmyriad.training.jumpstart import jumpstart_config, with_source
from kmyriad.training.pretrain import pretrain_config

TARGETS = (
    "entropy-curves",
    "budget",
    "kl-table",
    "diversity",
    "success-rates",
    "long-run",
    "goal-regions",
    "goal-maps",
    "heatmaps",
    "point-maze",
)
AGENTS = (1, 10, 50)
LONGER = 5
"""Times the updates of the long run."""
STARTS = {"best": 50, "single": 1, "random": 1}
"""Agents of the run that each start comes from; the random one takes nothing but the network's sizes from it."""

ZONES = {"outside": Annulus(AFFORDABLE, 7.0), "inside": Annulus(2.0, AFFORDABLE)}
"""Where goals lie, metres from the start. The paper draws them "within a fixed annular region" without saying which,
beyond 4.5 m, and new ones within. Nearer than 2 m the start would all but touch the goal, which has a radius of 1."""
CANDIDATES, GOAL_SEED = 200, 7
"""Goals are the same for all starts, seeds and methods; in the paper they "ensure diverse task configurations"."""
RING_GOALS = {"top-right": (2.0, 2.0), "top-left": (-2.0, 2.0)}
"""In the PointMaze, whose start is at the bottom in the middle."""

Size = Literal["quick", "desk", "paper"]
Method = Literal["paper", "ours"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """How large the runs of a size are."""

    seeds: tuple[int, ...]
    horizon: int
    replicas: int
    updates: int
    """Of the paper's method, whole horizons."""
    episodes: int
    """Fresh ones that the entropy of a population is measured on, of all agents together."""
    kl_episodes: int
    """Fresh ones of every agent that the KL between agents is measured on."""
    goal_replicas: int
    goal_steps: int
    """Of one jump-start, selection and practice included."""
    selection_steps: int | None
    goals: dict[str, int]
    """How many in each zone of every world."""
    region_seeds: tuple[int, ...]
    """Runs of PPO alone in each zone, each to a goal of its own."""

    @property
    def total_steps(self) -> int:
        return self.updates * self.replicas * self.horizon

    @property
    def steps_of_smallest_budget(self) -> int:
        return self.updates * even_split(self.replicas * BUDGETS[0] // 2, 10) * self.horizon


PAPER_SEEDS = (0, 1, 56, 123)
SIZES: dict[Size, Scale] = {
    "quick": Scale(
        seeds=(0, 1),
        horizon=50,
        replicas=50,
        updates=4,
        episodes=50,
        kl_episodes=2,
        goal_replicas=30,
        goal_steps=24_000,
        selection_steps=5_000,
        goals={"outside": 1, "inside": 1},
        region_seeds=(0, 1),
    ),
    "desk": Scale(
        seeds=PAPER_SEEDS,
        horizon=200,
        replicas=100,
        updates=200,
        episodes=300,
        kl_episodes=20,
        goal_replicas=50,
        goal_steps=600_000,
        selection_steps=50_000,
        goals={"outside": 4, "inside": 1},
        region_seeds=(*PAPER_SEEDS, 2, 3),
    ),
    "paper": Scale(
        seeds=PAPER_SEEDS,
        horizon=600,
        replicas=1000,
        updates=200,
        episodes=1000,
        kl_episodes=1000,
        goal_replicas=300,
        goal_steps=10_000_000,
        selection_steps=None,
        goals={"outside": 4, "inside": 2},
        region_seeds=(*PAPER_SEEDS, 2, 3),
    ),
}
"""`paper` is Tables 2 and 3. `desk` has its numbers of updates, rates and agents with a third of its horizon, a tenth
of its trajectories and a sixth of those of jump-starts. `quick` shows that everything works."""


def targets_of(names: Sequence[str]) -> list[str]:
    """The targets asked for, each once; `all` stands for all of them."""
    for name in names:
        if name not in (*TARGETS, "all"):
            raise UsageError(f"unknown target {name!r}{nearest_name(name, (*TARGETS, 'all'))}")
    if not names:
        raise UsageError(f"there is nothing to reproduce; name all, or some of {', '.join(TARGETS)}")
    return [*TARGETS] if "all" in names else [*dict.fromkeys(names)]


def run_name(world: str, agents: int, seed: int, kind: str = "") -> str:
    return "-".join(filter(None, [world, f"{agents}-agents", kind, f"seed-{seed}"]))


def goal_run(world: str, start: str, zone: str, number: int, seed: int) -> str:
    """The name of a jump-start to one of the goals of `goals_in`."""
    return f"{world}-{start}-to-{zone}-{number}-seed-{seed}"


def region_run(zone: str, seed: int) -> str:
    """The name of a run of PPO alone, for half as long again as other jump-starts."""
    return f"ant-empty-ppo-alone-{zone}-seed-{seed}"


def ring_run(agent: int, goal: str, seed: int) -> str:
    """The name of a jump-start in the PointMaze."""
    return f"point-maze-agent-{agent}-to-{goal}-seed-{seed}"


def pack_of(folder: Path, name: str) -> Path:
    """Where the policies of a run in `folder` are packed for jump-starts, which need no more of it."""
    return folder.with_name("packs") / f"{name}{SUFFIX}"


def sources_of(size: Size) -> set[str]:
    """Names of the runs that jump-starts start from."""
    groups = [*product(WORLDS, {*STARTS.values()}), ("point-maze", 2)]
    return {run_name(world, agents, seed) for world, agents in groups for seed in SIZES[size].seeds}


def mapped(size: Size) -> set[str]:
    """Names of the runs of which figures show where they go: those of the first seed."""
    seed = SIZES[size].seeds[0]
    groups = [*product(WORLDS, AGENTS), ("point-maze", 2)]
    rings = {ring_run(agent, goal, seed) for agent, goal in product((0, 1), RING_GOALS)}
    return rings | {run_name(world, agents, seed) for world, agents in groups}


@cache
def goals_in(world: str, zone: str, count: int) -> list[Point]:
    """`count` goals in a zone of a world, to a centimetre: the first that is drawn in each of as many sectors."""
    made = make_world(world)
    drawn = draw_goals(made.terrain, ZONES[zone], CANDIDATES, made.goal_radius, GOAL_SEED)
    x, y = (drawn - made.terrain.start).T
    sectors = np.floor(np.arctan2(y, x) / (2 * np.pi) * count + 0.5) % count  # the first is around the x axis
    places = [drawn[sectors == sector][0] for sector in range(count)]
    return [(round(float(x), 2), round(float(y), 2)) for x, y in places]


def region_goals(size: Size, zone: str) -> dict[int, Point]:
    """By seed, the goal of each run of PPO alone in AntEmpty: outside those of the success rates, inside new ones."""
    scale = SIZES[size]
    goals = goals_in("ant-empty", zone, scale.goals[zone] if zone == "outside" else len(scale.region_seeds))
    return {seed: goals[index % len(goals)] for index, seed in enumerate(scale.region_seeds)}


def plan_of(targets: Sequence[str], size: Size, method: Method, folder: Path) -> Plan:
    """The runs that `targets` need, in `folder`; those that others start from, or go on with, come first."""
    jobs = {job.name: job for target in targets for job in _jobs(target, size, method, folder)}
    ordered = sorted(jobs.values(), key=lambda job: job.after is not None)
    return Plan(folder, ordered, [])


def own_steps(job: Job, jobs: Sequence[Job]) -> int:
    """Steps of a job that none of `jobs` makes for it: pretraining goes on where the one before it ends."""
    before = sum(other.config.run.total_steps for other in jobs if other.name == job.after)
    return job.config.run.total_steps - (before if isinstance(job.config, PretrainConfig) else 0)


def narrowed(plan: Plan, only: Sequence[str]) -> Plan:
    """The runs of a plan whose names match one of `only` (`ant-empty-*-seed-0`), and those that they start from."""
    if not only:
        return plan
    chosen = [job for job in plan.jobs if any(fnmatchcase(job.name, pattern) for pattern in only)]
    if not chosen:
        raise UsageError(f"no run is called {' or '.join(only)}; --dry-run lists their names")
    names = {job.name for job in chosen} | {job.after for job in chosen}
    return replace(plan, jobs=[job for job in plan.jobs if job.name in names])


def _jobs(target: str, size: Size, method: Method, folder: Path) -> list[Job]:
    seeds = SIZES[size].seeds
    match target:
        case "budget":
            return [_job(size, method, "ant-empty", 10, seed, budget=budget) for budget in BUDGETS for seed in seeds]
        case "long-run":
            return _long_jobs(size, method)
        case "diversity":
            return [_job(size, method, "ant-empty", 10, seed) for seed in seeds]
        case "kl-table":
            return [_job(size, method, world, m, seed) for world in WORLDS for m in (10, 50) for seed in seeds]
        case "heatmaps":
            return [_job(size, method, world, m, seeds[0]) for world in WORLDS for m in AGENTS]
        case "success-rates":
            return _success_jobs(size, method, folder)
        case "goal-regions":
            return _region_jobs(size, method, folder)
        case "point-maze":
            return _ring_jobs(size, method, folder)
        case "goal-maps":
            return []  # the goals themselves
    jobs = [_job(size, method, world, m, seed) for world in WORLDS for m in AGENTS for seed in seeds]
    if method == "paper":
        jobs += [_job(size, method, "ant-empty", 50, seed, one_rate=True) for seed in seeds]
    return jobs


def _long_jobs(size: Size, method: Method) -> list[Job]:
    """Nothing but their length tells long runs from the usual ones: they go on where these end."""
    jobs = []
    for agents, seed in product(AGENTS, SIZES[size].seeds):
        usual = _job(size, method, "ant-empty", agents, seed)
        jobs += [usual, replace(_job(size, method, "ant-empty", agents, seed, longer=LONGER), after=usual.name)]
    return jobs


def _job(
    size: Size,
    method: Method,
    world: str,
    agents: int,
    seed: int,
    *,
    budget: int = 2,
    longer: int = 1,
    one_rate: bool = False,
) -> Job:
    """Pretraining with `budget` halves of the usual trajectories, `longer` times the updates, or the rate of one."""
    scale = SIZES[size]
    replicas = even_split(scale.replicas * budget // 2, agents)
    settings: dict[str, Any] = {
        "agents": agents,
        "horizon": scale.horizon,
        "replicas": replicas,
        "total_steps": scale.updates * replicas * scale.horizon * longer,
        "seed": seed,
        "threads": 1,
    }
    if one_rate:
        settings["learning_rate"] = PAPER_LEARNING_RATES[1]
    config = pretrain_config(world, "paper" if size == "paper" else "quick", settings, method)
    if (world, agents, longer) == ("ant-empty", 10, 1):
        config = _with_equal_steps(config, budget)
    kind = "one-rate" if one_rate else "long" if longer > 1 else f"{replicas}-replicas" if budget != 2 else ""
    return Job(run_name(world, agents, seed, kind), config)


def _with_equal_steps(config: PretrainConfig, budget: int) -> PretrainConfig:
    """`config`, keeping a checkpoint of when it has made as many steps as the smallest budget makes in all."""
    parts = budget * math.ceil(max(BUDGETS) / budget)
    every = max(1, round(config.run.total_steps / config.rollouts.steps_per_iteration / parts))
    return with_settings(config, {"checkpoint_every": every, "keep_checkpoints": 2 * parts})


def budget_run(size: Size, budget: int, seed: int) -> str:
    """The name of the run with `budget` halves of the usual trajectories per update."""
    replicas = even_split(SIZES[size].replicas * budget // 2, 10)
    return run_name("ant-empty", 10, seed, "" if budget == 2 else f"{replicas}-replicas")


def _success_jobs(size: Size, method: Method, folder: Path) -> list[Job]:
    jobs = []
    for world in WORLDS:
        for seed in SIZES[size].seeds:
            sources = {agents: _job(size, method, world, agents, seed) for agents in {*STARTS.values()}}
            jobs += [*sources.values()]
            for zone, count in SIZES[size].goals.items():
                for number, goal in enumerate(goals_in(world, zone, count)):
                    for start, agents in STARTS.items():
                        name = goal_run(world, start, zone, number, seed)
                        jobs.append(_goal_job(size, method, folder, name, sources[agents], goal, init=start))
    return jobs


def _region_jobs(size: Size, method: Method, folder: Path) -> list[Job]:
    """PPO alone, half as long again. Its network is that of a run of one agent, which has the settings of the first."""
    source = _job(size, method, "ant-empty", 1, SIZES[size].seeds[0])
    jobs = [source]
    for zone in ZONES:
        for seed, goal in region_goals(size, zone).items():
            settings = {"init": "random", "seed": seed, "total_steps": SIZES[size].goal_steps * 3 // 2}
            jobs.append(_goal_job(size, method, folder, region_run(zone, seed), source, goal, **settings))
    return jobs


def _ring_jobs(size: Size, method: Method, folder: Path) -> list[Job]:
    jobs = []
    for seed in SIZES[size].seeds:
        source = _job(size, method, "point-maze", 2, seed)
        jobs.append(source)
        for goal, place in RING_GOALS.items():
            for agent in (0, 1):
                jobs.append(_goal_job(size, method, folder, ring_run(agent, goal, seed), source, place, agent=agent))
    return jobs


def _goal_job(size: Size, method: Method, folder: Path, name: str, source: Job, goal: Point, **settings: Any) -> Job:
    """A jump-start from the run of another job: by Table 3, or by our own PPO."""
    scale = SIZES[size]
    asked = {
        "goal": goal,
        "seed": source.config.run.seed,
        "horizon": scale.horizon,
        "replicas": scale.goal_replicas,
        "total_steps": scale.goal_steps,
        "selection_steps": scale.selection_steps,
        "threads": 1,
        **settings,
    }
    config = jumpstart_config(pack_of(folder, source.name), "paper" if method == "paper" else "quick", asked)
    assert isinstance(source.config, PretrainConfig)
    return Job(name, with_source(config, source.config), after=source.name)
