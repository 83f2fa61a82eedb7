"""The paper's PointMaze figure: two agents on a ring, then a goal across the loop, fine-tuned from each of them.

python examples/ring.py --folder runs/ring --out pictures/ring

Two agents explore the ring without reward; each agent is then fine-tuned to the same goal. Run again, it goes on.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.patches import Circle
from numpy.typing import NDArray

import kmyriad as km

GOAL = (0.0, 2.0)
EPISODES = 50
EXTENT = (-3.5, 3.5, -3.5, 3.5)
Paths = NDArray[np.floating]
"""([agents,] episodes, steps, 2), metres."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/ring"), help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("pictures/ring"), help="the pictures, without their ending")
    parser.add_argument("--seed", type=int, default=0, help="of all runs (default: %(default)s)")
    arguments = parser.parse_args()
    pretrained = explore(arguments.folder / "pretrained", arguments.seed)
    solved = [solve(arguments.folder / f"agent-{agent}", pretrained, agent, arguments.seed) for agent in (0, 1)]
    before = km.evaluate(pretrained, episodes=2 * EPISODES).visits.xy
    assert before is not None
    after = [play(run) for run in solved]
    draw(pretrained, before, after, arguments.out)
    for agent, (paths, success) in enumerate(after):
        print(f"agent {agent}: success {success:.2f}, {way_round(paths)}")


def explore(folder: Path, seed: int) -> km.Run:
    """Two agents on the ring, without reward."""
    if folder.exists():
        return km.pretrain(out=folder, resume=True)
    return km.pretrain("point-maze", agents=2, out=folder, seed=seed, total_steps=600_000)


def solve(folder: Path, source: km.Run, agent: int, seed: int) -> km.Run:
    """One agent, fine-tuned to the goal."""
    if folder.exists():
        return km.jumpstart(out=folder, resume=True)
    return km.jumpstart(source, goal=GOAL, agent=agent, out=folder, seed=seed, total_steps=300_000)


def play(run: km.Run) -> tuple[Paths, float]:
    """Paths of a fine-tuned policy in fresh episodes, NaN from the goal on, and its success."""
    trajectory = km.play(run, EPISODES, seed=1)
    assert trajectory.xy is not None
    assert trajectory.success is not None
    success = trajectory.success[0]
    return np.where(success[:, :, None], np.nan, trajectory.xy[0]), float(success.any(dim=1).float().mean())


def way_round(paths: Paths) -> str:
    """By which side episodes go: whether x is positive or negative at half height."""
    x, y = paths[:, :, 0], paths[:, :, 1]
    east = (x > 0) & (np.abs(y) < 0.5)
    west = (x < 0) & (np.abs(y) < 0.5)
    return (
        f"{east.any(axis=1).mean():.0%} of the episodes go round by the east, {west.any(axis=1).mean():.0%} by the west"
    )


def draw(run: km.Run, before: Paths, after: list[tuple[Paths, float]], out: Path) -> None:
    """Two maps per agent: where it went without reward, and how it goes to the goal."""
    world = km.world_of(run)
    assert world is not None
    figure = km.figures.new_figure(km.figures.FULL, km.figures.FULL / 4 + 0.35)
    for agent in (0, 1):
        to_goal, success = after[agent]
        for column, (paths, title) in enumerate(
            [
                (before[agent], f"agent {agent}, without reward"),
                (to_goal, f"agent {agent}, to the goal: {success:.0%}"),
            ]
        ):
            axes = figure.add_subplot(1, 4, 2 * agent + column + 1)
            km.figures.draw_terrain(axes, world, EXTENT)
            for path in paths:
                axes.plot(*path.T, color=km.figures.agent_colour(agent, 2), linewidth=0.4, alpha=0.4)
            axes.plot(*world.terrain.start, marker="x", color="black", markersize=4)
            if column:
                axes.plot(*GOAL, marker="*", color="black", markersize=7)
                axes.add_patch(Circle(GOAL, world.goal_radius, fill=False, linewidth=0.6))
            axes.set_title(title, fontsize=7)
            axes.set_xlabel("x (m)", fontsize=7)
            axes.set_ylabel("y (m)" if not agent and not column else "", fontsize=7)
            axes.tick_params(labelsize=6)
    figure.set_layout_engine("constrained")
    png, _ = km.figures.save(figure, out)
    maps = km.figures.agent_heatmaps(before, world, extent=EXTENT)
    heatmaps, _ = km.figures.save(maps, out.with_name(f"{out.name}-heatmaps"))
    print(png, heatmaps, sep="\n")


if __name__ == "__main__":
    main()
