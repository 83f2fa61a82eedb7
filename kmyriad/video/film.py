"""What the agents of a run do, as moving pictures: all in one scene, or side by side."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from kmyriad.config import JumpstartConfig, PretrainConfig, TaskConfig
from kmyriad.engines.engine import Engine
from kmyriad.engines.make import GoalPoint
from kmyriad.envs import short_name
from kmyriad.envs.rendering import fixed_view
from kmyriad.envs.scene import Box, SceneRenderer, view_of
from kmyriad.envs.vector_env import WorldVectorEnv
from kmyriad.errors import UsageError, first_line
from kmyriad.evaluation.evaluate import world_of
from kmyriad.figures import agent_colour
from kmyriad.population.population import Population
from kmyriad.rollout.randomness import action_noise
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.state import load_population
from kmyriad.video.captions import Picture, labelled, legend, resized, side_by_side, tiled, titled
from kmyriad.video.mp4 import write_mp4

Layout = Literal["scene", "grid"]
Camera = Literal["follow", "top"]

MOST_AGENTS = 9
"""Shown where nothing else is asked for."""

SCENE, HALF_SCENE = (800, 600), (600, 560)
"""Pixels (width, height) of a scene alone and of one of two."""

GRID, LARGEST_TILE = 720, 480
"""Pixels of a grid's side, about, and of a picture in it, at most."""

FASTEST = 30.0
"""Pictures per second, at most: of worlds with more control steps per second some are left out."""

EASE = 0.12
"""Part of the way that the camera of a scene goes in one picture to where it should be."""


@dataclass(frozen=True)
class Cast:
    """The agents of a run that act."""

    run: Run
    population: Population
    """These agents only."""
    agents: tuple[int, ...]
    """Their numbers in the run."""
    colours: tuple[str, ...]
    left_out: int
    """How many agents were cut because nobody asked for them."""

    @property
    def labels(self) -> list[str]:
        return [f"agent {agent}" for agent in self.agents]


@dataclass(frozen=True)
class Film:
    frames: Iterator[Picture]
    """Each made when it is asked for."""
    count: int
    fps: float


def write_video(
    run: Run | str | Path,
    out: str | Path,
    agents: Sequence[int] | None = None,
    *,
    against: Run | str | Path | None = None,
    layout: Layout = "scene",
    camera: Camera = "follow",
    goal: Sequence[float] | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Path:
    """Film what agents of a run do (None: all, up to nine) as an MP4; `against` is a second run on the right."""
    casts = [choose_agents(open_run(run), agents)]
    if against is not None:
        casts.append(choose_agents(open_run(against)))
    made = film(casts, layout=layout, camera=camera, goal=goal, seconds=seconds, seed=seed)
    write_mp4(Path(out), made.frames, made.fps)
    return Path(out)


def choose_agents(run: Run, agents: Sequence[int] | None = None) -> Cast:
    """The agents asked for, or the first nine."""
    population = load_population(run)
    count = population.agents
    chosen = tuple(range(min(count, MOST_AGENTS))) if agents is None else tuple(agents)
    for agent in chosen:
        if not 0 <= agent < count:
            raise UsageError(f"there is no agent {agent} in {run.given}; it has agents 0 to {count - 1}")
    colours = tuple(agent_colour(agent, count) for agent in chosen)
    left_out = count - len(chosen) if agents is None else 0
    return Cast(run, population.select(chosen), chosen, colours, left_out)


def film(
    casts: Sequence[Cast],
    *,
    layout: Layout = "scene",
    camera: Camera = "follow",
    goal: Sequence[float] | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Film:
    """One run's agents, or those of two next to each other, from reset; by default for one episode."""
    _check_worlds(casts)
    task = _task_of(casts, goal)
    size = SCENE if len(casts) == 1 else HALF_SCENE
    shots = [_Shot(cast, layout, camera, task, size) for cast in casts]
    rate = shots[0].rate
    every = max(1, math.ceil(rate / FASTEST - 1e-6))
    steps = shots[0].horizon if seconds is None else max(1, round(seconds * rate))
    pictures = [shot.pictures(steps, every, seed) for shot in shots]
    captions = _captions(casts)
    together = (
        side_by_side([titled(one, text) if text else one for one, text in zip(ones, captions, strict=True)])
        for ones in zip(*pictures, strict=True)
    )
    return Film(together, -(-steps // every), rate / every)


class _Shot:
    """One run's agents on their replicas, before a camera."""

    def __init__(
        self, cast: Cast, layout: Layout, camera: Camera, task: GoalPoint | None, size: tuple[int, int]
    ) -> None:
        self._cast = cast
        self.horizon = cast.run.config.rollouts.horizon
        self._replicas = _renderable(cast, self.horizon, task, layout)
        engine = self._replicas.engine
        self.rate = 1 / (engine.plane.seconds_per_step or 1 / FASTEST)
        self._close: Callable[[], None] = self._replicas.close
        self._draw: Callable[[], Picture]
        if engine.simulation is not None:
            goal = np.array(task.point, np.float64) if task else None
            painter = (_Scene if layout == "scene" else _Grid)(cast, engine.simulation, camera, goal, size)
            self._draw, self._close = painter.draw, painter.close
        else:
            self._draw = lambda: _foreign_grid(cast, engine)

    def pictures(self, steps: int, every: int, seed: int) -> Iterator[Picture]:
        """Play `steps` steps from reset; a picture before each `every`-th of them."""
        replicas, population = self._replicas, self._cast.population
        noise = action_noise(seed, 0, replicas.share.numbers, steps, population.actions)
        replicas.start(seed)
        try:
            for step in range(steps):
                if step % every == 0:
                    yield self._draw()
                with torch.inference_mode():
                    policy = population(replicas.observation[:, None])
                    raw = policy.sample(noise[step][:, None])[:, 0]
                    replicas.step(population.actions.squash(raw))
        finally:
            self._close()


class _Scene:
    """All agents on one terrain, under a camera that backs away as they spread."""

    def __init__(
        self, cast: Cast, env: WorldVectorEnv, camera: Camera, goal: NDArray[np.float64] | None, size: tuple[int, int]
    ) -> None:
        width, height = size
        self._env, self._camera, self._goal = env, camera, goal
        self._colours = [to_rgb(colour) for colour in cast.colours]
        self._legend = legend(width, cast.labels, cast.colours)
        self._aspect = width / height
        self._renderer = SceneRenderer(env.world, len(cast.agents), width, height)
        self._seen: Box | None = None
        self._wanted: Box | None = None

    def draw(self) -> Picture:
        world, physics = self._env.world, self._env.get_state().physics
        view = fixed_view(world, "top") if self._camera == "top" else view_of(self._follow(), world, self._aspect)
        picture = self._renderer.render(physics, self._colours, view, self._goal, self._env.goal_radius)
        return np.concatenate([picture, self._legend])

    def close(self) -> None:
        self._renderer.close()
        self._env.close()

    def _follow(self) -> Box:
        """The piece of ground to look at: where any robot has been so far, and the goal, reached smoothly."""
        margin = 1.6 * self._env.world.goal_radius
        places = self._env.positions[:, :2]
        low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
        if self._goal is not None:
            low, high = np.minimum(low, self._goal[:2] - margin), np.maximum(high, self._goal[:2] + margin)
        if self._wanted is None or self._seen is None:
            self._wanted = self._seen = np.array([low, high])
        self._wanted = np.array([np.minimum(low, self._wanted[0]), np.maximum(high, self._wanted[1])])
        self._seen = self._seen + EASE * (self._wanted - self._seen)
        return self._seen


class _Grid:
    """Every agent in a picture of its own."""

    def __init__(
        self, cast: Cast, env: WorldVectorEnv, camera: Camera, goal: NDArray[np.float64] | None, size: tuple[int, int]
    ) -> None:
        self._cast, self._env, self._goal = cast, env, goal
        self._view = fixed_view(env.world, camera)
        tile = _tile(len(cast.agents))
        self._renderer = SceneRenderer(env.world, 1, tile, tile)

    def draw(self) -> Picture:
        physics = self._env.get_state().physics
        tiles = [
            self._renderer.render(state[None], [to_rgb(colour)], self._view, self._goal, self._env.goal_radius)
            for state, colour in zip(physics, self._cast.colours, strict=True)
        ]
        return _arranged(self._cast, tiles)

    def close(self) -> None:
        self._renderer.close()
        self._env.close()


def _renderable(cast: Cast, horizon: int, goal: GoalPoint | None, layout: Layout) -> Replicas:
    """A replica for each agent. What has a world is drawn by us; any other environment must draw itself."""
    run, config = cast.run, cast.run.config
    features = config.world.features if isinstance(config, PretrainConfig) else config.task.features
    make = partial(make_replicas, run.env, len(cast.agents), horizon=horizon, features=features, goal=goal)
    if world_of(run) is not None:
        return make(settings=run.env_settings)
    if layout == "scene":
        raise UsageError(f"{run.env!r} draws its own pictures, one for each agent; use --layout grid")
    try:
        with warnings.catch_warnings(action="ignore"):  # Gymnasium's own words about a mode it does not know
            return make(settings=run.env_settings | {"render_mode": "rgb_array"}, engine="serial")
    except UsageError as error:  # it can be trained in, so it is the pictures that it cannot do
        raise _cannot_render(run.env, error) from error


def _foreign_grid(cast: Cast, engine: Engine) -> Picture:
    name = cast.run.env
    try:
        pictures = engine.render()
    except Exception as error:  # whatever its own drawing library raises
        raise _cannot_render(name, error) from error
    tile = _tile(len(cast.agents))
    tiles = []
    for picture in pictures:
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise _cannot_render(name, f"it drew {type(picture).__name__}, no picture")
        tiles.append(resized(picture, tile, tile))
    return _arranged(cast, tiles)


def _cannot_render(env: str, reason: object) -> UsageError:
    return UsageError(f"environment {env!r} cannot render pictures (render_mode 'rgb_array'): {first_line(reason)}")


def _columns(count: int) -> int:
    return math.ceil(math.sqrt(count))


def _tile(count: int) -> int:
    """Side of one of `count` pictures in a grid, an even number of pixels."""
    return min(LARGEST_TILE, GRID // _columns(count) // 2 * 2)


def _arranged(cast: Cast, tiles: Sequence[Picture]) -> Picture:
    named = [labelled(*parts) for parts in zip(tiles, cast.labels, cast.colours, strict=True)]
    return tiled(named, _columns(len(named)))


def _task_of(casts: Sequence[Cast], goal: Sequence[float] | None) -> GoalPoint | None:
    """The goal asked for, or the one that the last of the runs was trained for."""
    config = casts[-1].run.config
    trained = config.task if isinstance(config, JumpstartConfig) else TaskConfig()
    point = tuple(goal or trained.goal)
    names = () if goal else trained.goal_names
    return GoalPoint(point, names, trained.goal_radius) if point else None


def _check_worlds(casts: Sequence[Cast]) -> None:
    worlds = {short_name(cast.run.env) for cast in casts}
    if len(worlds) > 1:
        raise UsageError(f"the runs are of different worlds ({', '.join(sorted(worlds))}); choose two of the same")


def _captions(casts: Sequence[Cast]) -> list[str]:
    """Names above two runs, none above one."""
    if len(casts) == 1:
        return [""]
    is_jumpstart = casts[-1].run.command == "jumpstart"
    times = ("before: ", "after: ") if is_jumpstart else ("", "")
    return [time + cast.run.name for time, cast in zip(times, casts, strict=True)]
