"""`kmyriad video`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from kmyriad.errors import UsageError

if TYPE_CHECKING:
    from kmyriad.video.captions import Picture
    from kmyriad.video.film import Cast, Film


@dataclass(frozen=True)
class Command:
    """Film what the agents of a run do, as an MP4."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    agents: str | None = None
    """Agents to show, such as 0,3,7; by default all, up to nine."""
    goal: tuple[float, ...] | None = None
    """A goal to draw, x y or x y z; by default the one that a jump-start was trained for."""
    out: Path | None = None
    """File to write; by default a new name in the run's folder videos."""
    layout: Literal["scene", "grid"] = "scene"
    """All agents in one scene, or each in a picture of its own."""
    seconds: float | None = None
    """Length, in the world's own time; by default one episode. After their end episodes start again."""
    camera: Literal["follow", "top"] = "follow"
    """With the robots, or from above over the whole world."""
    seed: int = 0
    """Of resets and actions."""
    against: Path | None = None
    """A second run to show on the right, such as the jump-start that began with the first."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad video")
    agents = None if command.agents is None else _parse_agents(command.agents)
    _check(command)
    from kmyriad.envs.rendering import RenderError
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run
    from kmyriad.video.film import choose_agents, film
    from kmyriad.video.mp4 import write_mp4

    casts = [choose_agents(open_run(command.folder), agents)]
    if command.against is not None:
        casts.append(choose_agents(open_run(command.against)))
    for cast in casts:
        if cast.left_out:
            shown, name = len(cast.agents), cast.run.name
            say(f"{name}: the first {shown} of {shown + cast.left_out} agents; choose others with --agents")
    out = command.out or _default_name(command, casts)
    try:
        made = film(
            casts,
            layout=command.layout,
            camera=command.camera,
            goal=command.goal,
            seconds=command.seconds,
            seed=command.seed,
        )
        write_mp4(out, _watched(made), made.fps)
    except RenderError as error:
        raise UsageError(str(error)) from error
    print(out)


def _parse_agents(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--agents takes numbers with commas between, such as 0,3,7; got {text!r}") from None


def _check(command: Command) -> None:
    if command.goal is not None and len(command.goal) not in (2, 3):
        raise UsageError(f"--goal takes x y or x y z; got {len(command.goal)} numbers")
    if command.seconds is not None and not 0 < command.seconds <= 3600:
        raise UsageError(f"--seconds must be above 0 and at most 3600; got {command.seconds:g}")
    if command.seed < 0:
        raise UsageError(f"--seed must be 0 or above; got {command.seed}")
    if command.out is not None and command.out.suffix.lower() != ".mp4":
        raise UsageError(f"--out must end in .mp4; got {command.out}")


def _default_name(command: Command, casts: "list[Cast]") -> Path:
    """`ant-0-3-7-grid.mp4` and the like, in the first run's folder."""
    words = [casts[0].run.name, *(map(str, casts[0].agents) if command.agents is not None else ())]
    words += [f"against-{cast.run.name}" for cast in casts[1:]]
    return casts[0].run.outputs / "videos" / f"{'-'.join([*words, command.layout])}.mp4"


def _watched(film: "Film") -> "Iterator[Picture]":
    """The frames of `film`, with the time left on stderr."""
    from rich.console import Console
    from rich.progress import track

    from kmyriad.runs.progress import PLAIN_LINE_EVERY, say

    console = Console(stderr=True)
    if console.is_terminal:
        yield from track(film.frames, "video", total=film.count, console=console)
        return
    started = last_line = time.monotonic()
    for done, frame in enumerate(film.frames, start=1):
        yield frame
        now = time.monotonic()
        if now - last_line > PLAIN_LINE_EVERY or done == film.count:
            last_line = now
            say(f"frame {done}/{film.count}  {(now - started) / done * (film.count - done):.0f} s left", console)
