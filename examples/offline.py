"""Offline RL: learn to reach a goal from the episodes of a population alone, with d3rlpy's IQL.

No agent was trained for the goal, and IQL never acts in the world while it learns. Needs `pip install d3rlpy`. A few
minutes on two cores: python examples/offline.py
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import d3rlpy
import gymnasium
import numpy as np
import torch

import kmyriad as km


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, nargs=2, default=(2.0, 2.0), help="metres (default: 2 2)")
    parser.add_argument("--pretrain-steps", type=int, default=300_000)
    parser.add_argument("--episodes", type=int, default=1000, help="of all agents together, to learn from")
    parser.add_argument("--steps", type=int, default=10_000, help="gradient steps of IQL")
    parser.add_argument("--trials", type=int, default=100, help="episodes that tell how often the goal is reached")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small networks: threads would only wait for each other
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps, goal = arguments.pretrain_steps, tuple(arguments.goal)
        run = km.pretrain("point-maze", agents=10, out=folder / "run", total_steps=steps)
        data = km.export(run, "npz", folder / "data", goal=goal, episodes=arguments.episodes)
        dataset, known = read(data)
        facts = json.loads((data / "dataset.json").read_text())
    print(f"{facts['episodes']} episodes of {facts['agents']} agents: {known:.2f} reach the goal")
    policy = d3rlpy.algos.IQLConfig(expectile=0.9, weight_temp=10.0).create()
    policy.fit(dataset, n_steps=arguments.steps, n_steps_per_epoch=arguments.steps, show_progress=False, **QUIET)
    print(f"IQL after {arguments.steps:,} gradient steps: {success(policy, facts, arguments.trials):.2f}")


QUIET: dict[str, Any] = {"logger_adapter": d3rlpy.logging.NoopAdapterFactory()}


def read(folder: Path) -> tuple[Any, float]:
    """The episodes as d3rlpy wants them, and how often they reach the goal."""
    shards = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    steps = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}
    dataset = d3rlpy.dataset.MDPDataset(
        steps["observation"], steps["action"], steps["reward"], steps["terminated"], timeouts=steps["truncated"]
    )
    return dataset, float(steps["terminated"].sum() / len(np.unique(steps["episode"])))


def success(policy: Any, facts: dict[str, Any], trials: int) -> float:
    """How often the goal is reached from fresh starts."""
    env = gymnasium.make(facts["env_id"], **facts["env_settings"])
    reached = 0
    for trial in range(trials):
        seen, _ = env.reset(seed=trial)
        over = False
        while not over:
            seen, _, terminated, truncated, _ = env.step(policy.predict(seen[None])[0])
            over = terminated or truncated
        reached += terminated
    env.close()
    return reached / trials


if __name__ == "__main__":
    main()
