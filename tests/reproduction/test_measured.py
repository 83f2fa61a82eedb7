"""What runs told: small files that only the run that was asked for can have made, and facts from them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import kmyriad
from kmyriad.config import with_settings
from kmyriad.reproduction.facts import facts_of
from kmyriad.reproduction.grids import WIDEST, grid_from_json, grid_of, on_one_scale
from kmyriad.reproduction.measured import Measured, measured_path, read_all, read_measured, write_measured
from kmyriad.reproduction.measures import MOST_ROWS, POINTS, curve_of
from kmyriad.reproduction.plan import SIZES, goal_run, plan_of, ring_run, run_name

CURVE = {"iteration": [1, 2], "env_steps": [100, 200], "entropy": [0.5, 1.5]}


@pytest.fixture
def job(tmp_path):
    return plan_of(["diversity"], "quick", "paper", tmp_path / "runs").jobs[0]


def test_what_a_run_told_comes_back(tmp_path, job):
    told = Measured({"entropy": 1 / 3}, CURVE, [{"side": 0.25}], [[[1, 2]]], ["0123"])
    write_measured(tmp_path / "runs", job, "quick", "paper", told)
    assert read_measured(tmp_path / "runs", job, "quick", "paper") == told
    assert read_all(tmp_path / "runs", [job, replace(job, name="another")], "quick", "paper") == {job.name: told}
    assert told.rows[1] == {"iteration": 2, "env_steps": 200, "entropy": 1.5}
    assert not (tmp_path / "runs").exists()


def test_what_is_of_another_run_is_refused_in_a_sentence(tmp_path, job):
    folder = tmp_path / "runs"
    write_measured(folder, job, "quick", "paper", Measured({}, CURVE))
    others = {
        "seed = 0, and 7": replace(job, config=with_settings(job.config, {"seed": 7})),
        "learning_rate = 0.0002, and 0.5 is asked for": replace(
            job, config=with_settings(job.config, {"learning_rate": 0.5})
        ),
        "total_steps = .*, and 1": replace(job, config=with_settings(job.config, {"total_steps": 1})),
    }
    for words, other in others.items():
        with pytest.raises(kmyriad.UsageError, match=words):
            read_measured(folder, other, "quick", "paper")
    for size, method in (("desk", "paper"), ("quick", "ours")):
        with pytest.raises(kmyriad.UsageError, match=r"was measured with (size = 'quick'|method = 'paper')"):
            read_measured(folder, job, size, method)
    same = replace(job, config=with_settings(job.config, {"threads": 2, "checkpoint_every": 1}))
    assert read_measured(folder, same, "quick", "paper") is not None  # that changes no number
    path = measured_path(folder, job.name)
    content = json.loads(path.read_text())
    for broken, words in (
        (content | {"format": 0}, "format = 0, and 1 is asked for"),
        ({name: part for name, part in content.items() if name != "curve"}, "is damaged: 'curve'"),
        (content | {"settings": {}}, "is damaged"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(kmyriad.UsageError, match=words):
            read_measured(folder, job, "quick", "paper")


def test_curves_are_thinned_to_what_can_be_seen():
    rows = [{"iteration": n, "env_steps": 10 * n, "success": None if n < 5 else n / 1000} for n in range(1, 1001)]
    curve = curve_of(rows, "success")
    assert 0.8 * MOST_ROWS < len(curve["success"]) <= MOST_ROWS
    assert (curve["iteration"][-1], curve["env_steps"][-1], curve["success"][-1]) == (1000, 10_000, 1.0)
    assert {*np.diff(curve["iteration"])} == {5}
    assert len(curve_of(rows[:204], "success")["iteration"]) == MOST_ROWS
    assert curve_of(rows[:3], "success")["iteration"] == []


def test_the_largest_file_is_small(tmp_path, job):
    """A map that is full, a whole learning curve and points of ten agents."""
    rng = np.random.default_rng(0)
    grid = grid_of(rng.normal(size=(60_000, 2)) * 2, kmyriad.make_world("ant-empty"))
    curve = {"iteration": [*range(200)], "env_steps": [20_000 * n for n in range(200)]}
    curve["entropy"] = rng.normal(size=200).round(5).tolist()
    points = rng.integers(-999, 999, size=(10, POINTS // 10, 2)).tolist()
    write_measured(tmp_path / "runs", job, "quick", "paper", Measured({}, curve, [grid.as_json()], points))
    assert measured_path(tmp_path / "runs", job.name).stat().st_size < 32_000


@pytest.mark.parametrize("world", ["ant-empty", "ant-maze", "point-maze"])
def test_grids_count_states_in_cells_that_fit(world):
    made, rng = kmyriad.make_world(world), np.random.default_rng(0)
    points = rng.normal(size=(5000, 2))
    points[0] = 900.0  # one strayed
    fine, coarse = grid_of(points, made), grid_of(8 * points, made)
    assert grid_from_json(json.loads(json.dumps(fine.as_json()))).counts.tolist() == fine.counts.tolist()
    for grid in (fine, coarse):
        assert max(grid.counts.shape) <= WIDEST
        assert grid.states == 5000 > grid.counts.sum() > 4900
        x, *_ = grid.extent
        assert x / grid.side == round(x / grid.side)
    walls = made.terrain.walls
    if walls is not None:
        assert (walls.extent[0] / fine.side) % 1 == 0  # the faces of walls are borders of cells
    assert coarse.side > fine.side
    joined = on_one_scale([fine, coarse])
    assert [grid.side for grid in joined] == [coarse.side, coarse.side]
    assert [grid.counts.sum() for grid in joined] == [fine.counts.sum(), coarse.counts.sum()]
    inside = np.floor(points / coarse.side).astype(int) == (joined[0].corner[0] + 3, joined[0].corner[1] + 1)
    assert joined[0].counts[1, 3] <= inside.all(axis=1).sum()
    empty = grid_of(points[:0], made)
    assert empty.density.sum() == 0


def told_of(entropies, **measures):
    steps = [100.0 * (n + 1) for n in range(len(entropies))]
    curve = {"iteration": [*range(1, len(steps) + 1)], "env_steps": steps, "entropy": [*entropies]}
    return Measured({"steps_per_second": 5.0, **measures}, curve)


def test_facts_are_of_what_was_measured():
    seed = SIZES["desk"].seeds[0]
    runs = {
        run_name("ant-empty", 1, seed): told_of([1, 2, 3, 3, 3, 3, 3], entropy=3.5),
        run_name("ant-empty", 10, seed): told_of(
            [1, 1, 1, 1, 1, 1, 1], entropy=1.5, kl=0.7, kl_floor=0.1, accuracy=0.4
        ),
        run_name("ant-empty", 1, seed, "long"): told_of([*range(15)], entropy=9.0),
    }
    facts = facts_of(runs, "desk", "paper")
    assert facts["entropy/ant-empty/1"] == {seed: 3.5}
    assert facts["budget/2"] == {seed: 1.5}  # the usual run is one of the budgets
    assert (facts["kl/ant-empty/10"], facts["accuracy/10"]) == ({seed: 0.7}, {seed: 0.4})
    assert facts["mark/ant-empty"][seed] == 1.0  # what ten have at the end
    assert facts["steps/ant-empty/1"] == facts["steps/ant-empty/10"] == {seed: 100.0}
    assert facts["long_fifth/1"] == {seed: 1.0}  # rows 1 to 3 of 15
    assert facts["long_end/1"] == {seed: 13.0}
    assert "entropy/ant-empty/50" not in facts
    assert "opposite/top-left" not in facts


def test_jump_starts_count_where_all_goals_of_a_seed_are_done():
    count, (seed, other, *_) = SIZES["desk"].goals["outside"], SIZES["desk"].seeds
    told = [told_of([0.0], success=number / 10, early=0.1, early_updates=0.2) for number in range(count)]
    runs = {goal_run("ant-cave", "best", "outside", number, seed): one for number, one in enumerate(told)}
    runs |= {goal_run("ant-cave", "best", "outside", 0, other): told[0]}
    facts = facts_of(runs, "desk", "paper")
    assert facts["final/ant-cave/best"] == {seed: pytest.approx(0.15)}
    assert facts["early/ant-cave/best"] == {seed: pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((1.0, 0.4), (0.6, -0.4), 1.0), ((1.0, 0.4), (0.6, 0.4), 0.0), ((1.0, 0.4), (0.4, -0.4), 0.0)],
)
def test_ways_are_opposite_where_both_succeed_round_other_sides(first, second, expected):
    seed = SIZES["desk"].seeds[0]
    runs = {
        ring_run(agent, "top-left", seed): told_of([0.0], success=way[0], winding=way[1])
        for agent, way in enumerate((first, second))
    }
    facts = facts_of(runs, "desk", "paper")
    assert facts["opposite/top-left"] == {seed: expected}
    assert facts["winding/top-left/1"] == {seed: second[1]}
