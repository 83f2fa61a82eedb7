"""A benchmark of the working tree beside that of another commit, in turns: the ratio of all numbers that they write.

python benchmarks/before.py HEAD~1 epoch --quick          # what follows the name is for the benchmark
python benchmarks/before.py HEAD~1 learning --only timing

Each tree runs its own `benchmarks/NAME.py`. Beside the numbers are the seconds that the whole took, and those of the
processor, which others on the machine disturb least.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from equality import tree_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="to compare with")
    parser.add_argument("name", help="of the benchmark")
    parser.add_argument("--turns", type=int, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--turns-json", type=Path, metavar="FILE", help="a file for the ratios")
    arguments, for_benchmark = parser.parse_known_args()
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        before = tree_of(arguments.commit, Path(folder))
        for _ in range(arguments.turns):
            theirs, ours = (numbers(tree, arguments.name, for_benchmark) for tree in (before, tree_of(".", before)))
            for name in ours.keys() & theirs.keys():
                ratios.setdefault(name, []).append(ours[name] / theirs[name])
    for name, values in sorted(ratios.items()):
        print(f"{name:<40} {median(values):.3f}   ({', '.join(f'{value:.3f}' for value in values)})")
    if arguments.turns_json:
        arguments.turns_json.write_text(json.dumps(ratios, indent=2) + "\n")


def numbers(tree: Path, name: str, arguments: list[str]) -> dict[str, float]:
    """What the benchmark in `tree` writes, by name, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "report.json"
        command = [sys.executable, str(tree / "benchmarks" / f"{name}.py"), *arguments, "--json", str(written)]
        start, used = time.perf_counter(), processor_seconds()
        subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, check=True)
        told = {"whole: seconds": time.perf_counter() - start, "whole: processor": processor_seconds() - used}
        return told | dict(flat(json.loads(written.read_text())))


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def flat(report: dict[str, Any], inside: str = "") -> list[tuple[str, float]]:
    """The positive numbers of nested dictionaries, names joined."""
    found: list[tuple[str, float]] = []
    for name, value in report.items():
        if isinstance(value, dict):
            found += flat(value, f"{inside}{name}: ")
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            found.append((f"{inside}{name}", float(value)))
    return found


if __name__ == "__main__":
    main()
