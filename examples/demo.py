"""The whole story in about five minutes on two cores: explore without reward, choose an agent, jump-start it, look.

python examples/demo.py

Run again after an interruption, it goes on where it was.
"""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kmyriad as km

GOAL = (5.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="where runs are kept")
    parser.add_argument(
        "--pretrain-steps", type=int, default=1_000_000, help="environment steps without reward (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="of each jump-start (default: %(default)s)")
    arguments = parser.parse_args()
    folder = arguments.folder
    km.say("1 of 4: ten Ants explore together, without reward", style="bold")
    population = go_on(km.pretrain, folder / "population", arguments.pretrain_steps, env="ant-empty", agents=10)
    km.say(f"2 of 4: the agent that comes to {GOAL} most often is fine-tuned to go there", style="bold")
    task = {"source": population, "goal": GOAL}
    best = go_on(km.jumpstart, folder / "jump-start", arguments.steps, **task)
    km.say("3 of 4: the same from random weights", style="bold")
    random = go_on(km.jumpstart, folder / "random-start", arguments.steps, init="random", **task)
    km.say("4 of 4: the page", style="bold")
    page = km.write_report([population, best, random], folder / "report.html")
    print(summary(population, best, random, page))
    print(f"Then ask which of the ten suits a goal of your own:\n  {next_command(population)}")


def go_on(train: Callable[..., km.Run], folder: Path, steps: int, **settings: Any) -> km.Run:
    """The run in `folder`: begun, or gone on with if it was interrupted."""
    if (folder / "config.json").exists():
        return train(out=folder, resume=True, total_steps=steps)
    return train(out=folder, total_steps=steps, **settings)


def summary(population: km.Run, best: km.Run, random: km.Run, page: Path) -> str:
    """What happened and where to look, in two sentences."""
    last = population.metrics()[-1]
    return (
        f"Ten Ants explored for {last['env_steps']:,} steps without reward, and the entropy of where they go together"
        f" rose to {last['entropy']:.1f} nats; fine-tuned to {GOAL}, the best of them gets there in {success(best)} of"
        f" its episodes, a random start in {success(random)}.\nOpen {page} in a browser: curves, a map of every agent,"
        " and goals to pick."
    )


def success(run: km.Run) -> str:
    """How often a jump-start's last episodes came to the goal."""
    if all(row["success"] is None for row in run.metrics()):
        return "an unknown part (it was too short to tell)"
    return f"{km.jumpstart_values(run)['final_success']:.0%}"


def next_command(population: km.Run) -> str:
    """To paste into a shell, whether or not the virtual environment is active there."""
    command = Path(sys.executable).with_name("kmyriad")
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    goal = " ".join(f"{number:g}" for number in GOAL)
    return f"{shlex.quote(str(command))} select {shlex.quote(str(population.path))} --goal {goal}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; run it again and it goes on where it was")
    except km.UsageError as error:
        sys.exit(str(error))
