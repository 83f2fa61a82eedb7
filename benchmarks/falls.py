"""How many of a run's Ants lie on their backs when their episodes end, and how far they walked: fresh episodes.

python benchmarks/falls.py runs/NAME ...
"""

import argparse
from pathlib import Path

import numpy as np
from experiments import fresh_visits
from rich.console import Console
from rich.table import Table

import kmyriad
from kmyriad.config import config_from

EPISODES, SEED = 100, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run in an Ant's world")
    arguments = parser.parse_args()
    table = Table("run", "on their backs", "path, m", title=f"the ends of {EPISODES} episodes")
    for path in arguments.runs:
        on_back, walked = falls(path)
        table.add_row(path.name, f"{on_back:.0%}", f"{walked:.1f}")
    Console().print(table)


def falls(path: Path) -> tuple[float, float]:
    """(the fraction that ends upside down, the mean length of the paths)."""
    run = kmyriad.open_run(path)
    config, population = config_from(run.config), kmyriad.load_population(run)
    visits, _ = fresh_visits(config, population, EPISODES, SEED, features=("up",))
    assert visits.xy is not None
    strides = np.linalg.norm(np.diff(visits.xy, axis=2), axis=-1)
    return float((visits.features[:, :, -1, 0] < 0).mean()), float(strides.sum(axis=-1).mean())


if __name__ == "__main__":
    main()
