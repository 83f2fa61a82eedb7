"""The paper's PointMaze figure: two heads on a ring, then a goal across the loop, fine-tuned from each of them.

python examples/ring.py --folder runs/ring --out pictures/ring

Two agents explore the ring without reward; each head is then fine-tuned to the same goal. Run again, it goes on.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.patches import Circle
from numpy.typing import NDArray

import kmyriad
from kmyriad import figures
from kmyriad.evaluation.evaluate import world_of
from kmyriad.figures.colours import head_colour
from kmyriad.figures.ground import draw_terrain
from kmyriad.figures.look import FULL, new_figure
from kmyriad.rollout.collect import Visits, collect
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population
from kmyriad.training.jumpstart import config_of, task_of

GOAL = (0.0, 2.0)
EPISODES = 50
EXTENT = (-3.5, 3.5, -3.5, 3.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/ring"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("pictures/ring"), help="the pictures, without their ending")
    parser.add_argument("--seed", type=int, default=0, help="of all runs (default: %(default)s)")
    arguments = parser.parse_args()
    pretrained = explore(arguments.folder / "pretrained", arguments.seed)
    solved = [solve(arguments.folder / f"head-{head}", pretrained, head, arguments.seed) for head in (0, 1)]
    before = kmyriad.evaluate(pretrained, episodes=2 * EPISODES).visits
    after = [play(run) for run in solved]
    draw(pretrained, before, after, arguments.out)
    for head, (paths, success) in enumerate(after):
        print(f"head {head}: success {success:.2f}, {way_round(paths)}")


def explore(folder: Path, seed: int) -> Run:
    """Two agents on the ring, without reward."""
    if folder.exists():
        return kmyriad.pretrain(out=folder, resume=True)
    return kmyriad.pretrain("point-maze", agents=2, out=folder, seed=seed, epochs=60)


def solve(folder: Path, source: Run, head: int, seed: int) -> Run:
    """One head, fine-tuned to the goal."""
    if folder.exists():
        return kmyriad.jumpstart(out=folder, resume=True)
    return kmyriad.jumpstart(source.path, goal=GOAL, head=head, out=folder, seed=seed, epochs=60)


def play(run: Run) -> tuple[NDArray[np.float32], float]:
    """Paths (episodes, steps, 2) of a fine-tuned policy in fresh episodes, NaN from the goal on, and its success."""
    task = task_of(config_of(run))
    replicas = task.replicas(EPISODES)
    replicas.start(seed=1)
    trajectory = collect(replicas, load_population(run), task.horizon, seed=1, epoch=0)
    replicas.close()
    assert trajectory.xy is not None
    success = trajectory.success[0]
    return np.where(success[:, :, None], np.nan, trajectory.xy[0]), float(success.any(axis=1).mean())


def way_round(paths: NDArray[np.float32]) -> str:
    """By which side episodes go: whether x is positive or negative at half height."""
    x, y = paths[:, :, 0], paths[:, :, 1]
    east = (x > 0) & (np.abs(y) < 0.5)
    west = (x < 0) & (np.abs(y) < 0.5)
    return (
        f"{east.any(axis=1).mean():.0%} of the episodes go round by the east, {west.any(axis=1).mean():.0%} by the west"
    )


def draw(run: Run, before: Visits, after: list[tuple[NDArray[np.float32], float]], out: Path) -> None:
    """Two maps per head: where it went without reward, and how it goes to the goal."""
    assert before.xy is not None
    world = world_of(run)
    assert world is not None
    figure = new_figure(FULL, FULL / 4 + 0.35)
    for head in (0, 1):
        to_goal, success = after[head]
        for column, (paths, title) in enumerate(
            [
                (before.xy[head], f"head {head}, without reward"),
                (to_goal, f"head {head}, to the goal: {success:.0%}"),
            ]
        ):
            axes = figure.add_subplot(1, 4, 2 * head + column + 1)
            draw_terrain(axes, world, EXTENT)
            for path in paths:
                axes.plot(*path.T, color=head_colour(head, 2), linewidth=0.4, alpha=0.4)
            axes.plot(*world.terrain.start, marker="x", color="black", markersize=4)
            if column:
                axes.plot(*GOAL, marker="*", color="black", markersize=7)
                axes.add_patch(Circle(GOAL, world.goal_radius, fill=False, linewidth=0.6))
            axes.set_title(title, fontsize=7)
            axes.set_xlabel("x (m)", fontsize=7)
            axes.set_ylabel("y (m)" if not head and not column else "", fontsize=7)
            axes.tick_params(labelsize=6)
    figure.set_layout_engine("constrained")
    png, _ = figures.save(figure, out)
    heatmaps, _ = figures.save(
        figures.head_heatmaps(before.xy, world, extent=EXTENT), out.with_name(f"{out.name}-heatmaps")
    )
    print(png, heatmaps, sep="\n")


if __name__ == "__main__":
    main()
