"""The figures of each target, from what the runs of a campaign told."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kmyriad.config import even_split
from kmyriad.envs.make import make_world
from kmyriad.figures import save, visitation_map
from kmyriad.figures.seeds import averaged
from kmyriad.reproduction.facts import Runs
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
from kmyriad.reproduction.grids import grid_from_json
from kmyriad.reproduction.page import Picture
from kmyriad.reproduction.plan import (
    AGENTS,
    RING_GOALS,
    SIZES,
    ZONES,
    Method,
    Point,
    Size,
    budget_run,
    goal_run,
    goals_in,
    plan_of,
    region_goals,
    region_run,
    ring_run,
    run_name,
)
from kmyriad.reproduction.verdicts import BUDGETS

NOT_JUDGED = "too small to judge by"
WORDS = {"random": "Random", "single": "1 Agent", "best": "50 Agents"}
"""Of the starts, as the paper's legend has them."""

Made = tuple[str, str, str, Figure]
"""The file's name, the title, the caption and the figure."""


def draw(targets: Sequence[str], runs: Runs, size: Size, method: Method, out: Path) -> list[Picture]:
    """The figures of `targets` of which any run was measured, as PNG and SVG in `out`."""
    pictures = []
    for target in targets:
        names = [job.name for job in plan_of([target], size, method, out).jobs]
        there = sum(name in runs for name in names)
        so_far = "" if there == len(names) else f" So far of {there} of {len(names)} runs."
        for name, title, caption, figure in DRAWN.get(target, _nothing)(runs, size):
            if size == "quick":
                mark_as_too_small(figure, NOT_JUDGED)
            pictures.append(Picture(title, caption + so_far, save(figure, out / name)[0]))
    return pictures


def _nothing(runs: Runs, size: Size) -> list[Made]:
    return []


def entropy_curves(runs: Runs, size: Size) -> list[Made]:
    panels = {
        title: {
            _agents(m): Curve(colour, _rows(runs, [run_name(world, m, seed) for seed in SIZES[size].seeds]))
            for m, colour in AGENT_COLOURS.items()
        }
        for world, title in TITLES.items()
    }
    caption = (
        "Parallel state entropy of one agent, ten and fifty: mean and 95 % interval over seeds, by policy updates."
    )
    return _curves("entropy-curves", "Figure 5, parallel state entropy", caption, panels)


def long_run(runs: Runs, size: Size) -> list[Made]:
    curves = {
        _agents(m): Curve(colour, _rows(runs, [run_name("ant-empty", m, seed, "long") for seed in SIZES[size].seeds]))
        for m, colour in AGENT_COLOURS.items()
    }
    caption = "Five times the updates in the Empty environment: mean and 95 % interval over seeds."
    return _curves("long-run", "Figure 10, parallel state entropy over longer runs", caption, {"Ground": curves})


def budget(runs: Runs, size: Size) -> list[Made]:
    curves = {}
    for amount, colour in zip(BUDGETS, BUDGET_COLOURS, strict=True):
        trajectories = even_split(SIZES[size].replicas * amount // 2, 10)
        names = [budget_run(size, amount, seed) for seed in SIZES[size].seeds]
        curves[f"{trajectories:,}"] = Curve(colour, _rows(runs, names))
    panels = {"Ground": curves}
    caption = "Ten agents with more and more trajectories per update: mean and 95 % interval over seeds, by"
    by_steps = f"{caption} environment steps. Not in the paper."
    return [
        *_curves("budget", "Figure 6, trajectory budget, equal updates", f"{caption} policy updates.", panels),
        *_curves("budget-steps", "Figure 6 at equal steps", by_steps, panels, "env_steps"),
    ]


def success_rates(runs: Runs, size: Size) -> list[Made]:
    made = []
    for x, of in (("iteration", "updates"), ("env_steps", "environment steps, selection and practice counted")):
        panels = {title: _success_curves(runs, size, world, x) for world, title in TITLES.items()}
        caption = (
            f"Success of PPO from three starts over {of}: mean and 95 % interval over seeds, goals beyond 4.5 m"
            " averaged within a seed."
        )
        name = "success-rates" if x == "iteration" else "success-rates-steps"
        title = "Figure 7, PPO success rates" + ("" if x == "iteration" else ", equal steps")
        made += _curves(name, title, caption, panels, x, "success")
    return made


def _success_curves(runs: Runs, size: Size, world: str, x: str) -> dict[str, Curve]:
    count, curves = SIZES[size].goals["outside"], {}
    for start, colour in START_COLOURS.items():
        by_seed = []
        for seed in SIZES[size].seeds:
            of_goals = _rows(runs, [goal_run(world, start, "outside", number, seed) for number in range(count)])
            if len(of_goals) == count:
                by_seed.append(averaged(start, of_goals, x, "success"))
        curves[WORDS[start]] = Curve(colour, by_seed)
    return curves


def goal_regions(runs: Runs, size: Size) -> list[Made]:
    signs = {"inside": "|goal| < 4.5 m (inside)", "outside": "|goal| > 4.5 m (outside)"}
    curves = {
        signs[zone]: Curve(colour, _rows(runs, [region_run(zone, seed) for seed in SIZES[size].region_seeds]))
        for zone, colour in ZONE_COLOURS.items()
    }
    if not any(curve.runs for curve in curves.values()):
        return []
    goals = {zone: [*dict.fromkeys(region_goals(size, zone).values())] for zone in ZONES}
    figure = region_figure(make_world("ant-empty"), goals["outside"], goals["inside"], curves)
    count = len(SIZES[size].region_seeds)
    caption = (
        f"Goals, and success of PPO without pretraining over updates: median and quartiles of {count} runs in each."
    )
    return [("goal-regions", "Figure 11, PPO across goal regions", caption, figure)]


def goal_maps(runs: Runs, size: Size) -> list[Made]:
    worlds = {
        TITLES[world]: (make_world(world), goals_in(world, "outside", SIZES[size].goals["outside"]))
        for world in ("ant-maze", "ant-cave", "ant-pyramid")
    }
    caption = "Initial state and goals of the success rates; a goal counts within the shaded metre around it."
    return [("goal-maps", "Figure 12, goals in Maze, Cave and Pyramid", caption, goal_panels(worlds))]


def diversity(runs: Runs, size: Size) -> list[Made]:
    run = runs.get(run_name("ant-empty", 10, SIZES[size].seeds[0]))
    if run is None:
        return []
    xy = np.array(run.points, np.float64)[:, None] / 100  # of centimetres
    caption = f"States that ten agents visit in fresh episodes, a colour each; seed {SIZES[size].seeds[0]}."
    figure = visitation_map(xy, make_world("ant-empty"))
    return [("diversity", "Figure 8, diversity of ten agents", caption, figure)]


def heatmaps(runs: Runs, size: Size) -> list[Made]:
    seed, rows = SIZES[size].seeds[0], {}
    for world, title in TITLES.items():
        names = {_agents(m): run_name(world, m, seed) for m in AGENTS}
        if any(name in runs for name in names.values()):
            rows[f"{title} env"] = (make_world(world), [_map(runs, name, words) for words, name in names.items()])
    if not rows:
        return []
    caption = (
        f"Where one agent, ten and fifty were in fresh episodes, seed {seed}; the colours of a row are the same"
        " logarithmic ones, dark is often."
    )
    return [("heatmaps", "Figure 13, heatmaps of the four environments", caption, heat_grid(rows))]


def point_maze(runs: Runs, size: Size) -> list[Made]:
    seed, world = SIZES[size].seeds[0], make_world("point-maze")
    run = runs.get(run_name("point-maze", 2, seed))
    if run is None:
        return []
    before = [HeatMap(f"agent {agent + 1}", grid_from_json(grid)) for agent, grid in enumerate(run.maps)]
    rows = {"pretraining": (world, [HeatMap("the maze"), *before])}
    for goal, place in RING_GOALS.items():
        names = {f"agent {agent + 1}, jump-started": ring_run(agent, goal, seed) for agent in (0, 1)}
        after = [_map(runs, name, words, place) for words, name in names.items()]
        rows[f"goal {goal.replace('-', ' ')}"] = (world, [HeatMap("the goal", goal=place), *after])
    caption = (
        f"Two agents without reward, and each of them after a jump-start to either goal, until it is reached; seed"
        f" {seed}. The initial state is red, goals are green."
    )
    return [("point-maze", "Figure 4, PointMaze", caption, heat_grid(rows, start="red"))]


def _map(runs: Runs, name: str, words: str, goal: Point | None = None) -> HeatMap:
    """Where a run's agents went; the ground alone where it was not measured."""
    if name not in runs:
        return HeatMap(f"{words}, not run", goal=goal)
    return HeatMap(words, grid_from_json(runs[name].maps[0]), goal)


def _curves(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, Curve]],
    x: str = "iteration",
    y: str = "entropy",
) -> list[Made]:
    """One figure; none where no run of it was measured."""
    is_empty = not any(curve.runs for curves in panels.values() for curve in curves.values())
    return [] if is_empty else [(name, title, caption, curve_panels(panels, x, y))]


def _rows(runs: Runs, names: Sequence[str]) -> list[list[dict[str, float]]]:
    """Learning curves of those runs that were measured."""
    return [runs[name].rows for name in names if name in runs]


def _agents(count: int) -> str:
    return "1 Agent" if count == 1 else f"{count} Agents"


DRAWN: Mapping[str, Callable[[Runs, Size], list[Made]]] = {
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
