"""One iteration at the paper's size, split into its parts, against the raw limit of this machine.

The limit is what cannot be avoided: bare `mujoco.batch` stepping of the same model under the same actions (those of the
iteration are replayed, so both do the same physics), and the bare matrix products of one forward pass over all steps
(acting) and of one forward and backward pass (the update). Iteration and limit are measured in the same run, in turns
of twenty control steps (about a second), so that a machine that is slower for a while is so for both.

`training_vs_physics` is of the default recipe instead: the real training loop with all that it writes down, iteration
by iteration in turns with bare stepping of the same replicas from the same states under the same actions.

`--quick` does the same with a fifth of the replicas and far fewer steps, within a minute: a look whether all is well,
no figures to quote.
"""

import kmyriad  # noqa: F401, I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mujoco.batch import Batch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch

from kmyriad.config import with_settings
from kmyriad.objective.rewards import exact_rewards, rewards_of, slide
from kmyriad.presets import preset
from kmyriad.rollout.collect import Trajectory, collect
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.runs.logger import Logger
from kmyriad.runs.resume import begin
from kmyriad.runs.state import TrainingState
from kmyriad.training.metrics import iteration_metrics
from kmyriad.training.pretrain import algorithm_1, initial_state
from kmyriad.updates.gradient import CHUNK
from kmyriad.updates.reinforce import reinforce

TURN = 20
"""Control steps that the iterations and the limit make in turns."""

TARGETS = {
    "vs_limit": (">= 0.8", "rate of the iteration / rate of the limit"),
    "knn_share": ("<= 0.03", "part of the iteration spent on nearest neighbours and particle rewards"),
    "agents_50_vs_1": ("<= 1.15", "seconds of an iteration with 50 agents / with 1"),
    "peak_gb": ("< 3", "peak memory of a process that runs one iteration"),
    "per_replica_4x_vs_1x": ("0.9 to 1.1", "seconds per replica with four times as many replicas / with these"),
    "training_vs_physics": (">= 0.5", "default training's rate / that of bare stepping of the same replicas"),
}


@dataclass(frozen=True)
class Size:
    replicas: int
    horizon: int
    rounds: int
    """Times all is measured; in each, the default training makes the iterations of a horizon."""


FULL, QUICK = Size(1000, 600, 3), Size(200, 40, 1)


@dataclass(frozen=True)
class Parts:
    """Seconds of one iteration."""

    physics: float
    """Stepping the environments, observations included."""
    policy: float
    """Acting: the rest of the collection."""
    knn: float
    """Neighbours, entropy and particle rewards."""
    update: float
    metrics: float
    """What is logged about the iteration; nearest neighbours again, on samples."""

    @property
    def total(self) -> float:
        return self.physics + self.policy + self.knn + self.update + self.metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="smaller and noisier, within a minute")
    parser.add_argument(
        "--rounds", type=int, help=f"times all is measured (default: {FULL.rounds}, quick {QUICK.rounds})"
    )
    parser.add_argument("--peak", type=int, nargs=2, metavar=("REPLICAS", "HORIZON"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        replicas, horizon = arguments.peak
        iteration = Iteration(replicas, 10, horizon)
        iteration.start()
        for _ in range(horizon // TURN):
            iteration.collect()
        iteration.finish()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return

    size = QUICK if arguments.quick else FULL
    size = replace(size, rounds=arguments.rounds or size.rounds)
    console = Console()
    with console.status("measuring"):
        figures, seconds = measure(size)
    title = f"{size.replicas} replicas x {size.horizon} steps, 10 agents"
    if arguments.quick:
        title = f"quick: {title}; the aims are for {FULL.replicas} x {FULL.horizon}"
    table = Table("figure", "value", "aim", "what", title=title)
    for name, (aim, what) in TARGETS.items():
        table.add_row(name, f"{figures[name]:.3g}", aim, what)
    console.print(table)
    split = Table("part of the iteration", "seconds")
    for name, value in seconds.items():
        split.add_row(name, f"{value:.2f}")
    console.print(split)
    if arguments.json:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        settings = {"quick": arguments.quick, **vars(size)}
        report = {"figures": figures, "seconds": seconds, "settings": settings, "versions": versions}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def measure(size: Size) -> tuple[dict[str, float], dict[str, float]]:
    """(figures, seconds of the parts): medians over rounds in which every contestant has one turn."""
    peak = peak_gigabytes(size)  # first: Linux counts the size of the process that starts another as the other's
    replicas, horizon = size.replicas, size.horizon
    iterations = {
        "paper": Iteration(replicas, 10, horizon),
        "1 agent": Iteration(replicas, 1, horizon),
        "50 agents": Iteration(replicas, 50, horizon),
        "four times": Iteration(4 * replicas, 10, horizon),
    }
    limit = Limit(iterations["paper"])
    parts: dict[str, list[Parts]] = {name: [] for name in iterations}
    limits: list[tuple[float, float]] = []
    for _ in range(size.rounds):
        limit.start()
        for iteration in iterations.values():
            iteration.start()
        for _ in range(horizon // TURN):
            limit.follow(iterations["paper"].collect())
            for iteration in list(iterations.values())[1:]:
                iteration.collect()
        limits.append((limit.physics, limit.products + limit.update()))
        for name, iteration in iterations.items():
            parts[name].append(iteration.finish())
    totals = {name: np.array([part.total for part in rows]) for name, rows in parts.items()}
    limit_totals = np.array([sum(pair) for pair in limits])
    figures = {
        "vs_limit": float(np.median(limit_totals / totals["paper"])),
        "knn_share": float(np.median([part.knn / part.total for part in parts["paper"]])),
        "agents_50_vs_1": float(np.median(totals["50 agents"] / totals["1 agent"])),
        "peak_gb": peak,
        "per_replica_4x_vs_1x": float(np.median(totals["four times"] / totals["paper"]) / 4),
        "training_vs_physics": training_vs_physics(size.rounds),
    }
    seconds = {
        **{
            name: float(np.median([getattr(part, name) for part in parts["paper"]])) for name in vars(parts["paper"][0])
        },
        "limit: physics": float(np.median([physics for physics, _ in limits])),
        "limit: matrix products": float(np.median([products for _, products in limits])),
    }
    return figures, seconds


def training_vs_physics(rounds: int, **settings: Any) -> float:
    """Bare stepping's seconds / default training's, over `rounds` horizons; the first iteration only warms up."""
    config = with_settings(preset("quick", "ant-empty", 10), settings)
    rollouts = config.rollouts
    steps = (rounds * rollouts.per_horizon + 1) * rollouts.steps_per_iteration
    config = with_settings(config, {"total_steps": steps})
    replicas = make_replicas("ant-empty", rollouts.replicas, horizon=rollouts.horizon)
    state = initial_state(config, replicas)
    with tempfile.TemporaryDirectory() as folder, Logger(begin(config, folder), config, replicas, state) as logger:
        beside = Beside(replicas, logger)
        objective = partial(rewards_of, views=replicas.views()[1])
        algorithm_1(config, objective, replicas, state, beside)  # type: ignore[arg-type]
    replicas.close()
    return sum(beside.bare[1:]) / sum(beside.training[1:])


class Beside:
    """A logger in whose turns bare physics do what the replicas just did."""

    def __init__(self, replicas: Replicas, logger: Logger) -> None:
        assert replicas.world is not None
        self.logger, self.decimation = logger, replicas.world.decimation
        self.batch = Batch(replicas.world.model, replicas.count)
        self.training: list[float] = []
        self.bare: list[float] = []
        engine: Any = replicas.engine
        self.engine, self._step = engine, engine.step
        engine.step = self._kept
        self._begin()

    def record(self, state: TrainingState, row: dict[str, Any]) -> None:
        self.logger.record(state, row)
        self.training.append(time.perf_counter() - self._since)
        ctrl = self.batch.bind("ctrl")
        self.batch.state[...] = self._physics
        start = time.perf_counter()
        for row_of_controls in self._controls:
            ctrl[:] = row_of_controls
            self.batch.step(nstep=self.decimation)
        self.bare.append(time.perf_counter() - start)
        self._begin()

    def _begin(self) -> None:
        self._controls: list[NDArray[np.float32]] = []
        self._physics = self.engine.get_state()["physics"]
        self._since = time.perf_counter()

    def _kept(self, actions: NDArray[np.float32], last: NDArray[np.bool_]) -> Any:
        self._controls.append(actions)
        return self._step(actions, last)


def peak_gigabytes(size: Size) -> float:
    """Of a fresh process, since memory once taken stays counted."""
    command = [sys.executable, __file__, "--peak", str(size.replicas), str(size.horizon)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Iteration:
    """Everything that an iteration of Algorithm 1 does, timed part by part."""

    def __init__(self, replicas: int, agents: int, horizon: int) -> None:
        paper = preset("paper", "ant-empty", agents)
        self.config = with_settings(paper, {"replicas": replicas, "horizon": horizon})
        self.replicas: Replicas = make_replicas("ant-empty", replicas, horizon=horizon)
        self.state = initial_state(self.config, self.replicas)

    def start(self) -> None:
        self.replicas.start(0)
        self.pieces: list[Trajectory] = []
        self.collecting = self.stepping = 0.0

    def collect(self) -> NDArray[np.float64]:
        """The next `TURN` steps; returns their controls (TURN, replicas, a)."""
        stopwatch = Stopwatch(self.replicas.engine)
        start = time.perf_counter()
        piece = collect(self.replicas, self.state.population, TURN, seed=0, iteration=len(self.pieces))
        self.collecting += time.perf_counter() - start
        self.stepping += stopwatch.stop()
        self.pieces.append(piece)
        return np.tanh(piece.actions.flatten(0, 1).transpose(0, 1).numpy().astype(np.float64))

    def finish(self) -> Parts:
        """All that follows the collection."""
        config, state = self.config, self.state
        trajectory = join(self.pieces)
        times = [time.perf_counter()]
        state.pool = slide([], trajectory.segment, 1)
        estimate = exact_rewards(state.pool, config.objective.neighbours)
        times.append(time.perf_counter())
        report = reinforce(state.population, state.optimizer, trajectory, estimate)
        times.append(time.perf_counter())
        iteration_metrics(config, self.replicas.cell, state, trajectory, trajectory, estimate, report)
        times.append(time.perf_counter())
        state.pool, self.pieces = [], []
        return Parts(self.stepping, self.collecting - self.stepping, *np.diff(times).tolist())


def join(pieces: list[Trajectory]) -> Trajectory:
    """One trajectory of pieces that follow each other."""
    whole: dict[str, Any] = dict(vars(pieces[0]))
    for name, first in whole.items():
        if isinstance(first, torch.Tensor):
            whole[name] = torch.cat([getattr(piece, name) for piece in pieces], dim=2)
    return Trajectory(**whole)


class Limit:
    """Bare stepping and bare matrix products of the same sizes."""

    def __init__(self, iteration: Iteration) -> None:
        assert iteration.replicas.world is not None
        self.world, self.rollouts = iteration.replicas.world, iteration.config.rollouts
        population = iteration.state.population
        self.trunk = [weight.detach() for weight in population.trunk_weights]
        self.agents = [population.adapter_weight.detach(), population.output_weight.detach()]
        self.batch = Batch(self.world.model, self.rollouts.replicas)
        self.acting = torch.randn(self.rollouts.replicas, self.trunk[0].shape[0])
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
        """Seconds of the matrix products of one forward and backward pass over the iteration, in chunks."""
        chunk = CHUNK // self.rollouts.agents * self.rollouts.agents
        batch = torch.randn(chunk, self.trunk[0].shape[0])
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(round(self.rollouts.steps_per_iteration / chunk)):
                self._forward_and_backward(batch)
        return time.perf_counter() - start

    def _forward(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The inputs of every layer, and the outputs."""
        inputs = []
        for weight in self.trunk:
            inputs.append(rows)
            rows = rows @ weight
        rows = rows.view(self.rollouts.agents, -1, rows.shape[-1])
        for weight in self.agents:
            inputs.append(rows)
            rows = torch.bmm(rows, weight)
        return [*inputs, rows]

    def _forward_and_backward(self, batch: torch.Tensor) -> None:
        *inputs, gradient = self._forward(batch)
        for weight, rows in zip(reversed(self.agents), reversed(inputs[len(self.trunk) :]), strict=True):
            torch.bmm(rows.transpose(1, 2), gradient)
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
        gradient = gradient.reshape(len(batch), -1)
        for index in reversed(range(len(self.trunk))):
            inputs[index].T @ gradient
            if index:
                gradient = gradient @ self.trunk[index].T


if __name__ == "__main__":
    main()
