"""How many environment steps each update rule needs, in all five worlds, over several seeds.

`reinforce` (the paper's gradient) trains for N steps; the highest mean entropy over seeds that it reaches, on fresh
rollouts of the frozen population, is the mark. Counted is after how many steps `actor_critic` is there for good.
`trust_region` runs for a tenth of N. All are measured with the same particles, features and neighbours. Beside that:
what 1, 10 and 50 agents cover after as many steps, together and the widest of them alone, and how much they differ.
Then, alone on the machine: what an update costs beside the physics of its iteration, and what 50 agents cost beside 1.

Resumable: run it again and it goes on.
"""

import kmyriad  # noqa: F401, I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from experiments import Curve, iterations_of, train_all
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch

from kmyriad import figures
from kmyriad.objective.rewards import rewards_of, slide
from kmyriad.presets import preset
from kmyriad.rollout.collect import collect
from kmyriad.rollout.randomness import SHUFFLING, generator, reset_seed
from kmyriad.rollout.replicas import make_replicas
from kmyriad.training.pretrain import initial_state
from kmyriad.updates import update

STEPS = {
    "ant-empty": 5_000_000,
    "ant-maze": 2_000_000,
    "ant-pyramid": 2_000_000,
    "ant-cave": 2_000_000,
    "point-maze": 2_000_000,
}
"""N, by world."""
AIMS = {"ant-empty": 20}
OTHER_AIM = 10
"""reinforce's steps over actor_critic's, at least."""
REINFORCE = {
    "update": "reinforce",
    "replicas": 300,
    "rollout_steps": None,
    "neighbours": 5,
    "learning_rate": 1e-3,
    "initial_std": 0.6,
    "normalise_observations": False,
    "code_size": None,
    "agent_hidden": 128,
}
"""The best rate and std found for it by `--search`."""
TRUST_REGION = {**REINFORCE, "update": "trust_region", "learning_rate": 1e-4, "trust_region_steps": 10}
SEARCH = [(rate, std) for rate in (1e-3, 3e-3) for std in (0.22, 0.37, 0.6, 1.0)]
ACTOR_CRITIC_STEPS, MEASUREMENTS = 1_000_000, 20
"""Of each actor_critic run: environment steps, and how often it is measured on the way."""
AGENTS = (1, 10, 50)
RULES = ("actor_critic", "reinforce", "trust_region")
NAMES = {
    "50-agents": "50 agents",
    "actor_critic": "10 agents",
    "1-agent": "1 agent",
    "reinforce": "REINFORCE",
    "trust_region": "trust region",
}
"""In pictures, where numbers of agents stand for `actor_critic`, and the other rules have 10."""
Found = dict[str, list[Curve]]
"""Curves of every seed, by rule or number of agents."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", default=list(STEPS), choices=list(STEPS), help="some of the worlds")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, a core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"), help="where runs are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the curves there")
    parser.add_argument("--search", action="store_true", help="only look for reinforce's best rate and std")
    parser.add_argument("--timing", action="store_true", help="only measure the cost of updates and agents")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.folder, arguments.seeds, arguments.processes)
        return
    values: dict[str, float] = {}
    curves: dict[str, Found] = {}
    if not arguments.timing:
        curves = learn(arguments.worlds, arguments.seeds, arguments.folder, arguments.processes)
        for world, found in curves.items():
            values[f"steps_ratio_{world}"] = show_rules(world, found)
            show_agents(world, found)
        if arguments.pictures:
            worlds = {world: {name: found[key] for key, name in NAMES.items()} for world, found in curves.items()}
            figures.save(figures.learning_curves(worlds), arguments.pictures / "learning")
    values |= timing()
    table = Table("figure", "value", "aim")
    for name, value in values.items():
        table.add_row(name, f"{value:.3g}", aim_of(name))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": values, "curves": curves}, indent=1) + "\n")


def aim_of(figure: str) -> str:
    if figure.startswith("steps_ratio_"):
        return f">= {AIMS.get(figure.removeprefix('steps_ratio_'), OTHER_AIM)}"
    return {"update_vs_physics": "<= 1", "agents_50_vs_1": "<= 1.15"}[figure]


def settings_of(world: str, rule: str, agents: int, seed: int) -> dict[str, Any]:
    """What `kmyriad.pretrain` gets: the default preset of the world, or the baseline on the same environment."""
    settings: dict[str, Any] = {"env": world, "preset": "quick", "agents": agents, "seed": seed}
    if rule == "actor_critic":
        return measured(settings | {"total_steps": ACTOR_CRITIC_STEPS}, MEASUREMENTS)
    if rule == "reinforce":
        return measured(settings | REINFORCE | {"total_steps": STEPS[world]}, 5)
    return measured(settings | TRUST_REGION | {"total_steps": STEPS[world] // 10}, 5)


def measured(settings: dict[str, Any], times: int) -> dict[str, Any]:
    """`settings` with about so many checkpoints on the way."""
    return settings | {"checkpoint_every": max(1, iterations_of(settings) // times)}


def learn(worlds: list[str], seeds: int, folder: Path, processes: int) -> dict[str, Found]:
    """Curves by world."""
    contestants = {rule: (rule, 10) for rule in RULES} | {
        agents_name(agents): ("actor_critic", agents) for agents in AGENTS if agents != 10
    }
    experiments = {
        f"{world}-{name}-{seed}": settings_of(world, rule, agents, seed)
        for world in worlds
        for name, (rule, agents) in contestants.items()
        for seed in range(seeds)
    }
    curves = train_all(experiments, folder, processes)
    return {
        world: {name: [curves[f"{world}-{name}-{seed}"] for seed in range(seeds)] for name in contestants}
        for world in worlds
    }


def agents_name(agents: int) -> str:
    return {1: "1-agent", 10: "actor_critic"}.get(agents, f"{agents}-agents")


def steps_to(curve: Curve, mark: float) -> float:
    """Environment steps after which the entropy stays at `mark` or above; infinite if it never does."""
    below = [index for index, row in enumerate(curve) if row["entropy"] < mark]
    first = below[-1] + 1 if below else 0
    return curve[first]["env_steps"] if first < len(curve) else np.inf


def best_mean(curves: list[Curve]) -> float:
    """The highest entropy, averaged over seeds, that was measured along the way."""
    return float(np.max(np.mean([[row["entropy"] for row in curve] for curve in curves], axis=0)))


def show_rules(world: str, found: Found) -> float:
    """Print how fast each rule learns; returns reinforce's steps over actor_critic's, the median over seeds."""
    mark = best_mean(found["reinforce"])
    table = Table("rule", "steps", "entropy, each seed", f"steps to {mark:.2f}", "cells", title=f"{world}, 10 agents")
    for rule in RULES:
        table.add_row(
            rule,
            f"{found[rule][0][-1]['env_steps']:,}",
            each(found[rule], lambda curve: f"{curve[-1]['entropy']:.2f}"),
            each(found[rule], lambda curve: f"{steps_to(curve, mark):,.0f}"),
            each(found[rule], lambda curve: curve[-1]["last"]["covered_cells"]),
        )
    Console().print(table)
    steps = np.array([steps_to(curve, mark) for curve in found["actor_critic"]])
    return float(np.median(found["reinforce"][0][-1]["env_steps"] / steps))


def show_agents(world: str, found: Found) -> None:
    """Print what 1, 10 and 50 agents cover after the same number of steps, and how much they differ."""
    steps = found["actor_critic"][0][-1]["env_steps"]
    table = Table(
        "agents", "entropy, each seed", "cells", "widest agent alone", "least agent", "KL between agents", "its floor",
        title=f"{world}, {steps:,} steps",
    )  # fmt: skip
    for agents in AGENTS:
        curves = found[agents_name(agents)]
        last = [curve[-1]["last"] for curve in curves]
        table.add_row(
            str(agents),
            each(curves, lambda curve: f"{curve[-1]['entropy']:.2f}"),
            each(last, lambda row: row["covered_cells"]),
            each(last, lambda row: row["covered_cells_of_widest_agent"]),
            each(last, lambda row: min(row["covered_cells_per_agent"])),
            each(last, lambda row: f"{np.mean(row['kl_between_agents']):.2f}" if "kl_floor" in row else "-"),
            each(last, lambda row: f"{row['kl_floor']:.2f}" if "kl_floor" in row else "-"),
        )
    Console().print(table)


def each(seeds: list[Any], text: Callable[[Any], Any]) -> str:
    """`text` of every seed, side by side."""
    return " ".join(str(text(seed)) for seed in seeds)


def search(folder: Path, seeds: int, processes: int) -> None:
    """The entropy that reinforce reaches on ant-empty in a million steps, by rate and initial std."""
    experiments = {}
    for rate, std in SEARCH:
        for seed in range(seeds):
            settings = settings_of("ant-empty", "reinforce", 10, seed) | {"learning_rate": rate, "initial_std": std}
            experiments[f"search-{rate:g}-{std:g}-{seed}"] = measured(settings | {"total_steps": 1_000_000}, 1)
    curves = list(train_all(experiments, folder, processes).values())
    table = Table("rate", "std", "entropy, each seed", "mean", title="reinforce, ant-empty, 1M steps")
    for index, (rate, std) in enumerate(SEARCH):
        found = [curve[-1]["entropy"] for curve in curves[index * seeds : (index + 1) * seeds]]
        table.add_row(f"{rate:g}", f"{std:g}", " ".join(f"{e:.2f}" for e in found), f"{np.mean(found):.2f}")
    Console().print(table)


def timing(rounds: int = 30) -> dict[str, float]:
    """Cost of an update beside physics, and of 50 agents beside 1: medians over iterations in turns."""
    contestants = {agents: TimedTraining(agents) for agents in (10, 1, 50)}
    for _ in range(rounds):
        for contestant in contestants.values():
            contestant.iteration()
    ten, one, fifty = (np.array(contestant.seconds) for contestant in contestants.values())
    return {
        "update_vs_physics": float(np.median(ten[:, 1] / ten[:, 0])),
        "agents_50_vs_1": float(np.median(fifty.sum(axis=1) / one.sum(axis=1))),
    }


class TimedTraining:
    """Iterations of ant-empty with the default settings, timed: (physics, update, everything else) in seconds."""

    def __init__(self, agents: int) -> None:
        self.config = preset("quick", "ant-empty", agents)
        rollouts = self.config.rollouts
        self.replicas = make_replicas("ant-empty", rollouts.replicas, horizon=rollouts.horizon)
        self.state = initial_state(self.config, self.replicas)
        self.seconds: list[tuple[float, float, float]] = []

    def iteration(self) -> None:
        """As in `algorithm_1`, without what is written down."""
        config, state = self.config, self.state
        seed, rollouts = config.run.seed, config.rollouts
        stopwatch, start = Stopwatch(self.replicas.engine), time.perf_counter()
        state.iteration += 1
        self.replicas.begin(rollouts, reset_seed(seed, state.iteration))
        trajectory = collect(
            self.replicas, state.population, rollouts.steps, seed, state.iteration, keep_next_observations=True
        )
        middle, physics = time.perf_counter(), stopwatch.stop()
        state.pool = slide(state.pool, trajectory.segment, rollouts.per_horizon)
        rewards = rewards_of(state.pool, config)
        population, rng = state.population, generator(seed, state.iteration, SHUFFLING)
        update(config.update, population, state.critic, state.optimizer, trajectory, rewards, state.iteration, rng)
        population.see(trajectory.observations, trajectory.valid)
        end = time.perf_counter()
        self.seconds.append((physics, end - middle, middle - start - physics))


if __name__ == "__main__":
    main()
