"""Draw what the heads of a run do: where each went in the last horizon, all together, and how entropy rose.

python examples/heads.py runs/NAME --out pictures
"""

import argparse
from pathlib import Path

import kmyriad
from kmyriad import figures
from kmyriad.config import config_from
from kmyriad.evaluation.evaluate import world_of
from kmyriad.runs.run import load_last_epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run in one of our worlds")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="where pictures go (default: %(default)s)")
    arguments = parser.parse_args()
    run = kmyriad.open_run(arguments.run)
    config = config_from(run.config)
    world, visited = world_of(run), load_last_epoch(run)
    if world is None or visited is None or "xy" not in visited:
        raise SystemExit(f"{run.path} has no stored positions; let it train for an epoch in one of our worlds")
    drawn = {
        "heads": figures.head_heatmaps(visited["xy"], world, visited["sound"]),
        "visitation": figures.visitation_map(visited["xy"], world, visited["sound"]),
        "entropy": figures.entropy_curves({config.update: [run.metrics()]}),
    }
    for name, figure in drawn.items():
        png, _ = figures.save(figure, arguments.out / f"{run.name}-{name}")
        print(png)


if __name__ == "__main__":
    main()
