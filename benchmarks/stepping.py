"""How fast the worlds step, as ratios measured in one run against the raw limit and against peers.

Every pair is timed in turns (a step of one, a step of the other, again and again) and the median of the ratios is
reported, so a noisy machine slows both alike. Both sides of a pair get the same number of replicas and threads and
the same actions.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from mujoco.batch import Batch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kmyriad.envs.ant import ant_world
from kmyriad.envs.terrain import TERRAINS, Terrain
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.envs.world import Feature, FeatureTable

TARGETS = {
    "vs_bare_batch": (0.90, "our vector environment / bare mujoco.batch stepping of the same model and controls"),
    "vs_gymnasium": (3.0, "our vector environment / the better of SyncVectorEnv and AsyncVectorEnv of our single one"),
    "vs_envpool": (0.95, "our engine on Gymnasium's Ant (RK4, 0.01 s x 5) / EnvPool's Ant-v4 of the same physics"),
    "maze_vs_flat": (0.6, "AntMaze / AntEmpty, replicas spread over the terrain"),
    "pyramid_vs_flat": (0.6, "AntPyramid / AntEmpty, replicas spread over the terrain"),
    "cave_vs_flat": (0.6, "AntCave / AntEmpty, replicas spread over the terrain"),
}
ACTIONS = 8
Stepper = Callable[[NDArray[np.float32]], object]
"""Does one control step of all its replicas under actions (n, a)."""


@dataclass(frozen=True)
class Size:
    replicas: int
    threads: int
    rounds: int
    """Turns, of one control step each: the shorter the turns, the more alike is the machine for both sides."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="fewer turns: under a minute, noisier")
    parser.add_argument("--replicas", type=int, default=1000, help="replicas (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default: %(default)s)")
    arguments = parser.parse_args()
    size = Size(arguments.replicas, arguments.threads, rounds=30 if arguments.quick else 150)

    console = Console()
    figures: dict[str, float | None] = {}
    notes: dict[str, str] = {}
    for name, measure in (
        ("vs_bare_batch", against_bare_batch),
        ("vs_gymnasium", against_gymnasium),
        ("vs_envpool", against_envpool),
        *((f"{terrain}_vs_flat", against_flat(terrain)) for terrain in ("maze", "pyramid", "cave")),
    ):
        with console.status(f"measuring {name}"):
            figures[name], notes[name] = measure(size)
    table = Table(
        "figure", "ratio", "aim", "what", "steps/s", title=f"{size.replicas} replicas, {size.threads} threads"
    )
    for name, (target, what) in TARGETS.items():
        ratio = figures[name]
        shown = "-" if ratio is None else f"{ratio:.2f}"
        table.add_row(name, shown, f">= {target:g}", what, notes[name])
    console.print(table)
    if arguments.json:
        settings = {"replicas": size.replicas, "threads": size.threads, "rounds": size.rounds}
        versions = {
            "mujoco": mujoco.__version__,
            "gymnasium": gymnasium.__version__,
            "python": platform.python_version(),
        }
        report = {
            "figures": figures,
            "notes": notes,
            "settings": settings,
            "versions": versions,
            "cores": os.cpu_count(),
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def against_bare_batch(size: Size) -> tuple[float, str]:
    world = ant_world("empty")
    env = WorldVectorEnv(world, size.replicas, threads=size.threads)
    env.reset(seed=0)
    bare = Batch(world.model, size.replicas, size.threads)
    bare.state[:] = env.get_state().physics
    ctrl = bare.bind("ctrl")

    def step_bare(actions: NDArray[np.float32]) -> None:
        ctrl[:] = actions
        bare.step(nstep=world.decimation)

    return compare(env.step, step_bare, size)


def against_gymnasium(size: Size) -> tuple[float, str]:
    def single() -> gymnasium.Env:
        return gymnasium.make("kmyriad/AntEmpty-v0")

    env = WorldVectorEnv(ant_world("empty"), size.replicas, threads=size.threads)
    # A process per replica would drown this many cores; AsyncVectorEnv is given the number that suits it.
    few = 2 * size.threads
    peers = {
        f"SyncVectorEnv of {size.replicas}": SyncVectorEnv([single] * size.replicas),
        f"AsyncVectorEnv of {few}": AsyncVectorEnv([single] * few),
    }
    env.reset(seed=0)
    results = {}
    for name, peer in peers.items():
        peer.reset(seed=0)
        ratio, note = compare(env.step, peer.step, size, peer.num_envs)
        results[name] = (ratio, f"{note} ({name})")
        peer.close()
    return min(results.values())


def against_envpool(size: Size) -> tuple[float | None, str]:
    try:
        import envpool
    except ImportError:
        return None, "not measured: EnvPool is not installed (pip install 'kmyriad[bench]')"
    env = WorldVectorEnv(GymnasiumAnt(), size.replicas, threads=size.threads)
    env.reset(seed=0)
    peer = envpool.make_gymnasium(
        "Ant-v4", num_envs=size.replicas, num_threads=size.threads, terminate_when_unhealthy=False
    )
    peer.reset()
    return compare(env.step, lambda actions: peer.step(actions.astype(np.float64)), size)


def against_flat(terrain: str) -> Callable[[Size], tuple[float, str]]:
    def measure(size: Size) -> tuple[float, str]:
        envs = [spread_out(name, size) for name in (terrain, "empty")]
        return compare(envs[0].step, envs[1].step, size)

    return measure


def spread_out(terrain: str, size: Size) -> WorldVectorEnv:
    """Ants dropped all over the terrain's free ground, where maximising entropy drives a population, and settled."""
    env = WorldVectorEnv(ant_world(terrain, horizon=10**9), size.replicas, threads=size.threads)
    env.reset(seed=0)
    ground = env.world.terrain
    rng = np.random.default_rng(0)
    points = rng.uniform(-ground.half_size, ground.half_size, (20 * size.replicas, 2))
    points = points[~ground.is_wall(*points.T)][: size.replicas]
    qpos = env._batch.bind("qpos")
    qpos[:, :2] = points
    qpos[:, 2] += ground.height(*points.T)
    for _ in range(30):
        env.step(np.tanh(rng.standard_normal((size.replicas, ACTIONS))))
    return env


def compare(ours: Stepper, theirs: Stepper, size: Size, peer_replicas: int | None = None) -> tuple[float, str]:
    """(median over rounds of our rate / their rate, "our rate / their rate" in steps per second)."""
    peer_replicas = peer_replicas or size.replicas
    rng = np.random.default_rng(1)
    ratios, our_rates, their_rates = [], [], []
    for _ in range(size.rounds):
        actions = np.tanh(rng.standard_normal((size.replicas, ACTIONS))).astype(np.float32)
        our_rates.append(size.replicas / _seconds(ours, actions))
        their_rates.append(peer_replicas / _seconds(theirs, actions[:peer_replicas]))
        ratios.append(our_rates[-1] / their_rates[-1])
    return float(np.median(ratios)), f"{np.median(our_rates):,.0f} / {np.median(their_rates):,.0f}"


def _seconds(step: Stepper, actions: NDArray[np.float32]) -> float:
    start = time.perf_counter()
    step(actions)
    return time.perf_counter() - start


class GymnasiumAnt:
    """A `World`: Gymnasium's own Ant-v4 model and observation, for the comparison with EnvPool."""

    decimation, horizon, goal_radius, has_reset_noise, symmetries = 5, 1000, 1.0, False, ()
    speaks_tensors = False
    features = FeatureTable(
        [Feature("positions", 13, "", "all but x and y", 1e6), Feature("velocities", 14, "", "of all joints", 1e6)]
    )

    def __init__(self) -> None:
        folder = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
        self.model = mujoco.MjModel.from_xml_path(str(folder / "ant.xml"))
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.terrain: Terrain = TERRAINS["empty"](5, 0)

    def initial_state(self, rng: np.random.Generator | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.model.qpos0, np.zeros(self.model.nv)

    def before_step(self, batch: Batch) -> None:
        pass

    def positions(self, batch: Batch) -> NDArray[np.float64]:
        return batch.bind("qpos")[:, :3]

    def observe(self, batch: Batch, last_action: NDArray[np.float64], out: NDArray[np.float32]) -> None:
        out[:, :13] = batch.bind("qpos")[:, 2:]
        out[:, 13:] = batch.bind("qvel")


if __name__ == "__main__":
    main()
