"""One epoch at the paper's size, split into its parts, against the raw limit of this machine.

The limit is what cannot be avoided: bare `mujoco.batch` stepping of the same model under the same actions (those of the
epoch are replayed, so both do the same physics), and the bare matrix products of one forward pass over all steps
(acting) and of one forward and backward pass (the update). Both are measured in the same run, in turns with the epoch.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mujoco.batch import Batch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kmyriad.config import PretrainConfig
from kmyriad.envs.replicas import Replicas, make_replicas
from kmyriad.metrics import epoch_metrics
from kmyriad.particles import estimate_entropy, slide
from kmyriad.population import Population
from kmyriad.pretraining import initial_state
from kmyriad.rollout import collect
from kmyriad.updates.reinforce import reinforce

TARGETS = {
    "vs_limit": (">= 0.8", "rate of the epoch / rate of the limit"),
    "knn_share": ("<= 0.03", "part of the epoch spent on nearest neighbours and particle rewards"),
    "heads_50_vs_1": ("<= 1.15", "seconds of an epoch with 50 heads / with 1"),
    "peak_gb": ("< 3", "peak memory of a process that runs one epoch"),
    "per_replica_4000_vs_1000": ("0.9 to 1.1", "seconds per replica with 4000 replicas / with 1000"),
}


@dataclass(frozen=True)
class Parts:
    """Seconds of one epoch."""

    physics: float
    """Stepping the environments, observations included."""
    policy: float
    """Acting: the rest of the collection."""
    knn: float
    """Neighbours, entropy and particle rewards."""
    update: float
    metrics: float
    """What is logged about the epoch; nearest neighbours again, on samples."""

    @property
    def total(self) -> float:
        return self.physics + self.policy + self.knn + self.update + self.metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="a horizon of 60 instead of 600: about a minute, noisier")
    parser.add_argument("--rounds", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--peak", type=int, metavar="HORIZON", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        Epoch(1000, 10, arguments.peak).run()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return

    horizon = 60 if arguments.quick else 600
    console = Console()
    with console.status("measuring"):
        figures, seconds = measure(horizon, arguments.rounds)
    table = Table("figure", "value", "aim", "what", title=f"1000 replicas x {horizon} steps, 10 heads")
    for name, (aim, what) in TARGETS.items():
        table.add_row(name, f"{figures[name]:.3g}", aim, what)
    console.print(table)
    split = Table("part of the epoch", "seconds")
    for name, value in seconds.items():
        split.add_row(name, f"{value:.2f}")
    console.print(split)
    if arguments.json:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        report = {"figures": figures, "seconds": seconds, "horizon": horizon, "versions": versions}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def measure(horizon: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """(figures, seconds of the parts): medians over rounds in which every contestant has one turn."""
    epochs = {
        "paper": Epoch(1000, 10, horizon),
        "1 head": Epoch(1000, 1, horizon),
        "50 heads": Epoch(1000, 50, horizon),
        "4000": Epoch(4000, 10, max(horizon // 4, 1)),
        "1000": Epoch(1000, 10, max(horizon // 4, 1)),
    }
    limit = Limit(epochs["paper"])
    parts: dict[str, list[Parts]] = {name: [] for name in epochs}
    limits: list[tuple[float, float]] = []
    for _ in range(rounds):
        for name, epoch in epochs.items():
            parts[name].append(epoch.run())
            if name == "paper":
                limits.append(limit.run(epoch.taken))
    totals = {name: np.array([part.total for part in rows]) for name, rows in parts.items()}
    limit_totals = np.array([sum(pair) for pair in limits])
    figures = {
        "vs_limit": float(np.median(limit_totals / totals["paper"])),
        "knn_share": float(np.median([part.knn / part.total for part in parts["paper"]])),
        "heads_50_vs_1": float(np.median(totals["50 heads"] / totals["1 head"])),
        "peak_gb": peak_gigabytes(horizon),
        "per_replica_4000_vs_1000": float(np.median(totals["4000"] / totals["1000"]) / 4),
    }
    seconds = {
        **{
            name: float(np.median([getattr(part, name) for part in parts["paper"]])) for name in vars(parts["paper"][0])
        },
        "limit: physics": float(np.median([physics for physics, _ in limits])),
        "limit: matrix products": float(np.median([products for _, products in limits])),
    }
    return figures, seconds


def peak_gigabytes(horizon: int) -> float:
    """Of a fresh process, since memory once taken stays counted."""
    command = [sys.executable, __file__, "--peak", str(horizon)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Epoch:
    """Everything that an epoch of Algorithm 1 does, timed part by part."""

    def __init__(self, replicas: int, agents: int, horizon: int) -> None:
        self.config = PretrainConfig(agents=agents, replicas=replicas, horizon=horizon)
        self.replicas: Replicas = make_replicas("ant-empty", replicas, horizon=horizon)
        self.state = initial_state(self.config, self.replicas)
        self.taken = np.empty((0, replicas, 8))
        """(horizon, replicas, a), the controls of the last epoch run."""

    def run(self) -> Parts:
        config, state = self.config, self.state
        self.replicas.start(0)
        stepping = Stopwatch(self.replicas.env)
        times = [time.perf_counter()]
        trajectory = collect(self.replicas, state.population, config.horizon, seed=0, epoch=1)
        times.append(time.perf_counter())
        state.pool = slide([], trajectory, 1)
        estimate = estimate_entropy(state.pool, config.k)
        times.append(time.perf_counter())
        report = reinforce(state.population, state.optimizer, trajectory, estimate, config.chunk)
        times.append(time.perf_counter())
        epoch_metrics(config, self.replicas.cell, state, trajectory, estimate, report)
        times.append(time.perf_counter())
        stepping.stop()
        actions = trajectory.actions.flatten(0, 1).transpose(0, 1).numpy()
        self.taken = np.tanh(actions.astype(np.float64))
        collecting, *rest = np.diff(times).tolist()
        return Parts(stepping.seconds, collecting - stepping.seconds, *rest)


class Stopwatch:
    """Times every call of an environment's `step`."""

    def __init__(self, env: Any) -> None:
        self._env, self._step, self.seconds = env, env.step, 0.0
        env.step = self._timed

    def _timed(self, actions: Any) -> Any:
        start = time.perf_counter()
        result = self._step(actions)
        self.seconds += time.perf_counter() - start
        return result

    def stop(self) -> None:
        self._env.step = self._step


class Limit:
    """Bare stepping and bare matrix products of the same sizes."""

    def __init__(self, epoch: Epoch) -> None:
        env = epoch.replicas.env
        self.world = env.world  # type: ignore[attr-defined]
        self.config, self.population = epoch.config, epoch.state.population
        self.batch = Batch(self.world.model, self.config.replicas)

    def run(self, controls: NDArray[np.float64]) -> tuple[float, float]:
        """(seconds of physics under `controls` (horizon, replicas, a), seconds of matrix products)."""
        start = time.perf_counter()
        self.batch.reset()
        self.batch.bind("qpos")[:] = self.world.initial_state(None)[0]
        ctrl = self.batch.bind("ctrl")
        for step in range(self.config.horizon):
            ctrl[:] = controls[step]
            self.batch.step(nstep=self.world.decimation)
        physics = time.perf_counter() - start
        return physics, products(self.population, self.config)


def products(population: Population, config: PretrainConfig) -> float:
    """Seconds of the matrix products alone: acting step by step, then forward and backward in chunks."""
    heads = [population.adapter_weight.detach(), population.output_weight.detach()]
    trunk = [weight.detach() for weight in population.trunk_weights]

    def forward(rows: torch.Tensor) -> list[torch.Tensor]:
        inputs = []
        for weight in trunk:
            inputs.append(rows)
            rows = rows @ weight
        rows = rows.view(config.agents, -1, rows.shape[-1])
        for weight in heads:
            inputs.append(rows)
            rows = torch.bmm(rows, weight)
        return [*inputs, rows]

    start = time.perf_counter()
    with torch.inference_mode():
        acting = torch.randn(config.replicas, trunk[0].shape[0])
        for _ in range(config.horizon):
            forward(acting)
        chunk = config.chunk // config.agents * config.agents
        batch = torch.randn(chunk, trunk[0].shape[0])
        for _ in range(round(config.replicas * config.horizon / chunk)):
            *inputs, gradient = forward(batch)
            for weight, rows in zip(reversed(heads), reversed(inputs[len(trunk) :]), strict=True):
                torch.bmm(rows.transpose(1, 2), gradient)
                gradient = torch.bmm(gradient, weight.transpose(1, 2))
            gradient = gradient.reshape(chunk, -1)
            for index in reversed(range(len(trunk))):
                inputs[index].T @ gradient
                if index:
                    gradient = gradient @ trunk[index].T
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
