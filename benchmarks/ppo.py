"""Our PPO beside Stable-Baselines3's on a task of Gymnasium's: the same steps, several seeds, returns and speed.

Both learn `Pendulum-v1` from nothing with as many replicas and about the settings that are known to suit it; our run is
`kmyriad.jumpstart(..., init="random")` with fresh weights. Returns are of fresh episodes with frozen policies.
"""

import kmyriad  # noqa: I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from kmyriad.rollout.collect import collect
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population

ENV, HORIZON = "Pendulum-v1", 200
REPLICAS = 20
EPISODES = 100
"""Of every evaluation."""
OURS: dict[str, Any] = {
    "replicas": REPLICAS,
    "rollout_steps": None,
    "gamma": 0.9,
    "learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "critic_hidden": (64, 64),
    "gae_lambda": 0.95,
    "update_epochs": 10,
    "minibatches": 16,
    "critic_epochs": 0,
    "desired_kl": None,
    "critic_warm_up": 1,
    "selection_steps": 10 * HORIZON,
    "agent": 0,  # one fresh policy, as theirs: nothing to practise for and choose from
}
THEIRS: dict[str, Any] = {
    "gamma": 0.9,
    "learning_rate": 1e-3,
    "n_epochs": 10,
    "batch_size": REPLICAS * HORIZON // 16,
    "n_steps": HORIZON,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000, help="of each run (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    nothing = ours(0, 0)[0]
    found = {
        name: [learn(seed, arguments.steps) for seed in range(arguments.seeds)]
        for name, learn in (("kmyriad", ours), ("Stable-Baselines3", theirs))
    }
    table = Table("PPO", "return, each seed", "mean", "steps/s", title=f"{ENV}, {arguments.steps:,} steps")
    table.add_row("untrained", "", f"{nothing:.0f}", "")
    for name, runs in found.items():
        returns, speeds = zip(*runs, strict=True)
        each = " ".join(f"{value:.0f}" for value in returns)
        table.add_row(name, each, f"{np.mean(returns):.0f}", f"{np.median(speeds):,.0f}")
    Console().print(table)
    (our_return, our_speed), (their_return, their_speed) = (np.median(runs, axis=0) for runs in found.values())
    figures = {
        # Returns are negative: what is compared is the rise above the untrained policy's.
        "return_vs_sb3": float((our_return - nothing) / (their_return - nothing)),
        "speed_vs_sb3": float(our_speed / their_speed),
    }
    Console().print(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures, "runs": found}, indent=1) + "\n")


def ours(seed: int, steps: int) -> tuple[float, float]:
    """(mean return of fresh episodes, training steps per second)."""
    with tempfile.TemporaryDirectory() as folder:
        source = kmyriad.pretrain(  # never trained further: it only says how large the network is
            ENV, out=Path(folder) / "source", agents=1, total_steps=1, horizon=HORIZON, trunk_hidden=(64,),
            agent_hidden=64, activation="relu", normalise_observations=False, initial_std=0.6, seed=seed, threads=1,
        )  # fmt: skip
        run = source
        started, spent = time.perf_counter(), 1
        if steps:
            run = kmyriad.jumpstart(
                source, init="random", out=Path(folder) / "run", seed=seed, total_steps=steps, threads=1, **OURS
            )
            spent = run.metrics()[-1]["env_steps"]
        speed = spent / (time.perf_counter() - started)
        population = load_population(run)
    replicas = make_replicas(ENV, EPISODES, horizon=HORIZON, threads=1)
    replicas.start(seed + 1000)
    rewards = collect(replicas, population, HORIZON, seed + 1000, iteration=0).rewards
    replicas.close()
    return float(rewards.sum(dim=-1).mean()), speed


def theirs(seed: int, steps: int) -> tuple[float, float]:
    """The same of Stable-Baselines3."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env = make_vec_env(ENV, REPLICAS, seed=seed)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", verbose=0, **THEIRS)
    started = time.perf_counter()
    model.learn(steps)
    speed = steps / (time.perf_counter() - started)
    fresh = make_vec_env(ENV, 1, seed=seed + 1000)
    returns, _ = evaluate_policy(model, fresh, EPISODES, deterministic=False)
    return float(np.mean(returns)), speed


if __name__ == "__main__":
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    main()
