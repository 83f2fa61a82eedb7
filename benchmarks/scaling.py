"""How training scales: two processes against one, cost per replica from 100 to 16,000, share of communication.

And what large pools and many replicas cost each process, for reckoning with clusters (docs/guides/clusters.md).

python benchmarks/scaling.py            # about ten minutes on two cores
python benchmarks/scaling.py --quick    # a minute: it works

One process on one core, one on two cores and two processes with a core each do the same work in turns, several rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
WORLDS = {"physics dominates": "ant-pyramid", "default": "ant-empty"}
"""On the pyramids a step takes more than on flat ground."""
ITERATIONS, QUICK_ITERATIONS = 24, 3
REPLICAS, ROLLOUT_STEPS, AGENTS = 400, 25, 10
SIZES, QUICK_SIZES = (100, 1_000, 4_000, 16_000), (100, 200)
POOLS, QUICK_POOLS = (600_000, 2_400_000, 9_600_000), (60_000,)
QUERIES, NOISY = 400_000, 16_384
STEPS_PER_SIZE = 400_000
"""Of each size, or one iteration if it has more; the one before it only warms up."""
PARTS = ("processes", "costs", "alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of processes beside each other (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[*PARTS], choices=PARTS, help="parts of all this")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, help="a file for the figures; other parts that are there already stay")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)  # in a process of its own: settings
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train)
        return
    kept = arguments.json is not None and arguments.json.exists()
    told: dict[str, Any] = json.loads(arguments.json.read_text()) if kept else {"figures": {}}
    if "processes" in arguments.only:
        rounds, iterations = (1, QUICK_ITERATIONS) if arguments.quick else (arguments.rounds, ITERATIONS)
        told["processes"] = {name: [in_turns(env, iterations) for _ in range(rounds)] for name, env in WORLDS.items()}
        told["figures"] |= figures_of_processes(told["processes"])
    if "costs" in arguments.only:
        told["microseconds_per_replica_step"] = costs(QUICK_SIZES if arguments.quick else SIZES)
        for way, sizes in told["microseconds_per_replica_step"].items():
            told["figures"][f"highest_vs_lowest_replica_cost_{way}"] = max(sizes.values()) / min(sizes.values())
    if "alone" in arguments.only:
        told["seconds"] = seconds_alone(QUICK_POOLS if arguments.quick else POOLS)
        for name, value in told["seconds"].items():
            print(f"{name:<60} {value:.2f} s")
    for name, value in told["figures"].items():
        print(f"{name:<44} {value:.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=2) + "\n")


def figures_of_processes(worlds: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Print the rates of every round; returns what they come to."""
    for name, turns in worlds.items():
        for way in ("one core", "two cores", "two processes"):
            rates = [turn[way]["rate"] for turn in turns]
            print(f"{name:<18} {way:<14} {median(rates):8,.0f} steps/s   ({', '.join(f'{one:,.0f}' for one in rates)})")
    heavy, default = worlds["physics dominates"], worlds["default"]
    return {
        "two_processes_vs_one": ratio(heavy, "two processes", "one core"),
        "two_processes_vs_one_default": ratio(default, "two processes", "one core"),
        "two_processes_vs_two_threads": ratio(default, "two processes", "two cores"),
        "physics_share": median(turn["one core"]["physics"] for turn in heavy),
        "communication_share": median(turn["two processes"]["communication"] for turn in default),
    }


def ratio(turns: list[dict[str, Any]], ours: str, theirs: str) -> float:
    """The median over rounds: what a machine does for others comes and goes, and all ways of a round share it."""
    return median(turn[ours]["rate"] / turn[theirs]["rate"] for turn in turns)


def in_turns(env: str, iterations: int) -> dict[str, Any]:
    """`rate`, and shares of `communication` and `physics`, of the three ways to train the same."""
    settings = {"env": env, "agents": AGENTS, "replicas": REPLICAS, "rollout_steps": ROLLOUT_STEPS}
    settings["total_steps"] = iterations * REPLICAS * ROLLOUT_STEPS
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("this needs two cores")
    return {
        "one core": measured(settings, 1, cores[:1]),
        "two cores": measured(settings, 1, cores),
        "two processes": measured(settings, 2, cores),
    }


def costs(counts: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Microseconds of a step of one of so many replicas, in one process on one core and on all of them."""
    cores = sorted(os.sched_getaffinity(0))
    told: dict[str, dict[str, float]] = {"one_core": {}, "all_cores": {}}
    for replicas in counts:
        iterations = 1 + max(1, STEPS_PER_SIZE // (replicas * ROLLOUT_STEPS))
        settings = {"env": "ant-empty", "agents": AGENTS, "replicas": replicas, "rollout_steps": ROLLOUT_STEPS}
        settings["total_steps"] = iterations * replicas * ROLLOUT_STEPS
        for way, own in (("one_core", cores[:1]), ("all_cores", cores)):
            told[way][str(replicas)] = 1e6 / measured(settings, 1, own)["rate"]
            print(
                f"{way:<10} {replicas:>6,} replicas: {told[way][str(replicas)]:.1f} microseconds a step of one of them"
            )
    return told


def seconds_alone(pools: tuple[int, ...]) -> dict[str, float]:
    """What every process does by itself on the CPU: trees of the pool, and noise."""
    import gymnasium
    import numpy as np
    from pykdtree.kdtree import KDTree

    from kmyriad.population.distributions import action_spec
    from kmyriad.rollout.randomness import action_noise

    told = {}
    for size in pools:
        points = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)
        start = time.perf_counter()
        tree = KDTree(points)
        told[f"tree of {size:,} states"] = time.perf_counter() - start
        start = time.perf_counter()
        tree.query(points[:QUERIES], k=6)
        told[f"{min(QUERIES, size):,} states asked for in a tree of {size:,}"] = time.perf_counter() - start
    spec = action_spec(gymnasium.spaces.Box(-1, 1, (8,), np.float32))
    start = time.perf_counter()
    action_noise(0, 1, np.arange(NOISY), ROLLOUT_STEPS, spec)
    told[f"noise of {NOISY:,} replicas for {ROLLOUT_STEPS} steps"] = time.perf_counter() - start
    return told


def measured(settings: dict[str, Any], processes: int, cores: list[int]) -> dict[str, float]:
    """Environment steps per second, and the shares of time spent waiting for other processes, and in the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "settings.json"
        asked.write_text(json.dumps({"settings": settings, "out": str(Path(folder) / "run")}))
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *(torchrun if processes > 1 else [])]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(max(1, len(cores) // processes))}
        command += [str(Path(__file__).resolve()), "--train", str(asked)]
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
        spent = json.loads((Path(folder) / "spent.json").read_text())
    seconds = [row["seconds"] for row in rows]
    steps = settings["replicas"] * settings["rollout_steps"] * (len(rows) - 1)
    return {"rate": steps / sum(seconds[1:])} | {name: value / sum(seconds) for name, value in spent.items()}


def train(asked: Path) -> None:
    """The run that is asked for, with a stopwatch at every exchange between processes and at the simulator."""
    import torch.distributed as dist

    import kmyriad
    from kmyriad.engines.world_engine import WorldEngine

    told, spent = json.loads(asked.read_text()), {"communication": 0.0, "physics": 0.0}

    def time_at(where: Any, function: str, what: str) -> None:
        call = getattr(where, function)

        def timed(*arguments: Any, **settings: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments, **settings)
            finally:
                spent[what] += time.perf_counter() - start

        setattr(where, function, timed)

    for exchange in ("all_gather", "all_reduce"):
        time_at(dist, exchange, "communication")
    time_at(WorldEngine, "step", "physics")
    kmyriad.pretrain(out=told["out"], **told["settings"])
    if os.environ.get("RANK", "0") == "0":
        (asked.parent / "spent.json").write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
