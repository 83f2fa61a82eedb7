"""How many of a run's Ants end on their backs, and how far they walked: fresh episodes.

python benchmarks/falls.py runs/NAME ...
"""

import argparse
from pathlib import Path

import numpy as np
from experiments import fresh_visits
from rich.console import Console
from rich.table import Table

import kmyriad

EPISODES, SEED = 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run in an Ant's world")
    arguments = parser.parse_args()
    columns = ("run", "on backs", "path", "from start")
    table = Table(*columns, title=f"the ends of {EPISODES} episodes: a fraction, a mean, a median")
    for path in arguments.runs:
        on_back, walked, away = ends(path)
        table.add_row(path.name, f"{on_back:.0%}", f"{walked:.1f} m", f"{away:.1f} m")
    Console().print(table)


def ends(path: Path) -> tuple[float, float, float]:
    """(the fraction upside down, the mean path, the median distance from the start)."""
    run = kmyriad.open_run(path)
    config, population = run.pretraining, kmyriad.load_population(run)
    visits, _ = fresh_visits(config, population, EPISODES, SEED, features=("up",))
    assert visits.xy is not None
    strides = np.linalg.norm(np.diff(visits.xy, axis=2), axis=-1)
    last = visits.xy[:, :, -1] - visits.xy[:, :, 0]
    return (
        float((visits.features[:, :, -1, 0] < 0).mean()),
        float(strides.sum(axis=-1).mean()),
        float(np.median(np.linalg.norm(last, axis=-1))),
    )


if __name__ == "__main__":
    main()
