"""How many of a run's Ants end on their backs, how far they walked and where to: fresh episodes.

python benchmarks/falls.py runs/NAME ...
"""

import argparse
from pathlib import Path

import numpy as np
from experiments import fresh_visits
from rich.console import Console
from rich.table import Table

import kmyriad
from kmyriad.compass import directions
from kmyriad.config import config_from

EPISODES, SEED = 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run in an Ant's world")
    arguments = parser.parse_args()
    columns = ("run", "on backs", "path", "from start", "off way")
    table = Table(*columns, title=f"the ends of {EPISODES} episodes: a fraction, a mean, medians")
    for path in arguments.runs:
        on_back, walked, away, astray = ends(path)
        table.add_row(path.name, f"{on_back:.0%}", f"{walked:.1f} m", f"{away:.1f} m", f"{astray:.0f} degrees")
    Console().print(table)


def ends(path: Path) -> tuple[float, float, float, float]:
    """(the fraction upside down, the mean path, the median distance from the start and angle off the way, degrees)."""
    run = kmyriad.open_run(path)
    config, population = config_from(run.config), kmyriad.load_population(run)
    visits, _ = fresh_visits(config, population, EPISODES, SEED, features=("up",))
    assert visits.xy is not None
    strides = np.linalg.norm(np.diff(visits.xy, axis=2), axis=-1)
    last = visits.xy[:, :, -1] - visits.xy[:, :, 0]
    ways = directions(config.agents, 2)[:, None]
    across, along = ways[..., 0] * last[..., 1] - ways[..., 1] * last[..., 0], (ways * last).sum(-1)
    return (
        float((visits.features[:, :, -1, 0] < 0).mean()),
        float(strides.sum(axis=-1).mean()),
        float(np.median(np.linalg.norm(last, axis=-1))),
        float(np.median(np.degrees(np.abs(np.arctan2(across, along))))),
    )


if __name__ == "__main__":
    main()
