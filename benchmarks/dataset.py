"""Many fresh episodes as a dataset: how much memory, time and disk they take. Ten million steps by default.

The episodes are of a population that comes with the repository. Every format is written by a process of its own, whose
largest size the system tells. `most_memory_gb` is the largest of all formats.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

POPULATIONS = Path(__file__).parents[1] / "populations"
FORMATS = ("npz", "parquet", "minari")
HORIZON = 200
"""Steps per episode of these populations."""
EXPORT = """
import resource, sys
import kmyriad
file, to, out, episodes, threads = sys.argv[1:]
kmyriad.export(file, to, out, episodes=int(episodes), threads=int(threads))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="point-maze", choices=sorted(path.stem for path in POPULATIONS.glob("*.k*")))
    parser.add_argument("--steps", type=int, default=10_000_000, help="of all episodes (default: %(default)s)")
    parser.add_argument("--formats", nargs="+", default=[*FORMATS], choices=FORMATS)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a look: few steps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, after every format")
    arguments = parser.parse_args()
    steps, rows = 20_000 if arguments.quick else arguments.steps, []
    for to in arguments.formats:
        rows.append({"world": arguments.world, "format": to} | measure(arguments.world, to, steps, arguments.threads))
        Console(stderr=True).print(rows[-1])
        figures = {"most_memory_gb": max(row["memory_bytes"] for row in rows) / 1e9}
        if arguments.json:
            arguments.json.write_text(json.dumps({"figures": figures, "rows": rows}, indent=1) + "\n")
    show(rows)
    Console().print(figures)


def measure(world: str, to: str, steps: int, threads: int) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        told = [str(POPULATIONS / f"{world}.kmyriad"), to, str(out), str(steps // HORIZON), str(threads)]
        started = time.perf_counter()
        result = subprocess.run([sys.executable, "-c", EXPORT, *told], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - started
        facts = json.loads((out / "dataset.json").read_text())
    return {
        "episodes": facts["episodes"],
        "steps": facts["steps"],
        "bytes": facts["bytes"],
        "seconds": seconds,
        "memory_bytes": int(result.stdout.split()[-1]) * 1024,
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="fresh episodes as datasets")
    for title in ("world", "format", "episodes", "steps", "MB on disk", "bytes per step", "memory, MB", "seconds"):
        table.add_column(title)
    for row in rows:
        table.add_row(
            row["world"],
            row["format"],
            f"{row['episodes']:,}",
            f"{row['steps']:,}",
            f"{row['bytes'] / 1e6:,.0f}",
            f"{row['bytes'] / row['steps']:.0f}",
            f"{row['memory_bytes'] / 1e6:,.0f}",
            f"{row['seconds']:.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
