"""Exported policies in the libraries that they were exported to: equal actions, and what happens as they train on.

A population explores a world, and one agent is exported to every target with a goal on its way, just so small that
it succeeds in about 70 % of its episodes: there is something to lose. Each export is opened in the library's own way
and trained on as the folder's script does it. Success is of fresh episodes with sampled actions, before, and after
every part of that training, always from the same starts.

- `max_difference`: between the actions of both on 1,000 observations, far ones among them.
- `largest_gap`: between success in a library before training, and kmyriad's own of the same agent.
- `worst_drop`: how far success falls below what the same target had before, over all targets, parts, worlds and seeds.
- `drop_error`: the standard error of a drop, the largest of all. The worst of many drops that are nought is two to
  three times this by chance alone.
- `fifty_agents_seconds`: of processor time to export all of fifty agents, the slowest target.

With `--json FILE` it goes on where it was: rows that are there already are kept, and each says of which commit it is.
Times per call want a quiet machine: `--only calls` takes them alone, in a minute.
"""

import kmyriad  # noqa: I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kmyriad.exporters.carried.policy import STARTS, largest_difference, make_env, make_envs, read_facts, returns
from kmyriad.exporters.folder import carried_module
from kmyriad.reproduction.commits import current_commit

WORLDS = ("point-maze", "ant-empty")
SIZES: dict[str, Any] = {"total_steps": 300_000}
"""Of their populations: a quarter of what is the default."""
SMALL: dict[str, Any] = {"total_steps": 30_000, "horizon": 100, "replicas": 40}
SUCCESS = 0.7
"""Of the exported agent at its goal, about."""
RADII = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1)
"""Parts of the world's own radius of goals, tried to find such a goal."""
MOMENTS = (0.3, 0.6, 0.9)
"""Parts of an episode at which a goal is looked for on an agent's way."""
SHOWN = ("world", "seed", "target", "success_here", "success_before", "success_after")
PARTS = 4
"""Parts of training after each of which success is measured."""
MEASURED = ("calls", "fifty", "training")
"""Times per call, exports of fifty agents, and the long part: actions and success before and after training."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=[*WORLDS], choices=[*WORLDS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20_000, help="of training, each target (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=1000, help="of every success rate (default: %(default)s)")
    parser.add_argument("--targets", nargs="+", default=[*FILES], choices=[*FILES])
    parser.add_argument("--only", nargs="+", default=[*MEASURED], choices=[*MEASURED], help="parts of all this")
    parser.add_argument("--quick", action="store_true", help="a look: PointMaze, little training, few episodes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, after every row")
    arguments = parser.parse_args()
    worlds, seeds = (["point-maze"], [1]) if arguments.quick else (arguments.worlds, arguments.seeds)
    steps, episodes = (2_000, 20) if arguments.quick else (arguments.steps, arguments.episodes)
    torch.set_num_threads(1)
    found = Found(arguments.json, steps, episodes)
    if "calls" in arguments.only:
        found.calls |= {world: microseconds_per_call(world, arguments.targets) for world in worlds}
    if "fifty" in arguments.only:
        found.fifty |= {to: fifty_agents(to) for to in arguments.targets}
    found.write()
    for seed, world in product(seeds, worlds) if "training" in arguments.only else []:
        missing = [to for to in arguments.targets if not found.has(world, seed, to)]
        for row in measure(world, seed, missing, steps, episodes, arguments.quick) if missing else []:
            found.rows.append(row)
            found.write()
            Console(stderr=True).print({name: row[name] for name in SHOWN}, soft_wrap=True)
    show(found)


class Found:
    """What was measured, kept in a file after every row; what the file has already is not measured again."""

    def __init__(self, path: Path | None, steps: int, episodes: int) -> None:
        told = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.path, self.asked = path, {"steps": steps, "episodes": episodes}
        if told and {name: told[name] for name in self.asked} != self.asked:
            raise SystemExit(f"{path} has rows of other --steps or --episodes; name another file")
        self.rows: list[dict[str, Any]] = told.get("rows", [])
        self.fifty: dict[str, float] = told.get("fifty_agents_seconds", {})
        self.calls: dict[str, dict[str, list[float]]] = told.get("microseconds_per_call", {})

    def has(self, world: str, seed: int, to: str) -> bool:
        return any((row["world"], row["seed"], row["target"]) == (world, seed, to) for row in self.rows)

    def write(self) -> None:
        self.rows.sort(key=lambda row: ([*WORLDS].index(row["world"]), row["seed"], [*FILES].index(row["target"])))
        measured = {"fifty_agents_seconds": self.fifty, "microseconds_per_call": self.calls, "rows": self.rows}
        if self.path is not None:
            content = {"figures": self.figures(), **self.asked, **measured}
            self.path.write_text(json.dumps(content, indent=1) + "\n")

    def figures(self) -> dict[str, float]:
        """Over all worlds, seeds and targets."""
        figures: dict[str, float] = {}
        if self.rows:
            drops = [drop for row in self.rows for drop in row["drops"]]
            figures = {
                "max_difference": max(row["max_difference"] for row in self.rows),
                "largest_gap": max(abs(row["success_before"] - row["success_here"]) for row in self.rows),
                "worst_drop": max((drop["drop"] for drop in drops), default=0.0),
                "drop_error": max((drop["error"] for drop in drops), default=0.0),
            }
        return figures | ({"fifty_agents_seconds": max(self.fifty.values())} if self.fifty else {})


def microseconds_per_call(world: str, targets: list[str]) -> dict[str, list[float]]:
    """By target: of a call with one observation and with 1,000, for an agent that hardly trained."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = kmyriad.pretrain(world, agents=10, out=folder / "run", total_steps=5000, threads=1)
        return {to: _called(kmyriad.export(run, to, folder / to, agent=1), to) for to in targets}


def _called(folder: Path, to: str) -> list[float]:
    with carried_module(folder, FILES[to][0]) as library, contextlib.redirect_stdout(io.StringIO()):
        opened = OPEN[to](library, folder)
        return [timed(folder, opened, count) for count in (1, 1000)]


def fifty_agents(to: str) -> float:
    """Seconds of processor time to export every agent of a population of fifty Ants."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = kmyriad.pretrain("ant-empty", agents=50, out=folder / "run", total_steps=2500, threads=1)
        started = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            kmyriad.export(run, to, folder / "out", all_agents=True)
        return time.process_time() - started


def measure(
    world: str, seed: int, targets: list[str], steps: int, episodes: int, quick: bool
) -> Iterator[dict[str, Any]]:
    """A row for every target, of one population."""
    commit = current_commit()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = kmyriad.pretrain(world, agents=10, out=folder / "run", seed=seed, threads=1, **SMALL if quick else SIZES)
        chosen = agent_and_goal(run)
        kmyriad.export(run, "cleanrl", folder / "here", **chosen)  # for the environment that it tells of
        here = float(success(folder / "here", open_own(run, chosen["agent"]), episodes).mean())
        for to in targets:
            row = one_target(run, to, chosen, folder / to, steps, episodes)
            told = {"world": world, "seed": seed, "target": to, "commit": commit}
            yield told | chosen | {"success_here": here} | row


def agent_and_goal(run: Any) -> dict[str, Any]:
    """A place that an agent comes by, as near as makes it succeed in about as many of its episodes as SUCCESS says."""
    visits = kmyriad.evaluate(run, 500, threads=1, keep=False).visits
    places = np.asarray(visits.xy)  # (m, p, T, 2), metres
    radius = kmyriad.make_world(run.env, **run.env_settings).goal_radius
    found: list[tuple[float, int, list[float], float]] = []
    for agent, moment in product(range(len(places)), MOMENTS):
        then = places[agent, :, int(moment * places.shape[2])]
        goal = then[np.linalg.norm(then - np.median(then, axis=0), axis=-1).argmin()].round(2)
        nearest = np.linalg.norm(places[agent] - goal, axis=-1).min(axis=-1)  # (p,)
        for part in RADII:
            miss = abs(float((nearest <= part * radius).mean()) - SUCCESS)
            found.append((round(miss, 2), agent, goal.tolist(), part * radius))
    _, agent, goal, chosen = min(found, key=lambda one: (one[0], -one[3]))
    return {"agent": agent, "goal": goal, "goal_radius": chosen}


def one_target(run: Any, to: str, chosen: dict[str, Any], folder: Path, steps: int, episodes: int) -> dict[str, Any]:
    """One row of the table."""
    torch.manual_seed(STARTS)
    started = time.perf_counter()
    kmyriad.export(run, to, folder, **chosen)
    seconds = time.perf_counter() - started
    module, file = FILES[to]
    quiet = contextlib.redirect_stdout(io.StringIO())
    with carried_module(folder, module) as library, quiet:
        opened = OPEN[to](library, folder)
        before = success(folder, opened, episodes)
        row: dict[str, Any] = {
            "max_difference": largest_difference(lambda seen: opened.middle(seen.numpy()), folder),
            "success_before": float(before.mean()),
            "success_after": [],
            "drops": [],
            "bytes": (folder / file).stat().st_size,
            "export_seconds": seconds,
        }
        for _ in range(PARTS if opened.train else 0):
            assert opened.train is not None
            opened.train(steps // PARTS)
            after = success(folder, opened, episodes)
            lost = before.astype(float) - after
            row["success_after"].append(float(after.mean()))
            row["drops"].append({"drop": float(lost.mean()), "error": float(lost.std() / len(lost) ** 0.5)})
    return row


def success(folder: Path, opened: Opened, episodes: int) -> NDArray[np.bool_]:
    """(episodes,), whether the goal is reached: one episode in each of as many environments, always the same starts."""
    envs = make_envs(read_facts(folder), episodes, threads=1)
    return np.asarray(returns(lambda seen: opened.sample(seen.numpy()), envs) > 0)  # the goal's reward is all there is


def timed(folder: Path, opened: Opened, count: int) -> float:
    """Microseconds of one call with `count` observations, the median of many."""
    seen = np.zeros((count, read_facts(folder)["observation_size"]), np.float32)
    took = []
    for _ in range(50):
        started = time.perf_counter()
        opened.middle(seen)
        took.append(time.perf_counter() - started)
    return float(np.median(took)) * 1e6


def open_own(run: Any, agent: int) -> Opened:
    """Kmyriad itself."""
    policy, rng = kmyriad.load_population(run).agent(agent), np.random.default_rng(0)

    def sample(seen: Array) -> Array:
        with torch.no_grad():
            noise = policy.actions.noise(rng, (len(seen), policy.actions.size))
            return policy.actions.squash(policy(torch.from_numpy(seen)).sample(torch.from_numpy(noise))).numpy()

    return Opened(sample, sample, None)


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
            return agent.policy.sample(torch.from_numpy(seen)).numpy()

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


def show(found: Found) -> None:
    table = Table(title=f"exported policies, {found.asked['steps']:,} steps of training")
    for title in ("world", "seed", "target", "max difference", "here", "before", "after each part", "kB", "export, s"):
        table.add_column(title)
    for row in found.rows:
        table.add_row(
            row["world"],
            str(row["seed"]),
            row["target"],
            f"{row['max_difference']:.1e}",
            f"{row['success_here']:.3f}",
            f"{row['success_before']:.3f}",
            " ".join(f"{value:.3f}" for value in row["success_after"]) or "-",
            f"{row['bytes'] / 1000:,.0f}",
            f"{row['export_seconds']:.1f}",
        )
    calls = Table(title="microseconds per call, with 1 observation and with 1,000")
    for title in ("target", *found.calls):
        calls.add_column(title)
    for to in FILES if found.calls else ():
        calls.add_row(to, *(", ".join(f"{one:,.0f}" for one in times.get(to, [])) for times in found.calls.values()))
    Console(width=140).print(table, calls, found.fifty, found.figures())


if __name__ == "__main__":
    main()
