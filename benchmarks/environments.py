"""Other people's environments with default settings: what a population learns there, and how fast replicas are.

    python benchmarks/environments.py --json FILE             # all of it: hours on two cores, resumable
    python benchmarks/environments.py --quick                 # does it work? a minute or two
    python benchmarks/environments.py --only throughput       # or learning, or goals
    python benchmarks/environments.py --known FILE --json FILE    # go on with what another machine has measured

Learning: ten agents, one agent with as many steps, and the paper's gradient (`reinforce`), all with the default
settings, against the population before it learned anything; measured on fresh episodes. Goals: a point that plain PPO
does not come to, from the best of ten, from a single pretrained policy and from random ones, selection counted.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import gymnasium
import numpy as np
import torch
from experiments import side_by_side
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import kmyriad as km
from kmyriad.config import PretrainConfig, even_split
from kmyriad.evaluation.measures import measure, visit
from kmyriad.evaluation.selection import trials
from kmyriad.population.population import Population
from kmyriad.reproduction.commits import current_commit
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.rollout.task import task_of
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import fresh_population

LIST = {
    "HalfCheetah-v5": "HalfCheetah-v5",
    "Hopper-v5": "Hopper-v5",
    "Walker2d-v5": "Walker2d-v5",
    "Swimmer-v5": "Swimmer-v5",
    "Humanoid-v5": "Humanoid-v5",
    "Pendulum-v1": "Pendulum-v1",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Acrobot-v1": "Acrobot-v1",
    "PointMaze_UMaze-v3": "gymnasium_robotics:PointMaze_UMaze-v3",
    "AntMaze_UMaze-v5": "gymnasium_robotics:AntMaze_UMaze-v5",
}
"""By the names that figures have."""

VARIANTS: dict[str, dict[str, Any]] = {
    "ten": {"agents": 10},
    "one": {"agents": 1},
    "reinforce": {"agents": 10, "update": "reinforce"},
}
GOALS = {
    "HalfCheetah-v5": {"x": -15.0},
    "Hopper-v5": {"x": 4.0},
    "Swimmer-v5": {"x": 0.0, "y": -2.8},
    "MountainCarContinuous-v0": {"0": 0.45},
}
"""Far enough that plain PPO does not come to them in as many steps. Placed at the rim of what populations of seeds 0
and 1 visit: cheetahs of both go backwards, and only those of one forwards too. The mountain car's is the flag of the
environment itself (its position, the first column of the observation)."""

EPISODES, SEED = 100, 12_345
REPLICAS, STEPS_TIMED, TURN = 64, 1000, 50
TIMED = ("Ant-v5", "HalfCheetah-v5", "Humanoid-v5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="two environments, one seed, few steps: does it work?")
    parser.add_argument("--only", choices=("learning", "goals", "throughput"), help="a part of it")
    parser.add_argument("--steps", type=int, default=500_000, help="environment steps of a run (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds (default: 0 1 2)")
    parser.add_argument("--envs", nargs="*", default=list(LIST), choices=LIST, metavar="ENV", help="some of the list")
    parser.add_argument(
        "--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS, help="some of what is trained"
    )
    parser.add_argument("--known", type=Path, metavar="FILE", help="measures of runs that need not be trained again")
    parser.add_argument("--runs", type=Path, default=Path("runs/environments"), help="where runs are kept")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time (default: cores)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps, arguments.seeds, arguments.envs = 3000, [0], ["Pendulum-v1", "Swimmer-v5"]
        arguments.runs = arguments.runs / "quick"
    figures: dict[str, float] = {}
    parts = [arguments.only] if arguments.only else ["throughput", "learning", "goals"]
    if "throughput" in parts:
        figures |= throughput(TIMED[:1] if arguments.quick else TIMED)
    known = read_known(arguments.known, arguments.steps)
    rows, reached = known["runs"], known["goals"]
    if "learning" in parts or "goals" in parts:
        variants = {name: VARIANTS[name] for name in arguments.variants}
        rows = rows | learn(
            arguments.envs, arguments.seeds, arguments.steps, arguments.runs, arguments.processes, variants, rows
        )
        figures |= tell(rows, arguments.envs, arguments.seeds)
    if "goals" in parts:
        envs = [env for env in arguments.envs if env in GOALS]
        reached = reached | reach(envs, arguments.seeds, arguments.steps, arguments.runs, arguments.processes)
        figures |= {f"goal_{env}_{init}": mean(by) for env, told in reached.items() for init, by in told.items()}
    if arguments.json is not None:
        text = json.dumps(
            {"figures": figures, "steps": arguments.steps, "seeds": arguments.seeds, "goals": reached, "runs": rows},
            indent=1,
        )
        arguments.json.write_text(text + "\n")


def read_known(path: Path | None, steps: int) -> dict[str, Any]:
    """Measures of runs of so many steps, and who came to which goal, from a file that `--json` wrote."""
    if path is None:
        return {"runs": {}, "goals": {}}
    told: dict[str, Any] = json.loads(path.read_text())
    if told["steps"] != steps:
        raise SystemExit(f"the runs in {path} have {told['steps']} steps, not {steps}; leave out --known or --steps")
    return told


def learn(
    envs: list[str],
    seeds: list[int],
    steps: int,
    folder: Path,
    processes: int,
    variants: Mapping[str, dict[str, Any]],
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """Measures of every run that is not `known`, by `env-variant-seed`."""
    settings = {
        f"{env}-{name}-{seed}": {"env": LIST[env], "seed": seed, "total_steps": steps, **of_it}
        for env in envs
        for name, of_it in variants.items()
        for seed in seeds
    }
    return side_by_side(train_and_measure, settings, folder, processes, known)


def train_and_measure(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Train on one core, and measure what it became and what it was before."""
    torch.set_num_threads(1)
    done = folder / "measured.json"
    if done.exists():
        stored: dict[str, Any] = json.loads(done.read_text())
        return stored
    with warnings.catch_warnings(action="ignore"):  # what other packages say about themselves
        run = km.pretrain(out=folder, resume=folder.exists(), threads=1, **settings)
        started = run.pretraining
        found: dict[str, Any] = {"after": _measured(started, load_population(run))}
        found["last"] = _measured(started, load_population(run, averaged=False))
        found["before"] = _measured(started, None)
    found["commit"] = current_commit()
    done.write_text(json.dumps(found) + "\n")
    return found


def _measured(config: PretrainConfig, population: Population | None) -> dict[str, Any]:
    """Entropy, KL with its floor and cells of fresh episodes; None: of the population before it learned."""
    world, agents = config.world, config.population.agents
    replicas = make_replicas(
        world.env,
        even_split(EPISODES, agents),
        horizon=world.horizon,
        features=world.features,
        settings=world.env_settings,
        threads=1,
    )
    visits = visit(population or fresh_population(config, replicas), replicas, world.horizon, SEED)
    replicas.close()
    row = measure(visits, replicas.cell, SEED, world.feature_scale)
    kl = row.get("kl_between_agents")
    return {
        "entropy": row["entropy"],
        "cells": row["covered_cells"],
        "kl": None if kl is None else float(np.mean(kl)),
        "kl_floor": row.get("kl_floor"),
    }


def tell(rows: Mapping[str, Any], envs: list[str], seeds: list[int]) -> dict[str, float]:
    """Print a table and return the figures: gains over the untrained population, ten agents over one."""
    table = Table("environment", "variant", "entropy, before", "entropy", "gain by seed", "cells", "KL", "floor")
    figures: dict[str, float] = {}
    differences = []
    for env in envs:
        of_env = {}
        for name in VARIANTS:
            runs = [rows[f"{env}-{name}-{seed}"] for seed in seeds if f"{env}-{name}-{seed}" in rows]
            if not runs:
                continue
            before, after = ([run[when]["entropy"] for run in runs] for when in ("before", "after"))
            gains = np.subtract(after, before)
            of_env[name] = float(np.mean(after))
            kl = [run["after"]["kl"] for run in runs if run["after"]["kl"] is not None]
            floor = [run["after"]["kl_floor"] for run in runs if run["after"]["kl_floor"] is not None]
            table.add_row(
                env,
                name,
                f"{np.mean(before):.2f}",
                f"{np.mean(after):.2f}",
                " ".join(f"{gain:+.2f}" for gain in gains),
                " ".join(str(run["after"]["cells"]) for run in runs),
                f"{np.mean(kl):.2f}" if kl else "-",
                f"{np.mean(floor):.2f}" if floor else "-",
            )
            if name == "ten":
                figures[f"gain_{env}"] = float(gains.min())
        if {"ten", "one"} <= set(of_env):
            differences.append(of_env["ten"] - of_env["one"])
    Console().print(table)
    if differences:
        figures["agents_vs_one"] = float(np.mean(differences))
    return figures


def reach(
    envs: list[str], seeds: list[int], steps: int, folder: Path, processes: int
) -> dict[str, dict[str, list[float]]]:
    """Success at the end from the best of ten, a single policy and random ones, by seed."""
    inits = {"best": "ten", "single": "one", "random": "ten"}
    steps = max(steps, 40_000)
    settings = {
        f"{env}-to-goal-{init}-{seed}": {
            "source": str(folder / f"{env}-{source}-{seed}"),
            "init": init,
            "goal": GOALS[env],
            "seed": seed,
            "total_steps": steps,
            "selection_steps": max(steps // 10, 10_000),  # an episode for each agent at least
        }
        for env in envs
        for init, source in inits.items()
        for seed in seeds
    }
    if not settings:
        return {}
    found = side_by_side(jumpstart_one, settings, folder, processes)
    table = Table("environment", "goal", *inits)
    told: dict[str, dict[str, list[float]]] = {}
    for env in envs:
        told[env] = {init: [found[f"{env}-to-goal-{init}-{seed}"] for seed in seeds] for init in inits}
        table.add_row(env, str(GOALS[env]), *(" ".join(f"{value:.2f}" for value in by) for by in told[env].values()))
    Console().print(table)
    return told


def jumpstart_one(folder: Path, settings: dict[str, Any]) -> float:
    """Train on one core; the part of fresh episodes that reach the goal at the end.

    Training itself tells a success rate only once failing episodes have ended too, and of few steps and long episodes
    none has.
    """
    settings = dict(settings)
    with warnings.catch_warnings(action="ignore"):
        if folder.exists():
            run: Run = km.jumpstart(out=folder, resume=True)
        else:
            run = km.jumpstart(settings.pop("source"), out=folder, threads=1, **settings)
        task = task_of(run.jumpstart)
        solved = trials(task, load_population(run), SEED, threads=1)([0], EPISODES, 0).success
    assert solved is not None  # its task has a goal
    return float(solved.mean())


def throughput(envs: tuple[str, ...]) -> dict[str, float]:
    """Our replicas against the better of Gymnasium's two ways, and against EnvPool where it has the environment."""
    figures = {}
    table = Table("environment", "ours, steps/s", "Gymnasium sync", "async", "EnvPool", "where our time goes")
    for env in envs:
        replicas = make_replicas(env, REPLICAS, horizon=1000)
        replicas.start(0)
        space = replicas.action_space
        assert isinstance(space, gymnasium.spaces.Box)
        drawn = np.random.default_rng(0).uniform(space.low, space.high, (STEPS_TIMED, REPLICAS, *space.shape))
        actions = drawn.astype(np.float32)
        plain: dict[str, Any] = {}
        for name, kind in (("sync", SyncVectorEnv), ("async", AsyncVectorEnv)):
            plain[name] = kind([partial(gymnasium.make, env)] * REPLICAS)
            plain[name].reset(seed=0)
        ours = _stepping(replicas)
        rates = _in_turns({"ours": ours, **{name: vector.step for name, vector in plain.items()}}, actions)
        figures[f"vs_gymnasium_{env}"] = rates["ours"] / max(rates["sync"], rates["async"])
        pool = _envpool(env)
        if pool is not None:  # apart from the others: its threads spin for a while after a step
            beside = _in_turns({"ours": ours, "EnvPool": pool}, actions)
            figures[f"vs_envpool_{env}"] = beside["ours"] / beside["EnvPool"]
            rates["EnvPool"] = beside["EnvPool"]
        share = _physics_share(env, actions)
        table.add_row(
            env,
            *(f"{rates[name]:,.0f}" if name in rates else "-" for name in ("ours", "sync", "async", "EnvPool")),
            f"{share:.0%} physics, the rest Python of the environment",
        )
        replicas.close()
        for vector in plain.values():
            vector.close()
    Console().print(table)
    for name, value in figures.items():
        Console().print(f"{name} {value:.2f}")
    return figures


def _in_turns(
    peers: Mapping[str, Callable[[NDArray[np.float32]], object]], actions: NDArray[np.float32]
) -> dict[str, float]:
    """Steps per second of each, the median over steps in short turns: a noisy machine slows all alike.

    A turn's first step does not count: it finds in the caches what another has left there.
    """
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in np.split(actions, len(actions) // TURN):
        for name, step in peers.items():
            for index, of_all in enumerate(turn):
                start = time.perf_counter()
                step(of_all)
                if index:
                    seconds[name].append(time.perf_counter() - start)
    return {name: REPLICAS / float(np.median(times)) for name, times in seconds.items()}


def _envpool(env: str) -> Callable[[NDArray[np.float32]], object] | None:
    """One step of EnvPool's version, where it is installed and has one."""
    try:
        import envpool

        pool = envpool.make_gymnasium(env, num_envs=REPLICAS, num_threads=os.cpu_count() or 1)
    except Exception:  # not installed, or it has no such environment
        return None
    pool.reset()
    return lambda actions: pool.step(actions.astype(np.float64))


def _stepping(replicas: Replicas) -> Callable[[NDArray[np.float32]], object]:
    """A step of the replicas from NumPy's actions."""
    return lambda actions: replicas.step(torch.from_numpy(actions))


def _physics_share(env: str, actions: NDArray[np.float32]) -> float:
    """Part of a plain environment's step that is MuJoCo's."""
    one = gymnasium.make(env).unwrapped
    one.reset(seed=0)
    simulate: Any = one._step_mujoco_simulation  # type: ignore[attr-defined]
    spent = 0.0

    def timed(*arguments: Any) -> None:
        nonlocal spent
        start = time.perf_counter()
        simulate(*arguments)
        spent += time.perf_counter() - start

    one._step_mujoco_simulation = timed  # type: ignore[attr-defined]
    start = time.perf_counter()
    for action in actions.reshape(-1, actions.shape[-1])[:500]:
        one.step(action)
    return spent / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
