"""Draw what the agents of a run do: where each went in the last horizon, all together, and how entropy rose.

python examples/agents.py runs/NAME --out pictures
"""

import argparse
from pathlib import Path

import kmyriad as km


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a pretraining run")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="where pictures go (default: %(default)s)")
    arguments = parser.parse_args()
    run = km.open_run(arguments.run)
    rule, plane, visited = run.pretraining.rule, km.plane_of(run), km.load_last_horizon(run)
    if visited is None:
        raise SystemExit(f"{run.path} has no stored states; let it train for a horizon")
    drawn = {
        "agents": km.figures.agent_heatmaps(visited.xy, plane, visited.valid),
        "visitation": km.figures.visitation_map(visited.xy, plane, visited.valid),
        "entropy": km.figures.entropy_curves({rule: [run.metrics()]}),
    }
    for name, figure in drawn.items():
        png, _ = km.figures.save(figure, arguments.out / f"{run.name}-{name}")
        print(png)


if __name__ == "__main__":
    try:
        main()
    except km.UsageError as error:
        raise SystemExit(str(error)) from error
