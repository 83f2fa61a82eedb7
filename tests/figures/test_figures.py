import itertools
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.text import Text
from PIL import Image
from scipy import stats

from kmyriad import UsageError, figures
from kmyriad.envs.ant import ant_world
from kmyriad.envs.plane import Feature, plane_of_features
from kmyriad.envs.point_maze import point_maze_world
from kmyriad.figures import colours, ground
from kmyriad.figures.seeds import averaged

STEPS = np.arange(1, 21) * 25_000
WORLDS = {name: ant_world(name) for name in ("empty", "maze", "pyramid", "cave")} | {"point": point_maze_world()}


def rows(values, x="env_steps", y="entropy", steps=STEPS):
    return [{x: int(step), y: float(value)} for step, value in zip(steps, values, strict=False)]


def group(count, level=4.0, y="entropy", x="env_steps", steps=STEPS, seed=0):
    rng = np.random.default_rng(seed)
    return [rows(level + 0.1 * rng.standard_normal(len(steps)), x, y, steps) for _ in range(count)]


def visits(agents, world, spread=1.5, seed=0):
    """(agents, 4, 50, 2), random walks off the start."""
    rng = np.random.default_rng(seed)
    walk = 0.1 * spread * rng.standard_normal((agents, 4, 50, 2)).cumsum(axis=2)
    return (walk + world.terrain.start).astype(np.float32)


def lines(figure):
    return figure.axes[0].get_lines()


def panels(figure):
    """The maps, without the axes of a colour bar."""
    return [axes for axes in figure.axes if axes.get_label() != "colour bar"]


# Curves


@pytest.mark.parametrize("make", [figures.entropy_curves, figures.success_curves, figures.entropy_by_budget])
def test_a_curve_is_the_mean_and_its_band_the_t_interval(make):
    x, y = (
        {"entropy_by_budget": "episodes"}.get(make.__name__, "env_steps"),
        "success" if "succ" in str(make) else "entropy",
    )
    four = group(4, level=0.5, x=x, y=y)
    figure = make({"four": four})
    values = np.array([[row[y] for row in one] for one in four])
    (line,) = lines(figure)
    np.testing.assert_array_equal(line.get_xdata(), STEPS)
    np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
    low, high = stats.t.interval(0.95, 3, values.mean(axis=0), stats.sem(values, axis=0))
    (band,) = figure.axes[0].collections
    corners = band.get_paths()[0].vertices
    for step, bottom, top in zip(STEPS, low, high, strict=True):
        at_step = corners[corners[:, 0] == step, 1]
        np.testing.assert_allclose([at_step.min(), at_step.max()], [bottom, top], rtol=1e-4)


def test_one_seed_is_a_line_without_a_band():
    figure = figures.entropy_curves({"one": group(1)})
    assert len(lines(figure)) == 1
    assert not figure.axes[0].collections


def test_one_row_is_a_mark_with_its_interval():
    figure = figures.entropy_curves({"a": group(3, steps=STEPS[:1]), "b": group(1, steps=STEPS[:1])})
    assert [line.get_marker() for line in lines(figure)[:1]] == ["o"]
    (bars,) = figure.axes[0].containers
    assert bars.has_yerr
    np.testing.assert_array_equal(figure.axes[0].get_xticks(), STEPS[:1])


def test_seeds_with_other_steps_are_interpolated_as_far_as_all_have_come():
    long = rows(STEPS / 1e5)
    short = rows([1.0, 3.0], steps=[50_000, 100_000])
    (line,) = lines(figures.entropy_curves({"both": [long, short]}))
    np.testing.assert_array_equal(line.get_xdata(), [50_000, 75_000, 100_000])
    np.testing.assert_allclose(line.get_ydata(), [(0.5 + 1) / 2, (0.75 + 2) / 2, (1 + 3) / 2])


def test_rows_in_any_order_with_gaps_and_repeats():
    measured = [(30, 3.0), (10, None), (20, float("nan")), (40, 4.0), (30, 5.0), (50, float("inf"))]
    (line,) = lines(figures.success_curves({"a": [[{"env_steps": x, "success": y and y / 10} for x, y in measured]]}))
    np.testing.assert_array_equal(line.get_xdata(), [30, 40])
    np.testing.assert_allclose(line.get_ydata(), [0.4, 0.4])


def test_groups_and_seeds_without_data_are_told_in_the_legend():
    nothing = [{"env_steps": 1, "entropy": None}]
    figure = figures.entropy_curves({"whole": group(2), "half": [*group(2), nothing], "none": [nothing], "empty": []})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "whole",
        "half (2 of 3 seeds)",
        "none (no data)",
        "empty (no data)",
    ]
    assert [to_hex(line.get_color()) for line in lines(figure)] == [
        to_hex(figures.agent_colour(index, 4)) for index in (0, 1)
    ]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "none of 0 groups"),
        ({"a": [], "b": [[]]}, "none of 2 groups"),
        ({"a": [[{"env_steps": 1, "entropi": 2}]]}, "did you mean 'entropi'"),
        ({"a": [[{"env_steps": 1, "entropy": [2, 3]}]]}, "must be numbers"),
        ({"a": [rows([1], steps=[1]), rows([1], steps=[2])]}, "share no stretch"),
    ],
)
def test_what_cannot_be_drawn_is_told(groups, message):
    with pytest.raises(UsageError, match=message):
        figures.entropy_curves(groups)


def test_success_is_a_rate():
    assert figures.success_curves({"a": group(3, 0.9, "success")}).axes[0].get_ylim() == (-0.03, 1.03)
    with pytest.raises(UsageError, match="between 0 and 1"):
        figures.success_curves({"a": group(3, 90, "success")})


def test_axes_have_names_and_units():
    figure = figures.entropy_curves({"a": group(1, steps=STEPS * 100)})
    assert figure.axes[0].get_xlabel() == "environment steps (millions)"
    assert figure.axes[0].get_ylabel() == "state entropy (nats)"
    figure = figures.entropy_curves({"a": group(1, x="iteration", steps=np.arange(1, 9))}, x="iteration")
    assert figure.axes[0].get_xlabel() == "updates"


def test_budgets_far_apart_are_on_a_logarithmic_axis_with_the_budgets_as_ticks():
    budgets = np.array([500, 1000, 2000, 4000])
    axes = figures.entropy_by_budget({"a": group(4, x="episodes", steps=budgets)}).axes[0]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["500", "1000", "2000", "4000"]
    axes = figures.entropy_by_budget({"a": group(4, x="episodes", steps=budgets[2:])}).axes[0]
    assert axes.get_xscale() == "linear"


def test_learning_curves_have_a_line_per_seed_and_the_mean_on_a_logarithmic_axis():
    worlds = {"Ant Maze": {"1 agent": group(3), "10 agents": group(2, 2.0)}, "Ant Cave": {"10 agents": group(1)}}
    figure = figures.learning_curves(worlds)
    maze, cave = figure.axes
    assert [axes.get_title() for axes in (maze, cave)] == ["Ant Maze", "Ant Cave"]
    assert {axes.get_xscale() for axes in (maze, cave)} == {"log"}
    thin = [line for line in maze.get_lines() if line.get_linewidth() < 1]
    means = [line for line in maze.get_lines() if line.get_linewidth() > 1]
    assert (len(thin), len(means), len(cave.get_lines())) == (5, 2, 1)
    values = np.array([[row["entropy"] for row in one] for one in worlds["Ant Maze"]["1 agent"]])
    np.testing.assert_allclose(means[0].get_ydata(), values.mean(axis=0))
    for line, one in zip(thin, values, strict=False):
        np.testing.assert_allclose(line.get_ydata(), one)
    assert cave.get_lines()[0].get_color() == means[1].get_color()  # the same group in another world
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1 agent", "10 agents"]
    figure.draw_without_rendering()
    assert {"50k", "100k", "200k", "500k"} <= {text.get_text() for text in maze.get_xticklabels()}


def test_what_was_spent_before_learning_is_shaded_under_the_curves():
    worlds = {"Ant Maze": {"best": group(2, 0.5, "success"), "random": group(2, 0.4, "success")}}
    spent = {"Ant Maze": {"best": (8_000.0, 20_000.0), "random": (0.0, 12_000.0)}}
    figure = figures.learning_curves(worlds, "success", spent=spent)
    (axes,) = figure.axes
    spans = [
        (*sorted(one.get_paths()[0].vertices[:, 0])[:: len(one.get_paths()[0].vertices) - 1],)
        for one in axes.collections
    ]
    left = axes.get_xlim()[0]
    assert spans == [(left, 8_000), (8_000, 20_000), (left, 12_000)]
    assert all(one.get_paths()[0].vertices[:, 1].max() < 0 for one in axes.collections)
    assert axes.get_ylim()[0] < -0.1
    assert [text.get_text() for text in figure.legends[0].get_texts()][2:] == [
        "selecting an agent",
        "only the critic learns",
    ]


def test_learning_curves_of_odd_data():
    nothing = [{"env_steps": 1, "entropy": None}]
    figure = figures.learning_curves({"a": {"x": [nothing], "y": group(1)}, "b": {"x": []}})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x (no data)", "y"]
    at_zero = [{"env_steps": 0, "entropy": 1.0}, {"env_steps": 10, "entropy": 2.0}]
    (line,) = figures.learning_curves({"a": {"x": [at_zero]}}).axes[0].get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [10])
    for worlds in ({}, {"a": {}}, {"a": {"x": [nothing]}}):
        with pytest.raises(UsageError, match="there is nothing to draw"):
            figures.learning_curves(worlds)
    with pytest.raises(UsageError, match="between 0 and 1"):
        figures.learning_curves({"a": {"x": group(3, 90, "success")}}, "success")


def test_runs_of_one_seed_are_averaged_as_far_as_all_have_come():
    rows_of_two = averaged(
        "a", [rows([1, 3, 5], steps=[10, 20, 30]), rows([3, 5], steps=[10, 20])], "env_steps", "entropy"
    )
    assert rows_of_two == [{"env_steps": 10, "entropy": 2}, {"env_steps": 20, "entropy": 4}]


# Maps


@pytest.mark.parametrize(("agents", "columns"), [(1, 1), (2, 2), (10, 5), (50, 10)])
def test_heat_maps_one_per_agent_with_shared_extent_and_colours(agents, columns):
    figure = figures.agent_heatmaps(visits(agents, WORLDS["maze"]), WORLDS["maze"])
    maps = panels(figure)
    assert len(maps) == agents
    assert len({round(axes.get_position().x0, 6) for axes in maps}) == columns
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in maps} == {((-22, 22), (-22, 22))}
    assert len({axes.images[-1].norm for axes in maps}) == 1
    assert {"x (m)", "y (m)"} <= {text.get_text() for text in figure.texts}
    for agent, axes in enumerate(maps):
        assert axes.get_title() == (f"agent {agent}" if agents <= 10 else str(agent))
        assert to_hex(axes.spines["left"].get_edgecolor()) == figures.agent_colour(agent, agents).lower()


def test_a_heat_map_is_a_density():
    world = WORLDS["empty"]
    xy = visits(2, world, spread=10)
    valid = np.ones(xy.shape[:3], bool)
    valid[1, :, 25:] = False
    xy[1, :, 25:] = 1e6  # a simulation that blew up
    for agent, axes in enumerate(panels(figures.agent_heatmaps(xy, world, valid))):
        density = axes.images[-1].get_array().filled(0)
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        cell = (right - left) * (high - low) / density.size
        assert density.sum() * cell == pytest.approx(1)
        for x, y in xy[agent][valid[agent]]:
            row = int((y - low) / (high - low) * density.shape[0])
            column = int((x - left) / (right - left) * density.shape[1])
            assert density[row, column] > 0


def test_no_cell_of_a_heat_map_lies_across_a_wall():
    for name in ("maze", "point"):
        world = WORLDS[name]
        (axes,) = panels(figures.agent_heatmaps(visits(1, world, 0.3), world))
        cells = axes.images[-1].get_array().shape[1] / world.terrain.walls.cells.shape[1]
        assert cells == int(cells)


def test_an_agent_without_valid_states_has_an_empty_map():
    xy = visits(2, WORLDS["empty"])
    valid = np.ones(xy.shape[:3], bool)
    valid[1] = False
    full, empty = panels(figures.agent_heatmaps(xy, WORLDS["empty"], valid))
    assert full.images[-1].get_array().count() > 0
    assert empty.images[-1].get_array().count() == 0


def test_one_state_of_one_agent_comes_out():
    """One cell of 1 m^2: the density 1 is both the lowest and the highest."""
    (axes,) = panels(figures.agent_heatmaps(np.zeros((1, 1, 1, 2)), WORLDS["empty"], extent=(-20, 20, -20, 20)))
    assert axes.images[-1].get_array().compressed().tolist() == [1]
    assert axes.images[-1].norm.vmin == pytest.approx(0.1)
    figures.visitation_map(np.zeros((1, 1, 1, 2)), WORLDS["empty"])


def test_the_visitation_map_has_every_agent_in_its_colour():
    world = WORLDS["point"]
    xy = visits(10, world, 0.3)
    figure = figures.visitation_map(xy, world)
    (axes,) = panels(figure)
    points = max(axes.collections, key=lambda collection: len(collection.get_offsets()))
    drawn = {
        (*np.float32(place).tolist(), to_hex(colour))
        for place, colour in zip(points.get_offsets(), points.get_facecolors(), strict=True)
    }
    asked = {
        (*place.tolist(), figures.agent_colour(agent, 10).lower())
        for agent in range(10)
        for place in xy[agent].reshape(-1, 2)
    }
    assert drawn == asked
    legend = figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == [str(agent) for agent in range(10)]
    assert [to_hex(handle.get_color()) for handle in legend.legend_handles] == [
        figures.agent_colour(agent, 10).lower() for agent in range(10)
    ]


def test_the_visitation_map_of_many_states_is_a_sample():
    xy = np.random.default_rng(0).normal(size=(3, 100, 150, 2)).astype(np.float32)
    (axes,) = panels(figures.visitation_map(xy, WORLDS["empty"]))
    assert max(len(collection.get_offsets()) for collection in axes.collections) == 30_000


@pytest.mark.parametrize("make", [figures.agent_heatmaps, figures.visitation_map])
@pytest.mark.parametrize(
    ("xy", "settings", "message"),
    [
        (None, {}, "no x and y"),
        (np.zeros((2, 3, 2)), {}, r"got \(2, 3, 2\)"),
        (np.zeros((0, 1, 1, 2)), {}, "at least one agent"),
        (np.zeros((2, 1, 1, 2)), {"valid": np.zeros((2, 1, 1), bool)}, "no state is valid"),
        (np.zeros((2, 1, 1, 2)), {"valid": np.ones((2, 1), bool)}, "valid must be"),
        (np.full((2, 1, 1, 2), np.nan), {}, "no state is valid"),
        (np.zeros((2, 1, 1, 2)), {"extent": (1, 0, 0, 1)}, "extent must be"),
        (np.zeros((2, 1, 1, 2)), {"width": 0.5}, "width"),
    ],
)
def test_maps_that_cannot_be_drawn_are_told(make, xy, settings, message):
    with pytest.raises(UsageError, match=message):
        make(xy, WORLDS["empty"], **settings)


def test_a_heat_map_of_an_extent_nobody_was_in_is_told():
    with pytest.raises(UsageError, match="within the extent"):
        figures.agent_heatmaps(visits(1, WORLDS["empty"]), WORLDS["empty"], extent=(100, 110, 100, 110))


@pytest.mark.parametrize("name", WORLDS)
def test_the_terrain_beneath_is_the_worlds(name):
    """Walls where the terrain says so; else greys that follow the height."""
    world = WORLDS[name]
    extent = (-10.0, 10.0, -6.0, 14.0)
    axes = Figure().add_subplot()
    figures.draw_terrain(axes, world, extent)
    assert (*axes.get_xlim(), *axes.get_ylim()) == extent
    image = axes.images[0]
    assert tuple(image.get_extent()) == extent
    shade = np.asarray(image.get_array())[:, :, 0]
    (walls,) = axes.collections
    x, y = np.meshgrid(np.linspace(-9.9, 9.9, 50), np.linspace(-5.9, 13.9, 50))
    inside = np.zeros(x.shape, bool)
    for path in walls.get_paths():
        low, high = path.vertices.min(axis=0), path.vertices.max(axis=0)
        inside |= (x > low[0]) & (x < high[0]) & (y > low[1]) & (y < high[1])
    on_map = np.ones(x.shape, bool)
    if world.terrain.walls is not None:
        on_map = (abs(x) < world.terrain.walls.extent[0]) & (abs(y) < world.terrain.walls.extent[1])
    np.testing.assert_array_equal(inside[on_map], world.terrain.is_wall(x, y)[on_map])
    rows_, columns = ((y + 6) / 20 * len(shade)).astype(int), ((x + 10) / 20 * len(shade)).astype(int)
    heights = np.where(world.terrain.is_wall(x, y), 0, world.terrain.height(x, y))
    flat = np.median(shade[rows_, columns][heights == 0])
    assert (shade[rows_, columns][heights < -0.1] < flat).all()
    if name == "pyramid":
        assert np.median(shade[rows_, columns][heights > 0.3]) > flat
    if name == "cave":
        assert (heights < -0.1).any()


def test_the_extent_is_the_maze_or_holds_start_and_points():
    assert ground.fit_extent(WORLDS["point"], np.zeros((0, 2))) == (-3.5, 3.5, -3.5, 3.5)
    left, right, low, high = ground.fit_extent(WORLDS["empty"], np.array([[30.0, 5], [10, -5]]))
    assert left < 0
    assert right > 30
    assert low < -5
    assert high > 5
    assert right - left == pytest.approx(high - low)


def test_goals_ring_and_start():
    world = WORLDS["cave"]
    goals, rates = np.array([[8.0, 6, 0], [-3, 2, 0], [0, 9, 0]]), [1.0, np.nan, 0.25]
    figure = figures.goal_map(goals, world, rates)
    (axes,) = panels(figure)
    (ring,) = [patch for patch in axes.patches if isinstance(patch, Circle)]
    assert (ring.center, ring.radius) == ((0, 0), 4.5)
    known, unknown = [marks for marks in axes.collections if marks.get_label() in ("goal", "not measured")]
    np.testing.assert_array_equal(known.get_offsets(), goals[[0, 2], :2])
    np.testing.assert_array_equal(known.get_array(), [1, 0.25])
    assert known.get_clim() == (0, 1)
    np.testing.assert_array_equal(unknown.get_offsets(), goals[[1], :2])
    assert len(unknown.get_facecolors()) == 0
    (start,) = [marks for marks in axes.collections if marks.get_label() == "start"]
    np.testing.assert_array_equal(start.get_offsets(), [world.terrain.start])
    assert axes.get_xlim()[0] < -4.5
    assert axes.get_xlim()[1] > 8


def test_goals_without_success_or_ring():
    figure = figures.goal_map([[2, 2]], WORLDS["point"], radius=None)
    assert len(figure.axes) == 1
    assert not [patch for patch in figure.axes[0].patches if isinstance(patch, Circle)]
    figures.goal_map([[2, 2]], WORLDS["point"], [np.nan])


@pytest.mark.parametrize(
    ("goals", "success", "message"),
    [
        (np.zeros((0, 2)), None, "at least one goal"),
        ([1.0, 2.0], None, "shape"),
        ([[np.nan, 1.0]], None, "finite"),
        ([[1.0, 1.0]], [0.5, 0.5], "one rate per goal"),
        ([[1.0, 1.0]], [50.0], "between 0 and 1"),
    ],
)
def test_goals_that_cannot_be_drawn_are_told(goals, success, message):
    with pytest.raises(UsageError, match=message):
        figures.goal_map(goals, WORLDS["empty"], success)


# Divergence


def test_the_kl_matrix_shows_and_writes_every_pair():
    kl = np.array([[0, 1.234, np.nan], [-0.05, 0, 12.34], [123.4, 0.5, 0]])
    axes = figures.kl_matrix(kl).axes[0]
    shown = axes.images[0].get_array()
    off_diagonal = ~np.eye(3, dtype=bool) & np.isfinite(kl)
    np.testing.assert_array_equal(shown[off_diagonal], kl[off_diagonal])
    np.testing.assert_array_equal(np.ma.getmaskarray(shown), ~off_diagonal)
    written = {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
    assert written == {(1, 0): "1.23", (0, 1): "-0.05", (2, 1): "12.3", (0, 2): "123", (1, 2): "0.50"}
    for strip in axes.collections:
        assert [to_hex(colour) for colour in strip.get_facecolors()] == [
            figures.agent_colour(agent, 3).lower() for agent in range(3)
        ]


@pytest.mark.parametrize(("agents", "written"), [(1, 0), (12, 132), (13, 0)])
def test_kl_numbers_up_to_twelve_agents(agents, written):
    assert len(figures.kl_matrix(np.ones((agents, agents))).axes[0].texts) == written


@pytest.mark.parametrize("kl", [np.zeros((2, 3)), np.zeros(4), np.zeros((0, 0))])
def test_kl_must_be_square(kl):
    with pytest.raises(UsageError, match="square"):
        figures.kl_matrix(kl)


# Colours


def test_colours_differ_for_every_eye_and_do_not_depend_on_the_count():
    assert [figures.agent_colour(agent, 8) for agent in range(8)] == list(colours.OKABE_ITO)
    assert figures.agent_colour(7, 8) == figures.agent_colour(7, 50)
    assert figures.agent_colour(64, 65) == figures.agent_colour(0, 65)
    rgb = np.array([to_rgb(figures.agent_colour(agent, 50)) for agent in range(50)])
    for eye in colours.EYES:
        seen = colours.seen_by(rgb, eye)
        for count, least in ((10, 0.07), (50, 0.04)):
            pairs = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen[:count], 2)]
            assert min(pairs) > least
    for agent in (-1, 3):
        with pytest.raises(UsageError, match="between 0 and 2"):
            figures.agent_colour(agent, 3)


# Looks


def shown_texts(figure):
    """(text, box in pixels) of all that is written."""
    figure.draw_without_rendering()
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            outside = [tick for tick in axis.get_major_ticks() if not low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            hidden |= {label for tick in outside for label in (tick.label1, tick.label2)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text not in hidden]


def samples(width):
    rng = np.random.default_rng(0)
    three = {"1 agent": group(4, 0.5), "10 agents": group(4, 0.3), "a group with a long name " * 3: group(4, 0.2)}
    budgets = {"a": group(3, x="episodes", steps=[500, 1000, 2000, 3000, 4000])}
    yield figures.entropy_curves(three, width=width)
    yield figures.success_curves(three, y="entropy", width=width)
    yield figures.entropy_by_budget(budgets, width=width)
    for names in (
        ["Ant Maze"],
        ["Ant Empty", "Ant Maze", "Ant Pyramid", "Ant Cave", "Point Maze (decimation 5, map u)"],
    ):
        yield figures.learning_curves(dict.fromkeys(names, three), width=width)
        few = {"best agent": group(4, 0.5, "success", steps=STEPS * 4), "random start": group(4, 0.6, "success")}
        spent = {"Ant Maze": {"best agent": (7e3, 2e4), "random start": (1e3, 1e4)}}
        yield figures.learning_curves(dict.fromkeys(names, few), "success", spent=spent, width=width)
    for agents, world in ((2, "point"), (10, "empty"), (50, "maze")):
        if agents == 50 and width == figures.FULL:
            continue  # slow, and narrower is harder
        xy = visits(agents, WORLDS[world])
        yield figures.agent_heatmaps(xy, WORLDS[world], width=width)
        yield figures.visitation_map(xy, WORLDS[world], width=width)
    for agents in (10, 12, 50):
        yield figures.kl_matrix(rng.uniform(-1, 9, (agents, agents)), width=width)
    yield figures.goal_map(rng.normal(size=(5, 2)), WORLDS["cave"], [0, 1, 0.5, np.nan, 1], width=width)
    yield figures.goal_map(rng.normal(size=(5, 2)), WORLDS["pyramid"], width=width)


@pytest.mark.parametrize("width", [figures.COLUMN, figures.FULL])
def test_no_text_overlaps_another_or_leaves_the_figure(width):
    for figure in samples(width):
        assert figure.get_figwidth() == width
        right, top = figure.bbox.max
        texts = shown_texts(figure)
        for text, box in texts:
            assert box.x0 >= -1, text
            assert box.y0 >= -1, text
            assert box.x1 <= right + 1, text
            assert box.y1 <= top + 1, text
        for (text, box), (other, its_box) in itertools.combinations(texts, 2):
            overlap_x = min(box.x1, its_box.x1) - max(box.x0, its_box.x0)
            overlap_y = min(box.y1, its_box.y1) - max(box.y0, its_box.y0)
            assert min(overlap_x, overlap_y) < 1, f"{text!r} and {other!r} overlap"


def test_metre_ticks_are_round_and_inside():
    rng = np.random.default_rng(0)
    for _ in range(300):
        low, size = rng.uniform(-50, 50), 10 ** rng.uniform(-1, 2)
        inches = rng.uniform(0.2, 6)
        ticks = ground.metre_ticks(low, low + size, inches, inset=0.1 if inches > 1 else 0)
        assert all(low <= tick <= low + size for tick in ticks)
        assert len(ticks) >= 2 or inches < 0.5
        assert np.all(np.diff(ticks) * inches / size > 0.19) or inches < 0.5


def test_saving_writes_the_same_png_and_svg_twice(tmp_path):
    groups = {"a": group(3)}
    png, svg = figures.save(figures.entropy_curves(groups), tmp_path / "deep" / "run-0.5")
    assert (png.name, svg.name) == ("run-0.5.png", "run-0.5.svg")
    with Image.open(png) as image:
        assert image.size[0] == pytest.approx(figures.COLUMN * 300, abs=1)
        assert len(image.convert("RGB").getcolors(1_000_000)) > 20
    assert svg.read_bytes().startswith(b"<?xml")
    assert png.stat().st_size > 5_000
    assert svg.stat().st_size > 5_000
    again = figures.save(figures.entropy_curves(groups), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the figure"):
        figures.save(figures.kl_matrix([[0, 1], [1, 0]]), tmp_path / "file" / "kl")


def test_pyplot_is_left_alone():
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


# Whole episodes, coverage


def straight(headings, world, episodes=3, steps=40):
    """(agents, episodes, steps, 2), straight ways from the start along headings (degrees)."""
    ways = np.array([[np.cos(a), np.sin(a)] for a in np.deg2rad(headings)])[:, None, None]
    paths = 0.2 * np.arange(1, steps + 1)[:, None] * ways
    return np.broadcast_to(paths + world.terrain.start, (len(headings), episodes, steps, 2)).astype(np.float32)


def test_episodes_are_lines_from_the_start_in_the_colour_of_their_heading():
    world = WORLDS["empty"]
    figure = figures.episode_paths(straight([0, 90, 200], world), world)
    drawn = [one for one in figure.axes[0].collections if hasattr(one, "get_segments")]
    assert [to_hex(one.get_color()[0]) for one in drawn] == [
        figures.heading_colour(np.deg2rad(angle)) for angle in (0, 90, 200)
    ]
    for one in drawn:
        assert len(one.get_segments()) == 3
        np.testing.assert_allclose(one.get_segments()[0][0], world.terrain.start)
    assert [axes.get_label() for axes in figure.axes if axes.get_label() == "colour wheel"]


def test_a_line_ends_where_its_episode_does():
    world = WORLDS["maze"]
    valid = np.ones((1, 2, 40), bool)
    valid[0, 0, 10:] = False
    valid[0, 1] = False
    figure = figures.episode_paths(straight([0], world, episodes=2), world, valid)
    (drawn,) = (one for one in figure.axes[0].collections if hasattr(one, "get_segments"))
    assert [len(segment) for segment in drawn.get_segments()] == [11]


def test_a_single_feature_is_drawn_over_time():
    plane = plane_of_features([Feature("x", "m", 1.0, 1.0)], np.array([0.5]))
    walk = np.random.default_rng(0).standard_normal((2, 3, 40)).cumsum(axis=2)
    walk[1] -= 20
    xy = np.stack([walk, np.zeros_like(walk)], axis=-1).astype(np.float32)
    for draw in (figures.agent_heatmaps, figures.visitation_map, figures.episode_paths):
        figure = draw(xy, plane)
        axes = panels(figure)[0]
        assert {"x (m)", "step"} <= {text.get_text() for text in figure.texts}
        low, high = axes.get_ylim()
        assert low < 1 < 40 < high < 60
        left, right = axes.get_xlim()
        assert left < walk.min() < walk.max() < right
    drawn = [one for one in figure.axes[0].collections if hasattr(one, "get_segments")]
    np.testing.assert_allclose(drawn[0].get_segments()[0][:, 1], range(41))
    ahead, behind = (figures.heading_colour(angle) for angle in (0.0, np.pi))
    assert to_hex(drawn[1].get_color()[0]) == behind
    assert to_hex(drawn[0].get_color()[0]) == (ahead if walk[0, :, -1].mean() > 0.5 else behind)


def test_headings_have_colours_of_their_own_that_are_equally_light():
    chosen = [figures.heading_colour(angle) for angle in np.linspace(-np.pi, np.pi, 12, endpoint=False)]
    assert len(set(chosen)) == 12
    lightness = colours.seen_by(np.array([to_rgb(one) for one in chosen]), "normal")[:, 0]
    assert np.ptp(lightness) < 0.05
    assert figures.heading_colour(0.5) == figures.heading_colour(0.5 + 2 * np.pi)


def test_bars_are_means_with_their_interval_and_a_dot_per_seed():
    figure = figures.coverage_bars({"one agent": [10.0, 20.0, 30.0], "ten agents": [40.0]})
    axes = figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == [20.0, 40.0]
    dots = [one.get_offsets() for one in axes.collections if not hasattr(one, "get_segments")]
    assert sorted(point[1] for cloud in dots for point in cloud) == [10.0, 20.0, 30.0, 40.0]
    margin = stats.t.ppf(0.975, 2) * 10 / np.sqrt(3)
    whiskers = [one.get_segments() for one in axes.collections if hasattr(one, "get_segments")]
    assert any(np.allclose([end[1] for end in part[0]], [20 - margin, 20 + margin]) for part in whiskers if part)
    for nothing in ({}, {"one": []}):
        with pytest.raises(UsageError, match="nothing to draw"):
            figures.coverage_bars(nothing)
