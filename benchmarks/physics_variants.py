"""What other physics settings would cost: the Ant's model with one thing changed at a time, on every terrain.

Each variant steps the same replicas, spread over the terrain, under the same actions, in turns with the others; the
table shows the best turn's rate against the shipped model's on the same terrain, and against flat ground.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
from mujoco.batch import Batch
from rich.console import Console
from rich.table import Table

from kmyriad.envs.ant import ant_world, build_spec
from kmyriad.envs.mujoco_warnings import silenced
from kmyriad.envs.terrain import TERRAINS

REPLICAS, CHUNK = 400, 4


def option(**settings: object) -> Callable[[mujoco.MjSpec], None]:
    def change(spec: mujoco.MjSpec) -> None:
        for name, value in settings.items():
            setattr(spec.option, name, value)

    return change


def flag(name: str, disabled: bool) -> Callable[[mujoco.MjSpec], None]:
    bit = getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")

    def change(spec: mujoco.MjSpec) -> None:
        flags = spec.option.disableflags
        spec.option.disableflags = flags | int(bit) if disabled else flags & ~int(bit)

    return change


def body_per_box(spec: mujoco.MjSpec) -> None:
    """Every terrain box in a static body of its own, so that the broad phase sorts them instead of one tree."""
    for geom in list(spec.worldbody.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_BOX:
            body = spec.worldbody.add_body()
            body.add_geom(type=geom.type, pos=geom.pos, size=geom.size, quat=geom.quat)
            spec.delete(geom)


def stubs_without_collision(spec: mujoco.MjSpec) -> None:
    """The capsules from the torso to the hips: the torso and the legs touch flat ground before they can."""
    for geom in spec.body("torso").geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE:
            geom.contype = 0


VARIANTS: dict[str, Callable[[mujoco.MjSpec], None]] = {
    "as shipped": lambda spec: None,
    "islands on": flag("ISLAND", disabled=False),
    "no mid-phase": flag("MIDPHASE", disabled=True),
    "a body per box": body_per_box,
    "hip stubs without collision": stubs_without_collision,
    "PGS, 10 iterations": option(solver=mujoco.mjtSolver.mjSOL_PGS, iterations=10),
    "CG, 10 iterations": option(solver=mujoco.mjtSolver.mjSOL_CG, iterations=10),
    "Newton, 3 iterations": option(iterations=3, ls_iterations=6),
    "tolerance 1e-4": option(tolerance=1e-4),
    "elliptic cones": option(cone=mujoco.mjtCone.mjCONE_ELLIPTIC),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=12, help="turns (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console()
    with console.status("measuring"):
        rates = {name: measure(name, arguments.rounds) for name in TERRAINS}
    table = Table("variant", *(f"{name}: vs shipped / vs flat" for name in TERRAINS))
    figures = {}
    for variant in VARIANTS:
        cells = []
        for name in TERRAINS:
            shipped = rates[name][variant] / rates[name]["as shipped"]
            flat = rates[name][variant] / rates["empty"][variant]
            figures[f"{name}: {variant}"] = flat
            cells.append(f"{shipped:.2f} / {flat:.2f}")
        table.add_row(variant, *cells)
    console.print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures}, indent=2) + "\n")


def measure(terrain: str, rounds: int) -> dict[str, float]:
    """Steps per second of every variant on one terrain: the best of `rounds` turns from the same states."""
    world = ant_world(terrain)
    rng = np.random.default_rng(0)
    points = rng.uniform(-12, 12, (20 * REPLICAS, 2))
    points = points[~world.terrain.is_wall(*points.T)][:REPLICAS]
    start = np.tile(world.initial_state(None)[0], (REPLICAS, 1))
    start[:, :2] = points
    start[:, 2] += world.terrain.height(*points.T)
    actions = rng.choice([-1.0, 1.0], (CHUNK, REPLICAS, 8))
    batches = {}
    for name, change in VARIANTS.items():
        spec = build_spec(world.terrain, world.timestep, world.armature, world.density)
        change(spec)
        batch = Batch(spec.compile(), REPLICAS, 2)
        batch.bind("qpos")[:] = start
        for _ in range(30):
            batch.bind("ctrl")[:] = np.tanh(rng.standard_normal((REPLICAS, 8)))
            batch.step(nstep=world.decimation)
        batches[name] = (batch, batch.state.copy())
    best = dict.fromkeys(VARIANTS, np.inf)
    for _ in range(rounds):
        for name, (batch, state) in batches.items():
            batch.state[:] = state
            ctrl = batch.bind("ctrl")
            begin = time.perf_counter()
            for action in actions:
                ctrl[:] = action
                with silenced():
                    batch.step(nstep=world.decimation)
            best[name] = min(best[name], time.perf_counter() - begin)
    return {name: CHUNK * REPLICAS / seconds for name, seconds in best.items()}


if __name__ == "__main__":
    main()
