"""From what each run told to numbers per seed, which the claims are judged by."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.evaluation.statistics import smoothed
from kmyriad.reproduction.measured import Measured
from kmyriad.reproduction.measures import weighted_errors
from kmyriad.reproduction.plan import (
    AGENTS,
    LONGER,
    RING_GOALS,
    SIZES,
    STARTS,
    ZONES,
    Method,
    Size,
    budget_run,
    goal_run,
    region_run,
    ring_run,
    run_name,
)
from kmyriad.reproduction.verdicts import BUDGETS, WORLDS

FINAL_ROWS = 3
"""Updates at the end of a run whose entropy is averaged."""
SOLVED = 0.5
"""Success rate from which on an agent's way to a goal is asked for."""

Numbers = dict[str, dict[int, float]]
Runs = Mapping[str, Measured]
"""What finished runs told, by name."""


def facts_of(runs: Runs, size: Size, method: Method) -> Numbers:
    """Everything that the runs tell about the claims."""
    facts: Numbers = {}
    for what, error in weighted_errors().items():
        _put(facts, f"weighted/{what}", 0, error)
    for world in WORLDS:
        _populations(facts, runs, size, world)
        _steps_to_mark(facts, runs, size, method, world)
        _goals(facts, runs, size, world)
    for seed in SIZES[size].seeds:
        for budget in BUDGETS:
            _take(facts, f"budget/{budget}", seed, runs, budget_run(size, budget, seed), "entropy")
            _take(facts, f"budget_steps/{budget}", seed, runs, budget_run(size, budget, seed), "entropy_at_equal_steps")
        for agents in AGENTS:
            long = runs.get(run_name("ant-empty", agents, seed, "long"))
            if long is not None:
                _put(facts, f"long_fifth/{agents}", seed, entropy_after(long, 1 / LONGER))
                _put(facts, f"long_end/{agents}", seed, entropy_after(long, 1.0))
        for goal in RING_GOALS:
            _ring(facts, runs, goal, seed)
    for zone in ZONES:
        for seed in SIZES[size].region_seeds:
            _take(facts, f"ppo/{zone}", seed, runs, region_run(zone, seed), "success")
    return facts


def _populations(facts: Numbers, runs: Runs, size: Size, world: str) -> None:
    """Entropy, KL and throughput of the populations in a world; how well ten agents are told apart."""
    for agents in AGENTS:
        for seed in SIZES[size].seeds:
            name, of = run_name(world, agents, seed), f"{world}/{agents}"
            _take(facts, f"entropy/{of}", seed, runs, name, "entropy")
            _take(facts, f"rate/{of}", seed, runs, name, "steps_per_second")
            _take(facts, f"kl/{of}", seed, runs, name, "kl")
            _take(facts, f"kl_floor/{of}", seed, runs, name, "kl_floor")
            if of == "ant-empty/10":
                _take(facts, "accuracy/10", seed, runs, name, "accuracy")


def _steps_to_mark(facts: Numbers, runs: Runs, size: Size, method: Method, world: str) -> None:
    """Steps after which training's entropy was first at a mark: the same for all runs in a world.

    The mark is what the group with the lowest entropy has at the end, on average over its seeds. A run that never comes
    there counts with all of its steps, which is the least that it would take.
    """
    curves: dict[str, dict[int, Any]] = {}
    for name, agents, kind in (*((str(m), m, "") for m in AGENTS), ("50-one-rate", 50, "one-rate")):
        for seed in SIZES[size].seeds:
            run = runs.get(run_name(world, agents, seed, kind))
            if run is not None:
                curves.setdefault(name, {})[seed] = _entropies(run)
    ends = [np.mean([ys[-FINAL_ROWS:].mean() for _, ys in of_seeds.values()]) for of_seeds in curves.values()]
    if not ends:
        return
    mark = float(min(ends))
    for seed in SIZES[size].seeds:
        _put(facts, f"mark/{world}", seed, mark)
    for name, of_seeds in curves.items():
        for seed, (steps, entropies) in of_seeds.items():
            there = np.flatnonzero(np.array(smoothed(entropies.tolist())) >= mark)
            _put(facts, f"steps/{world}/{name}", seed, steps[there[0]] if there.size else steps[-1])
    if method == "ours" and f"steps/{world}/50" in facts:  # ours has one rate for any number of agents
        facts[f"steps/{world}/50-one-rate"] = dict(facts[f"steps/{world}/50"])


def _goals(facts: Numbers, runs: Runs, size: Size, world: str) -> None:
    """Success of jump-starts in a world, of each seed on average over its goals in a zone."""
    for start, zone, seed, told in _jump_starts(runs, size, world):
        where = "" if zone == "outside" else f"_{zone}"
        for name, measure in (("final", "success"), ("early", "early"), ("early_updates", "early_updates")):
            mean = np.mean([one.measures[measure] or 0.0 for one in told])
            _put(facts, f"{name}{where}/{world}/{start}", seed, mean)
        if zone == "outside":
            rates = [one.measures["steps_per_second"] or 0.0 for one in told]
            _put(facts, f"rate/PPO in {world}", seed, np.mean(rates))


def _jump_starts(runs: Runs, size: Size, world: str) -> Iterator[tuple[str, str, int, list[Measured]]]:
    """(start, zone, seed, one run per goal) where all goals of a seed are done."""
    for start in STARTS:
        for zone, count in SIZES[size].goals.items():
            for seed in SIZES[size].seeds:
                names = [goal_run(world, start, zone, number, seed) for number in range(count)]
                if all(name in runs for name in names):
                    yield start, zone, seed, [runs[name] for name in names]


def _ring(facts: Numbers, runs: Runs, goal: str, seed: int) -> None:
    """Whether the two agents of a seed come to a goal of the PointMaze by opposite ways."""
    names = [ring_run(agent, goal, seed) for agent in (0, 1)]
    for agent, name in enumerate(names):
        _take(facts, f"ring_success/{goal}/{agent}", seed, runs, name, "success")
        _take(facts, f"winding/{goal}/{agent}", seed, runs, name, "winding")
    if all(name in runs for name in names):
        ways = [runs[name].measures for name in names]
        both = all((way["success"] or 0.0) >= SOLVED for way in ways)
        first, second = (way.get("winding") or 0.0 for way in ways)
        _put(facts, f"opposite/{goal}", seed, float(both and first * second < 0))


def entropy_after(run: Measured, part: float) -> float:
    """The entropy that a run had after a part of its steps, by training's own episodes."""
    steps, entropies = _entropies(run)
    last = int(np.searchsorted(steps, part * steps[-1] - 0.5)) + 1
    return float(entropies[max(0, last - FINAL_ROWS) : last].mean())


def _entropies(run: Measured) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array(run.curve["env_steps"], np.float64), np.array(run.curve["entropy"], np.float64)


def _take(facts: Numbers, name: str, seed: int, runs: Runs, run: str, measure: str) -> None:
    if run in runs:
        _put(facts, name, seed, runs[run].measures.get(measure))


def _put(facts: Numbers, name: str, seed: int, value: Any) -> None:
    if value is not None and np.isfinite(value):
        facts.setdefault(name, {})[seed] = float(value)
