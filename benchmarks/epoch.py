"""One epoch at the paper's size, split into its parts, against the raw limit of this machine.

The limit is what cannot be avoided: bare `mujoco.batch` stepping of the same model under the same actions (those of the
epoch are replayed, so both do the same physics), and the bare matrix products of one forward pass over all steps
(acting) and of one forward and backward pass (the update). Epoch and limit are measured in the same run, in turns of
twenty control steps (about a second), so that a machine that is slower for a while is so for both.
"""

import kmyriad  # noqa: F401, I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mujoco.batch import Batch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch

from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.training.metrics import epoch_metrics
from kmyriad.objective.rewards import estimate_entropy, slide
from kmyriad.presets import preset
from kmyriad.training.pretrain import initial_state
from kmyriad.rollout.collect import ParallelTrajectory, collect
from kmyriad.updates.reinforce import reinforce

TURN = 20
"""Control steps that the epochs and the limit make in turns."""

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
    parser.add_argument("--quick", action="store_true", help="a horizon of 120 instead of 600")
    parser.add_argument("--rounds", type=int, default=3, help="times everything is measured (default: %(default)s)")
    parser.add_argument("--peak", type=int, metavar="HORIZON", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        epoch = Epoch(1000, 10, arguments.peak)
        epoch.start()
        for _ in range(arguments.peak // TURN):
            epoch.collect()
        epoch.finish()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return

    horizon = 120 if arguments.quick else 600
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
    peak = peak_gigabytes(horizon)  # first: Linux counts the size of the process that starts another as the other's
    epochs = {
        "paper": Epoch(1000, 10, horizon),
        "1 head": Epoch(1000, 1, horizon),
        "50 heads": Epoch(1000, 50, horizon),
        "4000 replicas": Epoch(4000, 10, horizon),
    }
    limit = Limit(epochs["paper"])
    parts: dict[str, list[Parts]] = {name: [] for name in epochs}
    limits: list[tuple[float, float]] = []
    for _ in range(rounds):
        limit.start()
        for epoch in epochs.values():
            epoch.start()
        for _ in range(horizon // TURN):
            limit.follow(epochs["paper"].collect())
            for epoch in list(epochs.values())[1:]:
                epoch.collect()
        limits.append((limit.physics, limit.products + limit.update()))
        for name, epoch in epochs.items():
            parts[name].append(epoch.finish())
    totals = {name: np.array([part.total for part in rows]) for name, rows in parts.items()}
    limit_totals = np.array([sum(pair) for pair in limits])
    figures = {
        "vs_limit": float(np.median(limit_totals / totals["paper"])),
        "knn_share": float(np.median([part.knn / part.total for part in parts["paper"]])),
        "heads_50_vs_1": float(np.median(totals["50 heads"] / totals["1 head"])),
        "peak_gb": peak,
        "per_replica_4000_vs_1000": float(np.median(totals["4000 replicas"] / totals["paper"]) / 4),
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
        self.config = replace(preset("paper", "ant-empty", agents), replicas=replicas, horizon=horizon)
        self.replicas: Replicas = make_replicas("ant-empty", replicas, horizon=horizon)
        self.state = initial_state(self.config, self.replicas)

    def start(self) -> None:
        self.replicas.start(0)
        self.pieces: list[ParallelTrajectory] = []
        self.collecting = self.stepping = 0.0

    def collect(self) -> NDArray[np.float64]:
        """The next `TURN` steps; returns their controls (TURN, replicas, a)."""
        stopwatch = Stopwatch(self.replicas.env)
        start = time.perf_counter()
        piece = collect(self.replicas, self.state.population, TURN, seed=0, epoch=len(self.pieces))
        self.collecting += time.perf_counter() - start
        self.stepping += stopwatch.stop()
        self.pieces.append(piece)
        return np.tanh(piece.actions.flatten(0, 1).transpose(0, 1).numpy().astype(np.float64))

    def finish(self) -> Parts:
        """All that follows the collection."""
        config, state = self.config, self.state
        trajectory = join(self.pieces)
        times = [time.perf_counter()]
        state.pool = slide([], trajectory, 1)
        estimate = estimate_entropy(state.pool, config.k)
        times.append(time.perf_counter())
        report = reinforce(state.population, state.optimizer, trajectory, estimate, config.chunk)
        times.append(time.perf_counter())
        epoch_metrics(config, self.replicas.cell, state, trajectory, estimate, report)
        times.append(time.perf_counter())
        state.pool, self.pieces = [], []
        return Parts(self.stepping, self.collecting - self.stepping, *np.diff(times).tolist())


def join(pieces: list[ParallelTrajectory]) -> ParallelTrajectory:
    """One trajectory of pieces that follow each other."""
    whole: dict[str, Any] = dict.fromkeys(vars(pieces[0]))
    for name, first in vars(pieces[0]).items():
        parts = [getattr(piece, name) for piece in pieces]
        if first is None:
            continue
        whole[name] = torch.cat(parts, dim=2) if isinstance(first, torch.Tensor) else np.concatenate(parts, axis=2)
    return ParallelTrajectory(**whole)


class Limit:
    """Bare stepping and bare matrix products of the same sizes."""

    def __init__(self, epoch: Epoch) -> None:
        env = epoch.replicas.env
        self.world = env.world  # type: ignore[attr-defined]
        self.config = epoch.config
        population = epoch.state.population
        self.trunk = [weight.detach() for weight in population.trunk_weights]
        self.heads = [population.adapter_weight.detach(), population.output_weight.detach()]
        self.batch = Batch(self.world.model, self.config.replica_count)
        self.acting = torch.randn(self.config.replica_count, self.trunk[0].shape[0])
        self.physics = self.products = 0.0

    def start(self) -> None:
        self.batch.reset()
        self.batch.bind("qpos")[:] = self.world.initial_state(None)[0]
        self.physics = self.products = 0.0

    def follow(self, controls: NDArray[np.float64]) -> None:
        """Step the bare physics under `controls` (steps, replicas, a); multiply what acting multiplies."""
        ctrl = self.batch.bind("ctrl")
        start = time.perf_counter()
        for row in controls:
            ctrl[:] = row
            self.batch.step(nstep=self.world.decimation)
        middle = time.perf_counter()
        with torch.inference_mode():
            for _ in controls:
                self._forward(self.acting)
        self.physics += middle - start
        self.products += time.perf_counter() - middle

    def update(self) -> float:
        """Seconds of the matrix products of one forward and backward pass over the epoch, in chunks."""
        chunk = self.config.chunk // self.config.agents * self.config.agents
        batch = torch.randn(chunk, self.trunk[0].shape[0])
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(round(self.config.replica_count * self.config.horizon / chunk)):
                self._forward_and_backward(batch)
        return time.perf_counter() - start

    def _forward(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The inputs of every layer, and the outputs."""
        inputs = []
        for weight in self.trunk:
            inputs.append(rows)
            rows = rows @ weight
        rows = rows.view(self.config.agents, -1, rows.shape[-1])
        for weight in self.heads:
            inputs.append(rows)
            rows = torch.bmm(rows, weight)
        return [*inputs, rows]

    def _forward_and_backward(self, batch: torch.Tensor) -> None:
        *inputs, gradient = self._forward(batch)
        for weight, rows in zip(reversed(self.heads), reversed(inputs[len(self.trunk) :]), strict=True):
            torch.bmm(rows.transpose(1, 2), gradient)
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
        gradient = gradient.reshape(len(batch), -1)
        for index in reversed(range(len(self.trunk))):
            inputs[index].T @ gradient
            if index:
                gradient = gradient @ self.trunk[index].T


if __name__ == "__main__":
    main()
