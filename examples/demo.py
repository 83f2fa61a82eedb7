"""The whole story in about five minutes on two cores: explore without reward, choose a head, jump-start it, look at it.

python examples/demo.py

Run again after an interruption, it goes on where it was.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kmyriad
from kmyriad.evaluation.comparison import jumpstart_values
from kmyriad.report import write_report
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run

GOAL = (5.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="where runs are kept")
    parser.add_argument("--pretrain-epochs", type=int, default=400, help="of 2,500 steps (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=100, help="of each jump-start (default: %(default)s)")
    arguments = parser.parse_args()
    folder = arguments.folder
    say("[bold]1 of 4:[/] ten Ants explore together, without reward")
    population = go_on(kmyriad.pretrain, folder / "population", env="ant-empty", epochs=arguments.pretrain_epochs)
    say(f"[bold]2 of 4:[/] the head that comes to {GOAL} most often is fine-tuned to go there")
    task = {"source": population.path, "goal": GOAL, "epochs": arguments.epochs}
    best = go_on(kmyriad.jumpstart, folder / "jump-start", **task)
    say("[bold]3 of 4:[/] the same from random weights")
    random = go_on(kmyriad.jumpstart, folder / "random-start", init="random", **task)
    say("[bold]4 of 4:[/] the page")
    page = folder / "report.html"
    write_report([population, best, random], page)
    print(summary(population, best, random, page))


def go_on(train: Callable[..., Run], folder: Path, **settings: Any) -> Run:
    """The run in `folder`: begun, or gone on with if it was interrupted."""
    if (folder / "config.json").exists():
        return train(out=folder, resume=True)
    return train(out=folder, **settings)


def summary(population: Run, best: Run, random: Run, page: Path) -> str:
    """What happened and where to look, in two sentences."""
    entropy = [row["entropy"] for row in population.metrics()]
    ours, theirs = (jumpstart_values(run)["final_success"] for run in (best, random))
    steps = population.metrics()[-1]["env_steps"]
    return (
        f"Ten Ants explored for {steps:,} steps without reward, and the entropy of where they go together rose to"
        f" {entropy[-1]:.1f} nats; fine-tuned to {GOAL}, the best of them gets there in {ours:.0%} of its episodes, a"
        f" random start in {theirs:.0%}.\nOpen {page} in a browser: curves, a map of every head, and goals to pick."
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; run it again and it goes on where it was")
