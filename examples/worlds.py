"""Step every world with random actions, print the rates, save a picture of each from above and from behind."""

import argparse
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

import kmyriad as km

GOALS = {"ant-empty": (6, 3), "ant-maze": (0, 8), "ant-cave": (6, 8), "ant-pyramid": (8, 6), "point-maze": (0, 2)}
WORLDS = km.envs.WORLDS

SETTLING = 10
"""Control steps without action before pictures are taken: robots drop onto their feet."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000, help="replicas per world (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="control steps per world (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("pictures"), help="folder for the pictures")
    parser.add_argument("--montage", type=Path, metavar="FILE", help="also put all pictures into one file")
    parser.add_argument("--pixels", type=int, default=480, help="side of a picture (default: %(default)s)")
    arguments = parser.parse_args()

    console = Console()
    table = Table("world", Column("Gymnasium id", overflow="fold"), "observations", "steps/s", "diverged", "pictures")
    for name, world in track(WORLDS.items(), "stepping the worlds", console=console, total=len(WORLDS)):
        env: Any = gymnasium.make_vec(
            world.id,
            num_envs=arguments.replicas,
            goal=GOALS[name],
            render_mode="rgb_array",
            width=arguments.pixels,
            height=arguments.pixels,
        )
        env.reset(seed=0)
        rng = np.random.default_rng(0)
        seconds = 0.0
        for _ in range(arguments.steps):
            actions = np.tanh(0.4 * rng.standard_normal(env.action_space.shape))
            start = time.perf_counter()
            *_, info = env.step(actions)
            seconds += time.perf_counter() - start
        rate = arguments.replicas * arguments.steps / seconds
        env.reset(seed=0)  # pictures show robots as they start, on their feet
        for _ in range(SETTLING):
            env.step(np.zeros(env.action_space.shape, np.float32))
        pictures = save_pictures(env, name, arguments.out)
        (size,) = env.single_observation_space.shape
        table.add_row(name, world.id, str(size), f"{rate:,.0f}", str(int(info["diverged"].sum())), pictures)
        env.close()
    console.print(table)
    if arguments.montage:
        montage(arguments.out, arguments.pixels).save(arguments.montage)


def save_pictures(env: Any, name: str, folder: Path) -> str:
    """Write `<name>-follow.png` and `<name>-top.png`; returns the folder, or why there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for camera in ("follow", "top"):
            Image.fromarray(env.render_replica(0, camera)).save(folder / f"{name}-{camera}.png")
    except RuntimeError as error:  # there is no OpenGL here
        return f"none: {error}"
    return str(folder)


def montage(folder: Path, pixels: int) -> Image.Image:
    """All worlds side by side under their names: from behind above, from the top below."""
    title = pixels // 9
    sheet = Image.new("RGB", (len(WORLDS) * pixels, title + 2 * pixels), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(title * 0.6)
    for column, name in enumerate(WORLDS):
        draw.text(((column + 0.5) * pixels, title / 2), name, "black", font, anchor="mm")
        for row, camera in enumerate(("follow", "top")):
            sheet.paste(Image.open(folder / f"{name}-{camera}.png"), (column * pixels, title + row * pixels))
    return sheet


if __name__ == "__main__":
    main()
