"""Train what the documentation's figures show, and draw them.

python docs/figures.py      # about a quarter of an hour on two cores; interrupted, it goes on where it was
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import imageio_ffmpeg
from PIL import Image

import kmyriad as km

FIGURES = Path(__file__).parent / "figures"
NO_PRIORS = {"priors": False}
"""Ten agents that are told nothing about the robot; a single one never is."""
COVERAGE: dict[str, dict[str, Any]] = {
    "one agent": {"agents": 1},
    "ten agents": {"agents": 10, **NO_PRIORS},
    "ten agents,\nwith mirrors": {"agents": 10},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/figures"), help="where runs are kept")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the populations shown (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="of the coverage chart (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where figures go (default: beside this file)")
    arguments = parser.parse_args()
    out = arguments.out
    ants = trained(arguments.folder / "ants", env="ant-empty", total_steps=arguments.steps)
    maze = trained(arguments.folder / "maze", env="ant-maze", total_steps=arguments.steps)
    for name, run in (("agents", ants), ("maze", maze)):
        evaluation, world = km.evaluate(run), km.world_of(run)
        assert world is not None
        visits = evaluation.visits
        save(km.figures.episode_paths(visits.xy, world, visits.valid, width=4.6), out / name)
        if name == "agents":
            save(km.figures.kl_matrix(evaluation.measures["kl_pairs"]), out / "kl")
    coverage = {name: cells(arguments, settings) for name, settings in COVERAGE.items()}
    save(km.figures.coverage_bars(coverage), out / "coverage")
    clip(ants, out / "agents.gif")
    km.write_report(ants, arguments.folder / "report.html")


def trained(folder: Path, **settings: Any) -> km.Run:
    """The run in `folder`: begun, gone on with, or done before."""
    if (folder / "config.json").exists():
        run = km.open_run(folder)
        return run if run.is_finished else km.pretrain(out=folder, resume=True)
    return km.pretrain(out=folder, **settings)


def cells(arguments: argparse.Namespace, settings: dict[str, Any]) -> list[float]:
    """1 m cells that 300 fresh episodes visit, of every seed."""
    found = []
    for seed in range(arguments.seeds):
        name = "-".join(["coverage", *(f"{key}-{value}" for key, value in settings.items()), str(seed)])
        run = trained(arguments.folder / name, env="ant-empty", total_steps=arguments.steps // 4, seed=seed, **settings)
        found.append(km.evaluate(run).measures["covered_cells"])
    print(settings, found)
    return found


def save(figure: Any, path: Path) -> None:
    png, svg = km.figures.save(figure, path)
    svg.unlink()
    Image.open(png).convert("RGB").quantize(256).save(png, optimize=True)  # a third of the size, and looks the same
    print(png)


def clip(run: km.Run, path: Path) -> None:
    """Eight seconds of all agents, small enough to be shown in a README."""
    film = km.write_video(run, run.path / "videos" / "clip.mp4", seconds=8)
    look = "fps=10,scale=400:-1:flags=lanczos,split[a][b];[a]palettegen=max_colors=64[p];[b][p]paletteuse"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-y", "-i", str(film), "-vf", look, str(path)]
    subprocess.run(command, check=True)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
