"""MuJoCo Warp's CPU device beside MuJoCo: how far one physics step differs, and how fast both are on one core.

python benchmarks/warp_engine.py                     # a few minutes; needs the extra `warp`
python benchmarks/warp_engine.py --quick             # a look whether it runs

Agreement: Ants fall onto many places of each terrain and act at random; before every step MuJoCo Warp gets MuJoCo's
state. Told is how far joint and body velocities are apart afterwards (rad/s, m/s). Speed: control steps per second of
CPU time on one core, engine against engine, observations and rewards included.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from kmyriad.engines.engine import Engine
from kmyriad.engines.make import make_engine

WORLDS = ("ant-empty", "ant-maze", "ant-pyramid", "ant-cave")
CONES = ("pyramidal", "elliptic")
FAR = 1e-3
"""Differences beyond this are counted."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each speed (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few steps, one round")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    steps, rounds, counts = (20, 1, (16,)) if arguments.quick else (300, arguments.rounds, (16, 256, 1024))
    figures: dict[str, float] = {}
    print("world        cone        share beyond 0.001   largest")
    for world in WORLDS:
        for cone in CONES:
            apart = differences(world, cone, 128, steps)
            figures[f"{world}_{cone}_share"] = share = float((apart > FAR).mean())
            figures[f"{world}_{cone}_largest"] = float(apart.max())
            print(f"{world:<12} {cone:<11} {share:18.4f} {apart.max():9.2g}", flush=True)
    for cone in CONES:
        for count in counts:
            ratios = [speed("warp", count, cone, steps) / speed("auto", count, cone, steps) for _ in range(rounds)]
            figures[f"speed_{cone}_{count}"] = median(ratios)
            print(f"{count} replicas, {cone}: {median(ratios):.2f} times the speed of mujoco.batch", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures}, indent=2) + "\n")


def differences(world: str, cone: str, count: int, steps: int) -> np.ndarray:
    """(steps, count), the largest difference between the velocities of one replica after one physics step."""
    settings = {"cone": cone, "decimation": 1}
    ours = make_engine(world, count, horizon=steps + 1, settings=settings, threads=1)
    theirs = make_engine(world, count, horizon=steps + 1, settings=settings, engine="warp")
    env, state = ours.simulation, theirs._physics.state  # type: ignore[attr-defined]
    assert env is not None
    ours.start(0)
    theirs.start(0)
    rng, terrain = np.random.default_rng(0), env.world.terrain
    xy = rng.uniform(-terrain.half_size, terrain.half_size, (100 * count, 2))
    xy = xy[~terrain.is_wall(*xy.T)][:count]
    env._qpos[:, :2], env._qpos[:, 2] = xy, 0.6 + terrain.height(*xy.T)
    apart = np.zeros((steps, count))
    for step in range(steps):
        for name in ("qpos", "qvel", "qacc_warmstart"):
            state[name].copy_(torch.as_tensor(np.array(env._batch.bind(name))))
        actions = rng.uniform(-1, 1, (count, 8)).astype(np.float32)
        ours.step(actions, np.zeros(count, bool))
        theirs.step(torch.as_tensor(actions), torch.zeros(count, dtype=torch.bool))
        apart[step] = np.abs(env._qvel - state["qvel"].numpy()).max(axis=1)
    ours.close()
    return apart


def speed(engine: str, count: int, cone: str, steps: int) -> float:
    """Control steps per second of all replicas together."""
    made: Engine = make_engine(
        "ant-maze",
        count,
        horizon=steps + 20,
        settings={"cone": cone},
        threads=1,
        engine="warp" if engine == "warp" else "auto",
    )
    made.start(0)
    rng = np.random.default_rng(0)
    moves = [torch.as_tensor(rng.uniform(-1, 1, (count, 8)), dtype=torch.float32) for _ in range(20)]
    never = torch.zeros(count, dtype=torch.bool)
    taken, budget = 0, max(5, min(steps, 40_000 // count))
    for step in range(20 + budget):
        if step == 20:
            started = time.process_time()
        action, last = moves[step % 20], never
        made.step(*((action, last) if made.speaks_tensors else (action.numpy(), last.numpy())))
        taken += step >= 20
    seconds = time.process_time() - started
    made.close()
    return count * taken / seconds


if __name__ == "__main__":
    main()
