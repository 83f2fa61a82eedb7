"""Coverage of Gymnasium's Ant by METRA's protocol: ours beside METRA and DIAYN with as many steps on the same body.

    python benchmarks/metra.py --json FILE        # all of it: days on two cores, resumable after every mark
    python benchmarks/metra.py --tell             # what of it is done
    python benchmarks/metra.py --quick            # does it work? a minute

The protocol (Park, Rybkin and Levine 2024, and github.com/seohongpark/METRA: `_evaluate_policy`, `calc_eval_metrics`):
48 episodes of 200 steps on Gymnasium's Ant (gear 150, armature 1, RK4 at 0.01 s, five of which are a step, reset noise
0.1) without termination, which observes its 15 positions, x and y among them, and its 14 velocities. Actions are the
means of the policies. Counted are the unique (floor x, floor y) of all states. METRA and DIAYN draw a skill for every
episode; of m agents, episode i is agent i mod m's. `cells with noise` is the same with sampled actions.

METRA and DIAYN (skills.py) see all that the Ant observes and are told nothing about it. Ours is told what to explore:
x, y and z; "METRA on x y" has a latent space of x and y alone, which is about as much. The environment declares no
symmetries; in the variants that say so we declare its eight (four quarter turns, and their mirror images).
"""

import kmyriad as km  # noqa: I001  (first, as in the command: it tells torch's threads, not loaded yet, to sleep)

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from experiments import side_by_side
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from skills import Diayn, Kind, Metra, Size, SkillLearner
from torch import Tensor

from kmyriad.envs.symmetry import SignedOrder, Symmetry
from kmyriad.errors import UsageError
from kmyriad.population.population import Population
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.runs.files import write_json
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import fresh_population, pretrain_config

EPISODES, STEPS, SEED = 48, 200, 12_345
MARKS = [100_000, 300_000, 1_000_000, 3_000_000]
SAVE_EVERY = 50_000
"""Steps of METRA and DIAYN between checkpoints."""
QUICK = {"hidden": 32, "batch": 32, "updates": 2, "stored_first": 400, "episodes": 1}
QUICK_VARIANTS = ["untrained", "ten-symmetric", "metra", "diayn"]

OURS: dict[str, Any] = {"features": ("0:3",), "feature_scale": (1.0, 1.0, 1.0), "horizon": STEPS}
"""x, y and z in metres, as by default; as columns of the observation they can have symmetries."""
AGENTS: dict[str, tuple[str, int]] = {
    "ten": ("plain_ant", 10),
    "one": ("plain_ant", 1),
    "fifty": ("plain_ant", 50),
    "ten-symmetric": ("symmetric_ant", 10),
    "fifty-symmetric": ("symmetric_ant", 50),
}
SKILLS: dict[str, Kind] = {
    "metra": Metra,
    "diayn": Diayn,
    "metra-xy": partial(Metra, columns=2),
}
NAMES = {
    "untrained": "ten agents, untrained",
    "ten": "ten agents",
    "metra": "METRA",
    "one": "one policy",
    "diayn": "DIAYN",
    "fifty": "fifty agents",
    "ten-symmetric": "ten agents, symmetries declared",
    "fifty-symmetric": "fifty agents, symmetries declared",
    "metra-xy": "METRA on x y",
}
"""In the order in which they are run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="small networks, few steps, one seed: does it work?")
    parser.add_argument("--tell", action="store_true", help="only tell what has been done")
    parser.add_argument("--variants", nargs="*", default=list(NAMES), choices=NAMES, metavar="VARIANT")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="seeds (default: 0 1 2)")
    parser.add_argument(
        "--marks", type=int, nargs="*", default=MARKS, help="steps to measure at (default: %(default)s)"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/metra"), help="where runs are kept")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time (default: cores)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.marks, arguments.variants = [0], [400], QUICK_VARIANTS
        arguments.runs /= "quick"
    names = [f"{variant}-{seed}" for seed in arguments.seeds for variant in arguments.variants]
    if not arguments.tell:
        settings = {name: settings_of(name, arguments.marks, arguments.quick) for name in names}
        side_by_side(train_and_measure, settings, arguments.runs, arguments.processes)
    found = {name: measured(arguments.runs / name) for name in names}
    figures = tell(found, arguments.variants, arguments.seeds, arguments.marks)
    if arguments.json is not None:
        done = {name: rows for name, rows in found.items() if rows}
        report = {"figures": figures, "runs": done, "marks": arguments.marks, "seeds": arguments.seeds}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


def settings_of(name: str, marks: Sequence[int], quick: bool) -> dict[str, Any]:
    """Of the run `VARIANT-SEED`."""
    variant, seed = name.rsplit("-", 1)
    return {
        "variant": variant,
        "seed": int(seed),
        "marks": [0] if variant == "untrained" else [*marks],
        "size": QUICK if quick else {},
        "episodes": 4 if quick else EPISODES,
    }


def train_and_measure(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Train on one core up to every mark, and measure there; by mark, what is done is not done again."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    found = measured(folder)
    marks = sorted(mark for mark in settings["marks"] if str(mark) not in found)
    if found and marks and marks[0] < max(map(int, found)):
        raise UsageError(f"{folder} was trained beyond {marks[0]} steps and not measured there; use another --runs")
    train = ours if settings["variant"] in (*AGENTS, "untrained") else skill_discovery
    with warnings.catch_warnings(action="ignore"):  # what other packages say about themselves
        for mark, row in train(folder, settings, marks):
            found[str(mark)] = row
            write_json(folder / "measured.json", found)
            print(mark, row, flush=True)
    return found


def measured(folder: Path) -> dict[str, Any]:
    """What a run has found so far, by mark."""
    path = folder / "measured.json"
    return json.loads(path.read_text()) if path.exists() else {}


def ours(folder: Path, settings: dict[str, Any], marks: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(mark, measures) of agents; mark 0 is before they learned anything."""
    env, agents = AGENTS.get(settings["variant"], AGENTS["ten"])
    asked: dict[str, Any] = {"agents": agents, "seed": settings["seed"], **OURS}
    for mark in marks:
        replicas, steps = ant(env, settings["episodes"]), 0
        if mark == 0:
            population = fresh_population(pretrain_config(f"metra:{env}", "quick", asked), replicas)
        else:
            out = folder / "run"
            run = km.pretrain(f"metra:{env}", out=out, resume=out.exists(), threads=1, total_steps=mark, **asked)
            population, steps = load_population(run), run.last_row()["env_steps"]
        in_turn = population.select([episode % population.agents for episode in range(replicas.count)])
        yield mark, {"steps": steps} | coverage(replicas, partial(act, in_turn))
        replicas.close()


def act(population: Population, observations: Tensor, rng: torch.Generator | None) -> Tensor:
    """(m, a), what each agent does after its observation (m, d): the mean, or a sample."""
    shape = (population.agents, 1, population.actions.size)
    noise = torch.zeros(shape) if rng is None else torch.randn(shape, generator=rng)
    return population.actions.squash(population(observations[:, None]).sample(noise)[:, 0])


def skill_discovery(
    folder: Path, settings: dict[str, Any], marks: Sequence[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(mark, measures) of METRA and DIAYN."""
    size, kept, seed = Size(**settings["size"]), folder / "checkpoint.pt", settings["seed"]
    learner = SkillLearner(SKILLS[settings["variant"]], ant("plain_ant", size.episodes), STEPS, seed, size)
    if kept.exists():
        learner.load(kept)
    skills = learner.reward.skills(settings["episodes"], torch.Generator().manual_seed(SEED))
    for mark in marks:
        while learner.steps < mark:
            before = learner.steps
            learner.train_epoch()
            if before // SAVE_EVERY < learner.steps // SAVE_EVERY or learner.steps >= mark:
                learner.save(kept)
                print(f"{learner.steps} steps", flush=True)
        replicas, play = ant("plain_ant", settings["episodes"]), lambda seen, rng: learner.act(seen, skills, rng)
        yield mark, {"steps": learner.steps} | coverage(replicas, play)
        replicas.close()


@torch.no_grad()
def coverage(replicas: Replicas, act: Callable[[Tensor, torch.Generator | None], Tensor]) -> dict[str, Any]:
    """Cells that 48 new episodes visit, by what `act` makes of observations: without noise and with."""
    row: dict[str, Any] = {}
    for name, rng in (("cells", None), ("cells_with_noise", torch.Generator().manual_seed(SEED))):
        replicas.start(SEED)
        places = [replicas.observation[:, :2]]
        for _ in range(STEPS):
            places.append(replicas.step(act(replicas.observation, rng)).observation[:, :2])
        visited = torch.stack(places, dim=1).numpy()
        row[name] = unique_cells(visited)
        if rng is None:
            row["distance"] = float(np.linalg.norm(visited[:, -1], axis=-1).mean())
    return row


def unique_cells(places: NDArray[np.floating]) -> int:
    """How many unique (floor x, floor y) there are among `places` (..., 2)."""
    return len(np.unique(np.floor(places).reshape(-1, 2), axis=0))


def ant(env: str, count: int) -> Replicas:
    return make_replicas(f"metra:{env}", count, horizon=STEPS, features=OURS["features"], threads=1)


def plain_ant() -> gymnasium.Env[Any, Any]:
    """Gymnasium's Ant as METRA has it: 29 observations, no termination."""
    return gymnasium.make(
        "Ant-v5",
        terminate_when_unhealthy=False,
        exclude_current_positions_from_observation=False,
        include_cfrc_ext_in_observation=False,
        max_episode_steps=10**9,
        disable_env_checker=True,
    )


def symmetric_ant() -> gymnasium.Env[Any, Any]:
    """The same, which declares that it is its own mirror image in x and across the diagonal."""
    env: Any = plain_ant()
    across = np.array([[0, 1], [1, 0]])
    env.unwrapped.symmetries = (mirror(np.diag([-1, 1]), "mirror of x"), mirror(across, "x and y exchanged"))
    return env


LEGS = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
"""Where the legs are, in the order of positions and velocities."""
ANKLES = np.array([(-1, 1), (1, 1), (-1, 1), (1, 1)])
"""Axes of the ankles; hips turn about z."""
MOTORS = [3, 0, 1, 2]
"""Legs in the order of actions."""


def mirror(reflection: NDArray[np.int64], name: str) -> Symmetry:
    """The Ant behind a vertical mirror, which `reflection` (2, 2) is in x and y. Rotations have the other sense."""
    order, signs = np.abs(reflection).argmax(axis=1), reflection.sum(axis=1)
    vector = SignedOrder(np.array([*order, 2]), np.array([*signs, 1], np.float32))
    rotation = SignedOrder(vector.order, -vector.signs)
    leg_of = [int(np.flatnonzero((reflection @ leg == LEGS).all(axis=1))[0]) for leg in LEGS]  # own inverse
    ankle = [-int(np.sign((reflection @ ANKLES[twin]) @ ANKLES[leg])) for leg, twin in enumerate(leg_of)]
    joints = _of_legs(leg_of, ankle, range(4))
    quaternion = _side_by_side(SignedOrder.unchanged(1), rotation)
    observation = _side_by_side(vector, quaternion, joints, vector, rotation, joints)
    return Symmetry(observation, _of_legs(leg_of, ankle, MOTORS), name)


def _of_legs(leg_of: Sequence[int], ankle: Sequence[int], places: Sequence[int]) -> SignedOrder:
    """Hip and ankle of the legs in `places`: hips have the other sign in a mirror."""
    there = [[*places].index(leg_of[leg]) for leg in places]
    order = [2 * leg + joint for leg in there for joint in range(2)]
    return SignedOrder(np.array(order), np.array([(-1, ankle[leg]) for leg in places], np.float32).ravel())


def _side_by_side(*parts: SignedOrder) -> SignedOrder:
    starts = np.cumsum([0, *(part.order.size for part in parts)])
    order = [start + part.order for start, part in zip(starts, parts, strict=False)]
    return SignedOrder(np.concatenate(order), np.concatenate([part.signs for part in parts]))


def tell(
    found: Mapping[str, Any], variants: Sequence[str], seeds: Sequence[int], marks: Sequence[int]
) -> dict[str, float]:
    """Print the tables, by mark, and return the figures: means over seeds, and ours over theirs at the last mark."""
    figures: dict[str, float] = {}
    for mark in marks:
        table = Table(
            "variant", "cells, each seed", "cells with noise", "mean distance", "steps", title=f"{mark:,} steps"
        )
        for variant in variants:
            at = "0" if variant == "untrained" else str(mark)
            rows = [found[f"{variant}-{seed}"].get(at) for seed in seeds]
            done = [row for row in rows if row is not None]
            if not done:
                continue
            figures[f"cells_{variant}_{at}"] = float(np.mean([row["cells"] for row in done]))
            each = {"cells": "d", "cells_with_noise": "d", "distance": ".1f", "steps": ",d"}
            told = (
                " ".join("-" if row is None else f"{row[name]:{form}}" for row in rows) for name, form in each.items()
            )
            table.add_row(NAMES[variant], *told)
        for theirs in ("metra", "diayn"):
            both = [f"cells_{variant}_{mark}" for variant in ("ten", theirs)]
            if all(name in figures for name in both):
                figures[f"cells_vs_{theirs}"] = figures[both[0]] / figures[both[1]]
        Console(width=120).print(table)
    Console().print({name: value for name, value in figures.items() if "_vs_" in name})
    return figures


if __name__ == "__main__":
    main()
