import numpy as np
import pytest

from kmyriad.envs.maze import MAPS, named_map, parse_map
from kmyriad.errors import UsageError


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("merge", [False, True])
def test_rectangles_cover_the_walls_once(name, merge):
    grid = named_map(name, 2.0)
    half_width, half_height = grid.extent
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-half_width, half_width, 2000), rng.uniform(-half_height, half_height, 2000)
    covers = np.zeros(2000, int)
    for low, high in grid.wall_rectangles(merge):
        covers += (x > low[0]) & (x < high[0]) & (y > low[1]) & (y < high[1])
    np.testing.assert_array_equal(covers, grid.is_wall(x, y))


def test_merging_needs_fewer_rectangles():
    grid = named_map("large", 1.0)
    assert len(grid.wall_rectangles(merge=True)) < len(grid.wall_rectangles(merge=False)) == grid.cells.sum()


@pytest.mark.parametrize("name", MAPS)
def test_cells_and_points_agree(name):
    grid = named_map(name, 1.5)
    for cell in np.argwhere(~grid.cells):
        row, column = grid.cell_of(*grid.centre((int(cell[0]), int(cell[1]))))
        assert (row, column) == tuple(cell)


def test_row_zero_is_at_the_top():
    grid = parse_map(["1111", "1001", "1011", "1111"], 1.0)
    assert not grid.is_wall(0.5, 0.5)
    assert grid.is_wall(0.5, -0.5)
    assert not grid.is_wall(-0.5, -0.5)
    assert grid.is_wall(100.0, 0.0)


def test_ring_has_two_equally_long_ways_round():
    grid = named_map("ring", 1.0)
    start = grid.start
    blocked = grid.cells.copy()
    blocked[start[0], start[1] + 1] = True
    one_way = parse_map(blocked.astype(int).tolist(), 1.0, start)
    np.testing.assert_array_equal(one_way.reachable, ~one_way.cells)
    np.testing.assert_array_equal(grid.cells, grid.cells[:, ::-1])


def test_unreachable_rooms_are_known():
    grid = parse_map(["11111", "10101", "11111"], 1.0, start=(1, 1))
    assert grid.is_reachable(-1.0, 0.0)
    assert not grid.is_reachable(1.0, 0.0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["111", "1x1", "111"], "rows of 0 .free. and 1 .wall."),
        (["111", "11", "111"], "all rows of one length"),
        ([], "at least one row"),
        (["111", "121", "111"], r"only 0 .free. and 1 .wall.; got \[2\]"),
        (["111", "100", "111"], "must be closed"),
        (["111", "111", "111"], "no free cell"),
        (7, "rows of 0"),
    ],
)
def test_bad_maps_are_refused_in_one_sentence(rows, message):
    with pytest.raises(UsageError, match=message) as error:
        parse_map(rows, 1.0)
    assert "\n" not in str(error.value)


def test_start_must_be_free():
    with pytest.raises(UsageError, match=r"start cell must be a free cell .* got \(0, 0\)"):
        parse_map(["111", "101", "111"], 1.0, start=(0, 0))


def test_unknown_name_gets_a_hint():
    with pytest.raises(UsageError, match=r"unknown map 'rings' .did you mean 'ring'"):
        named_map("rings", 1.0)
