"""Training on a busy machine: throughput alone, beside a spinning process at lowest priority, and on one core.

python benchmarks/contention.py                     # against the commit before busy machines were looked at
python benchmarks/contention.py --before HEAD~1     # against another commit

Two cores are used, and the spinning process is pinned to the second. Measured in turns, several rounds.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median

from equality import ROOT, spelt, tree_of

BEFORE = "d550006"
SECONDS, QUICK_SECONDS = 10.0, 6.0
SPINNER = "import os, sys; os.nice(19); os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="commit to compare with (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--train", type=float, metavar="SECONDS", help=argparse.SUPPRESS)  # in a tree of one commit
    arguments = parser.parse_args()
    if arguments.train:
        print(rate(arguments.train))
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("this needs two cores")
    seconds, rounds = (QUICK_SECONDS, 1) if arguments.quick else (SECONDS, arguments.rounds)
    rates: dict[str, list[float]] = {"alone": [], "busy": [], "one core": [], "before, alone": []}
    with tempfile.TemporaryDirectory() as folder:
        before = tree_of(arguments.before, Path(folder))
        for _ in range(rounds):
            rates["alone"].append(measured(ROOT, cores[:2], seconds))
            rates["before, alone"].append(measured(before, cores[:2], seconds))
            rates["one core"].append(measured(ROOT, cores[:1], seconds))
            spinner = subprocess.Popen([sys.executable, "-c", SPINNER, str(cores[1])])
            try:
                rates["busy"].append(measured(ROOT, cores[:2], seconds))
            finally:
                spinner.kill()
                spinner.wait()
    figures = {
        "busy_vs_idle": ratio(rates["busy"], rates["alone"]),
        "busy_vs_one_core": ratio(rates["busy"], rates["one core"]),
        "idle_vs_before": ratio(rates["alone"], rates["before, alone"]),
    }
    for name, values in rates.items():
        print(f"{name:<14} {median(values):8,.0f} steps/s   ({', '.join(f'{value:,.0f}' for value in values)})")
    for name, value in figures.items():
        print(f"{name:<18} {value:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"figures": figures, "steps_per_second": rates}, indent=2) + "\n")


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over rounds: what a machine does for others comes and goes, and both of a round share it."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def measured(tree: Path, cores: list[int], seconds: float) -> float:
    """Environment steps per second of default training with the kmyriad in `tree`, on these cores only."""
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, str(Path(__file__).resolve())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(Path(__file__).parent)])}
    done = subprocess.run(
        [*command, "--train", str(seconds)], cwd=tree, env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def rate(seconds: float) -> float:
    """Train for about so long, the first tenth apart, with the kmyriad that is first on the path."""
    import kmyriad

    settings = {"env": "ant-empty", "agents": 10, "replicas": 100, "horizon": 200, "rollout_steps": 25}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)  # stops it as a person would
        with suppress(KeyboardInterrupt):
            kmyriad.pretrain(out=out, threads=len(os.sched_getaffinity(0)), **spelt(settings, 10**6))
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    counted = rows[len(rows) // 10 :]
    return 100 * 25 * len(counted) / sum(row["seconds"] for row in counted)


if __name__ == "__main__":
    main()
