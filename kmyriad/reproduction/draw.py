"""The figures of each target, from the runs of a campaign."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kmyriad.config import even_split
from kmyriad.envs.make import make_world
from kmyriad.evaluation.evaluate import SEED, play, world_of
from kmyriad.figures import save, visitation_map
from kmyriad.figures.seeds import averaged
from kmyriad.reproduction.figures import (
    AGENT_COLOURS,
    BUDGET_COLOURS,
    START_COLOURS,
    TITLES,
    ZONE_COLOURS,
    Curve,
    HeatMap,
    curve_panels,
    goal_panels,
    heat_grid,
    mark_as_too_small,
    region_figure,
)
from kmyriad.reproduction.measures import SUCCESS_EPISODES, evaluation_of, finished, rows_of
from kmyriad.reproduction.page import Picture
from kmyriad.reproduction.plan import (
    AGENTS,
    RING_GOALS,
    SIZES,
    ZONES,
    Size,
    budget_run,
    goal_run,
    goals_in,
    region_goals,
    region_run,
    ring_run,
    run_name,
)
from kmyriad.reproduction.verdicts import BUDGETS
from kmyriad.runs.run import Run

NOT_JUDGED = "too small to judge by"
WORDS = {"random": "Random", "single": "1 Agent", "best": "50 Agents"}
"""Of the starts, as the paper's legend has them."""

Made = tuple[str, str, str, Figure]
"""The file's name, the title, the caption and the figure."""


def draw(targets: Sequence[str], folder: Path, size: Size, out: Path) -> list[Picture]:
    """The figures of `targets` whose runs are finished, as PNG and SVG in `out`."""
    pictures = []
    for target in targets:
        for name, title, caption, figure in DRAWN.get(target, _nothing)(folder, size):
            if size == "quick":
                mark_as_too_small(figure, NOT_JUDGED)
            pictures.append(Picture(title, caption, save(figure, out / name)[0]))
    return pictures


def _nothing(folder: Path, size: Size) -> list[Made]:
    return []


def entropy_curves(folder: Path, size: Size) -> list[Made]:
    panels = {
        title: {
            _agents(m): Curve(colour, rows_of(folder, [run_name(world, m, seed) for seed in SIZES[size].seeds]))
            for m, colour in AGENT_COLOURS.items()
        }
        for world, title in TITLES.items()
    }
    caption = (
        "Parallel state entropy of one agent, ten and fifty: mean and 95 % interval over seeds, by policy updates."
    )
    return [("entropy-curves", "Figure 5, parallel state entropy", caption, curve_panels(panels))]


def long_run(folder: Path, size: Size) -> list[Made]:
    curves = {
        _agents(m): Curve(
            colour, rows_of(folder, [run_name("ant-empty", m, seed, "long") for seed in SIZES[size].seeds])
        )
        for m, colour in AGENT_COLOURS.items()
    }
    caption = "Five times the updates in the Empty environment: mean and 95 % interval over seeds."
    return [
        ("long-run", "Figure 10, parallel state entropy over longer runs", caption, curve_panels({"Ground": curves}))
    ]


def budget(folder: Path, size: Size) -> list[Made]:
    curves = {}
    for amount, colour in zip(BUDGETS, BUDGET_COLOURS, strict=True):
        trajectories = even_split(SIZES[size].replicas * amount // 2, 10)
        runs = rows_of(folder, [budget_run(size, amount, seed) for seed in SIZES[size].seeds])
        curves[f"{trajectories:,}"] = Curve(colour, runs)
    panels = {"Ground": curves}
    caption = "Ten agents with more and more trajectories per update: mean and 95 % interval over seeds, by"
    return [
        ("budget", "Figure 6, trajectory budget, equal updates", f"{caption} policy updates.", curve_panels(panels)),
        (
            "budget-steps",
            "Figure 6 at equal steps",
            f"{caption} environment steps. Not in the paper.",
            curve_panels(panels, "env_steps"),
        ),
    ]


def success_rates(folder: Path, size: Size) -> list[Made]:
    made = []
    for x, of in (("iteration", "updates"), ("env_steps", "environment steps, selection and practice counted")):
        panels = {title: _success_curves(folder, size, world, x) for world, title in TITLES.items()}
        caption = (
            f"Success of PPO from three starts over {of}: mean and 95 % interval over seeds, goals beyond 4.5 m"
            " averaged within a seed."
        )
        name = "success-rates" if x == "iteration" else "success-rates-steps"
        title = "Figure 7, PPO success rates" + ("" if x == "iteration" else ", equal steps")
        made.append((name, title, caption, curve_panels(panels, x, "success")))
    return made


def _success_curves(folder: Path, size: Size, world: str, x: str) -> dict[str, Curve]:
    count, curves = SIZES[size].goals["outside"], {}
    for start, colour in START_COLOURS.items():
        by_seed = []
        for seed in SIZES[size].seeds:
            runs = rows_of(folder, [goal_run(world, start, "outside", number, seed) for number in range(count)])
            if len(runs) == count:
                by_seed.append(averaged(start, runs, x, "success"))
        curves[WORDS[start]] = Curve(colour, by_seed)
    return curves


def goal_regions(folder: Path, size: Size) -> list[Made]:
    signs = {"inside": "|goal| < 4.5 m (inside)", "outside": "|goal| > 4.5 m (outside)"}
    curves = {
        signs[zone]: Curve(colour, rows_of(folder, [region_run(zone, seed) for seed in SIZES[size].region_seeds]))
        for zone, colour in ZONE_COLOURS.items()
    }
    goals = {zone: [*dict.fromkeys(region_goals(size, zone).values())] for zone in ZONES}
    figure = region_figure(make_world("ant-empty"), goals["outside"], goals["inside"], curves)
    runs = len(SIZES[size].region_seeds)
    caption = (
        f"Goals, and success of PPO without pretraining over updates: median and quartiles of {runs} runs in each."
    )
    return [("goal-regions", "Figure 11, PPO across goal regions", caption, figure)]


def goal_maps(folder: Path, size: Size) -> list[Made]:
    worlds = {
        TITLES[world]: (make_world(world), goals_in(world, "outside", SIZES[size].goals["outside"]))
        for world in ("ant-maze", "ant-cave", "ant-pyramid")
    }
    caption = "Initial state and goals of the success rates; a goal counts within the shaded metre around it."
    return [("goal-maps", "Figure 12, goals in Maze, Cave and Pyramid", caption, goal_panels(worlds))]


def diversity(folder: Path, size: Size) -> list[Made]:
    run = finished(folder / run_name("ant-empty", 10, SIZES[size].seeds[0]))
    ground = None if run is None else world_of(run)
    if run is None or ground is None:
        return []
    visits = evaluation_of(run, size).visits
    caption = f"States that ten agents visit in fresh episodes, a colour each; seed {SIZES[size].seeds[0]}."
    figure = visitation_map(visits.xy, ground, visits.valid)
    return [("diversity", "Figure 8, diversity of ten agents", caption, figure)]


def heatmaps(folder: Path, size: Size) -> list[Made]:
    seed, rows = SIZES[size].seeds[0], {}
    for world, title in TITLES.items():
        runs = [finished(folder / run_name(world, m, seed)) for m in AGENTS]
        maps = [
            HeatMap(_agents(m), _visited(run, size)) for m, run in zip(AGENTS, runs, strict=True) if run is not None
        ]
        if maps:
            rows[f"{title} env"] = (make_world(world), maps)
    if not rows:
        return []
    caption = (
        f"Where one agent, ten and fifty were in fresh episodes, seed {seed}; the colours of a row are the same"
        " logarithmic ones, dark is often."
    )
    return [("heatmaps", "Figure 13, heatmaps of the four environments", caption, heat_grid(rows))]


def _visited(run: Run, size: Size) -> NDArray[np.floating]:
    visits = evaluation_of(run, size).visits
    return visits.xy[visits.valid]


def point_maze(folder: Path, size: Size) -> list[Made]:
    seed = SIZES[size].seeds[0]
    run = finished(folder / run_name("point-maze", 2, seed))
    world = None if run is None else world_of(run)
    if run is None or world is None:
        return []
    visits = evaluation_of(run, size).visits
    nowhere = np.empty((0, 2))
    before = [HeatMap(f"agent {agent + 1}", visits.xy[agent][visits.valid[agent]]) for agent in (0, 1)]
    rows = {"pretraining": (world, [HeatMap("the maze", nowhere), *before])}
    for goal, place in RING_GOALS.items():
        solved = [finished(folder / ring_run(agent, goal, seed)) for agent in (0, 1)]
        after = [
            HeatMap(f"agent {agent + 1}, jump-started", _until_success(one), place)
            for agent, one in enumerate(solved)
            if one is not None
        ]
        rows[f"goal {goal.replace('-', ' ')}"] = (world, [HeatMap("the goal", nowhere, place), *after])
    caption = (
        f"Two agents without reward, and each of them after a jump-start to either goal, until it is reached; seed"
        f" {seed}. The initial state is red, goals are green."
    )
    return [("point-maze", "Figure 4, PointMaze", caption, heat_grid(rows, start="red"))]


def _until_success(run: Run) -> NDArray[np.floating]:
    """(n, 2), where fresh episodes of a jump-start were, until they came to the goal."""
    trajectory = play(run, SUCCESS_EPISODES, SEED, threads=1)
    assert trajectory.success is not None
    counts = trajectory.valid & trajectory.in_first_episode & ~trajectory.success
    return np.asarray(trajectory.xy[counts].cpu())


def _agents(count: int) -> str:
    return "1 Agent" if count == 1 else f"{count} Agents"


DRAWN: Mapping[str, Callable[[Path, Size], list[Made]]] = {
    "entropy-curves": entropy_curves,
    "budget": budget,
    "diversity": diversity,
    "success-rates": success_rates,
    "long-run": long_run,
    "goal-regions": goal_regions,
    "goal-maps": goal_maps,
    "heatmaps": heatmaps,
    "point-maze": point_maze,
}
"""What draws each target; the KL table is a table."""
