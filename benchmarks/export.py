"""Exported policies in the libraries that they were exported to: equal actions, and what happens as they train on.

A population explores PointMaze, the best agent for a goal is exported to every target and opened in the library's own
way. Success is of fresh episodes with sampled actions, before, and after every part of the library's own training as
the folder's script does it. `max_difference` is between the actions of both on 1,000 observations, far ones among them;
`worst_drop` is how far success falls below what it was in the beginning (the mean over the targets, which all play one
policy), whichever part and target.
"""

import kmyriad  # noqa: I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kmyriad.exporters.carried.policy import largest_difference, make_env, make_envs, read_facts
from kmyriad.exporters.folder import carried_module

GOAL = (2.0, 2.0)
RADII = (0.5, 0.3, 0.2, 0.1, 0.05)
"""Metres around the goal, tried in this order until the best agent fails at times: there is something to lose."""
AT_MOST = 0.9
PARTS = 4
"""Parts of training after each of which success is measured."""
FILES = {
    "onnx": ("policy", "policy.onnx"),
    "torch": ("ppo", "policy.pt2"),
    "sb3-ppo": ("sb3", "ppo.zip"),
    "sb3-sac": ("sb3", "sac.zip"),
    "rsl-rl": ("rsl_rl", "model.pt"),
    "skrl": ("skrl", "agent.pt"),
    "cleanrl": ("ppo", "policy.safetensors"),
}
"""By target: the carried module, and the file that the library opens."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Opened:
    """A policy in a library."""

    middle: Callable[[Array], Array]
    """Observations (n, d) to the environment's actions at the middle of the distribution."""
    sample: Callable[[Array], Array]
    """The same, drawn from it."""
    train: Callable[[int], None] | None
    """For so many steps; None where the format cannot."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="of training, each target (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=500, help="of every success rate (default: %(default)s)")
    parser.add_argument("--targets", nargs="+", default=[*FILES], choices=[*FILES])
    parser.add_argument("--quick", action="store_true", help="a look: little training, few episodes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    steps, episodes = (2_000, 20) if arguments.quick else (arguments.steps, arguments.episodes)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes: dict[str, Any] = {"total_steps": 30_000, "horizon": 100, "replicas": 40} if arguments.quick else {}
        run = kmyriad.pretrain("point-maze", agents=10, out=folder / "run", seed=0, **sizes)
        for radius in RADII:
            ranking = kmyriad.select(run, GOAL, radius)
            if ranking.standings[0].success <= AT_MOST:
                break
        rows = {to: measure(run, to, ranking.best, radius, folder / to, steps, episodes) for to in arguments.targets}
    show(rows, steps)
    before = float(np.mean([row["success_before"] for row in rows.values()]))  # of one policy, whatever plays it
    after = [rate for row in rows.values() for rate in row["success_after"]]
    figures = {
        "max_difference": max(row["max_difference"] for row in rows.values()),
        "worst_drop": before - min(after, default=before),
    }
    Console().print(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures, "targets": rows}, indent=1) + "\n")


def measure(run: Any, to: str, agent: int, radius: float, folder: Path, steps: int, episodes: int) -> dict[str, Any]:
    """One row of the table."""
    started = time.perf_counter()
    kmyriad.export(run, to, folder, agent=agent, goal=GOAL, goal_radius=radius)
    seconds = time.perf_counter() - started
    module, file = FILES[to]
    quiet = contextlib.redirect_stdout(io.StringIO())
    with carried_module(folder, module) as library, quiet:
        opened = OPEN[to](library, folder)
        row: dict[str, Any] = {
            "max_difference": largest_difference(lambda seen: opened.middle(seen.numpy()), folder),
            "success_before": success(folder, opened, episodes, seed=1),
            "success_after": [],
            "bytes": (folder / file).stat().st_size,
            "export_seconds": seconds,
            "microseconds_1": timed(folder, opened, 1),
            "microseconds_1000": timed(folder, opened, 1000),
        }
        for part in range(PARTS if opened.train else 0):
            assert opened.train is not None
            opened.train(steps // PARTS)
            row["success_after"].append(success(folder, opened, episodes, seed=2 + part))
    return row


def success(folder: Path, opened: Opened, episodes: int, seed: int) -> float:
    """Of one episode in each of as many environments."""
    envs = make_envs(read_facts(folder), episodes, threads=1)
    seen, _ = envs.reset(seed=1000 * seed)
    going, reached = np.ones(episodes, bool), np.zeros(episodes, bool)
    while going.any():
        seen, _, terminated, truncated, _ = envs.step(opened.sample(seen))
        reached |= going & terminated  # these episodes end at the goal
        going &= ~(terminated | truncated)
    envs.close()
    return float(reached.mean())


def timed(folder: Path, opened: Opened, count: int) -> float:
    """Microseconds of one call with `count` observations, the median of many."""
    seen = np.zeros((count, read_facts(folder)["observation_size"]), np.float32)
    took = []
    for _ in range(50):
        started = time.perf_counter()
        opened.middle(seen)
        took.append(time.perf_counter() - started)
    return float(np.median(took)) * 1e6


def open_onnx(library: ModuleType, folder: Path) -> Opened:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    policy, rng = library.load_policy(folder), np.random.default_rng(0)

    def sample(seen: Array) -> Array:
        mean, log_std = session.run(["mean", "log_std"], {"observation": seen})
        raw = mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32)
        return policy.to_environment(torch.from_numpy(raw)).numpy()

    return Opened(lambda seen: session.run(["action"], {"observation": seen})[0], sample, None)


def open_torch(library: ModuleType, folder: Path) -> Opened:
    program = torch.export.load(folder / "policy.pt2").module()
    plain = open_cleanrl(library, folder)
    return Opened(lambda seen: program(torch.from_numpy(seen))[1].detach().numpy(), plain.sample, None)


def open_cleanrl(library: ModuleType, folder: Path) -> Opened:
    agent = library.Agent(folder)
    trained = 0

    def act(seen: Array) -> Array:
        with torch.no_grad():
            return agent.policy.act(torch.from_numpy(seen)).numpy()

    def sample(seen: Array) -> Array:
        with torch.no_grad():
            drawn = agent.policy.distribution(torch.from_numpy(seen)).sample()
            return agent.policy.to_environment(drawn).numpy()

    def train(steps: int) -> None:
        nonlocal trained
        first = 4 if not trained else 0
        library.train(agent, make_envs(read_facts(folder), 16, threads=1), steps, library.Settings(critic_first=first))
        trained += steps

    return Opened(act, sample, train)


def open_sb3(kind: str, critic_first: int, copies: int) -> Callable[[ModuleType, Path], Opened]:
    def opening(library: ModuleType, folder: Path) -> Opened:
        from stable_baselines3.common.env_util import make_vec_env

        facts = read_facts(folder)
        env = make_vec_env(lambda: make_env(facts), copies)
        model = getattr(library, kind.upper()).load(folder / f"{kind}.zip", env=env)

        def train(steps: int) -> None:
            model.learn(steps, callback=library.CriticFirst(critic_first), reset_num_timesteps=False)

        return Opened(
            lambda seen: model.predict(seen, deterministic=True)[0],
            lambda seen: model.predict(seen, deterministic=False)[0],
            train,
        )

    return opening


def open_rsl_rl(library: ModuleType, folder: Path) -> Opened:
    environments = library.make_environments(folder, 16)
    runner = library.make_runner(folder, env=environments)
    runner.load(str(folder / "model.pt"), load_cfg={"actor": True, "critic": True})
    actor, left = runner.alg.actor, 4

    def act(seen: Array, *, draws: bool = False) -> Array:
        rows = library.TensorDict({library.GROUP: torch.from_numpy(seen)}, batch_size=[len(seen)])
        with torch.no_grad():
            return environments.policy.to_environment(actor(rows, stochastic_output=draws)).numpy()

    def train(steps: int) -> None:
        nonlocal left
        iterations = max(1, steps // (16 * runner.cfg["num_steps_per_env"]))
        first = min(left, iterations)
        left -= first
        for count, learns in ((first, False), (iterations - first, True)):
            if count:
                library.set_actor_learning(runner, learns)
                runner.learn(count)

    return Opened(act, lambda seen: act(seen, draws=True), train)


def open_skrl(library: ModuleType, folder: Path) -> Opened:
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.trainers.torch import SequentialTrainer

    env = wrap_env(library.make_environments(folder, 16), wrapper="gymnasium")
    agent = library.make_agent(folder, num_envs=16)
    agent.load(str(folder / "agent.pt"))
    policy, left = agent.policy.network, 4

    def act(seen: Array) -> Array:
        with torch.no_grad():
            return policy.act(torch.from_numpy(seen)).numpy()

    def sample(seen: Array) -> Array:
        with torch.no_grad():
            raw, _ = agent.policy.act({"observations": torch.from_numpy(seen)}, role="policy")
            return policy.to_environment(raw).numpy()

    def train(steps: int) -> None:
        nonlocal left
        iterations = max(1, steps // (16 * library.ROLLOUTS))
        first = min(left, iterations)
        left -= first
        for count, learns in ((first, False), (iterations - first, True)):
            if count:
                library.set_actor_learning(agent, learns)
                cfg = {"timesteps": count * library.ROLLOUTS, "headless": True, "disable_progressbar": True}
                SequentialTrainer(env=env, agents=agent, cfg=cfg | {"close_environment_at_exit": False}).train()

    return Opened(act, sample, train)


OPEN: dict[str, Callable[[ModuleType, Path], Opened]] = {
    "onnx": open_onnx,
    "torch": open_torch,
    "sb3-ppo": open_sb3("ppo", critic_first=4_000, copies=8),
    "sb3-sac": open_sb3("sac", critic_first=5_000, copies=4),
    "rsl-rl": open_rsl_rl,
    "skrl": open_skrl,
    "cleanrl": open_cleanrl,
}


def show(rows: dict[str, dict[str, Any]], steps: int) -> None:
    table = Table(title=f"exported policies, {steps:,} steps of training")
    titles = ("target", "max difference", "success before", "success after each part", "kB", "export, s")
    for title in (*titles, "µs, 1", "µs, 1000"):
        table.add_column(title)
    for to, row in rows.items():
        table.add_row(
            to,
            f"{row['max_difference']:.1e}",
            f"{row['success_before']:.2f}",
            " ".join(f"{value:.2f}" for value in row["success_after"]) or "-",
            f"{row['bytes'] / 1000:,.0f}",
            f"{row['export_seconds']:.1f}",
            f"{row['microseconds_1']:.0f}",
            f"{row['microseconds_1000']:.0f}",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
