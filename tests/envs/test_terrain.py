import mujoco
import numpy as np
import pytest

from kmyriad.envs.ant import ant_world
from kmyriad.envs.maze import generate_maze
from kmyriad.envs.terrain import BORDER, TERRAINS, TILE

ALL = pytest.mark.parametrize("name", TERRAINS)


@ALL
@pytest.mark.parametrize("seed", [0, 3])
def test_height_is_what_a_ray_hits(name, seed):
    """`height` and the physics must speak of one ground: cast rays straight down on the compiled model."""
    world = ant_world(name, terrain_seed=seed)
    model, data = world.model, mujoco.MjData(world.model)
    data.qpos[:] = world.initial_state(None)[0]
    data.qpos[2] = 1000.0  # out of the way
    mujoco.mj_forward(model, data)
    rng = np.random.default_rng(0)
    reach = 1.2 * world.terrain.half_size
    points = np.concatenate([rng.uniform(-reach, reach, (3000, 2)), rng.uniform(-90, 90, (500, 2))])
    geom = np.zeros(1, np.int32)
    hits = []
    for x, y in points:
        distance = mujoco.mj_ray(model, data, np.array([x, y, 50.0]), np.array([0.0, 0, -1]), None, 1, -1, geom)
        hits.append(50.0 - distance)
    np.testing.assert_allclose(world.terrain.height(*points.T), hits, atol=1e-6)


@ALL
def test_start_is_flat_ground(name):
    terrain = ant_world(name).terrain
    x, y = np.meshgrid(np.linspace(-1.9, 1.9, 20), np.linspace(-1.9, 1.9, 20))
    np.testing.assert_array_equal(terrain.height(x, y), 0.0)
    assert not terrain.is_wall(x, y).any()


@ALL
def test_terrain_seed_decides_and_nothing_else(name):
    first, again, other = (ant_world(name, terrain_seed=seed).terrain for seed in (4, 4, 5))
    assert first.boxes == again.boxes
    assert (first.boxes == other.boxes) == (name == "empty")


@ALL
def test_size_widens_the_terrain(name):
    small, large = (ant_world(name, size=size).terrain for size in (3, 7))
    assert large.half_size > small.half_size
    assert len(large.boxes) > len(small.boxes) or name == "empty"


def test_pyramids_rise_in_steps_that_differ():
    terrain = ant_world("pyramid").terrain
    heights = terrain.height_map[2]
    assert heights.min() == 0
    assert 0.3 < heights.max() < 1.0
    tops = {round(box.top, 6) for box in terrain.boxes}
    assert len(tops) == len(terrain.boxes) >= 12 * 3


def test_cave_goes_down_by_stairs_and_by_slopes():
    terrain = ant_world("cave").terrain
    assert terrain.height_map[2].min() < -0.25
    assert terrain.height_map[2].max() == 0
    slopes = [box for box in terrain.boxes if box.slope]
    treads = [box for box in terrain.boxes if box.top < 0 and not box.slope]
    assert len(slopes) > 10
    assert len(treads) > 30


def test_every_pit_can_be_walked_into():
    """No side of a pit is a cliff: along a line from its rim inwards the ground never drops more than a step."""
    terrain = ant_world("cave").terrain
    for x, y in ((TILE, 0.0), (-TILE, 0.0), (0.0, TILE), (0.0, -TILE)):
        for direction in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            along = np.linspace(0, TILE / 2, 400)
            heights = terrain.height(x + along * direction[0], y + along * direction[1])
            assert np.abs(np.diff(heights)).max() < 0.16
            assert heights[0] < -0.1
            assert terrain.height(x + (TILE / 2 - BORDER / 2) * direction[0], y) <= 0


def test_height_map_is_a_plain_array():
    xs, ys, heights = ant_world("maze").terrain.height_map
    assert heights.shape == (ys.size, xs.size)
    assert set(np.unique(heights)) == {0.0, 4.0}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rooms", [3, 5, 9])
def test_generated_mazes_are_closed_connected_and_have_loops(rooms, seed):
    grid = generate_maze(rooms, 4.0, seed)
    assert grid.cells[[0, -1]].all()
    assert grid.cells[:, [0, -1]].all()
    np.testing.assert_array_equal(grid.reachable, ~grid.cells)
    assert grid.centre(grid.start) == (0.0, 0.0)
    free_rooms = (~grid.cells[1::2, 1::2]).sum()
    doors = (~grid.cells).sum() - free_rooms
    assert free_rooms == rooms * rooms
    assert doors >= free_rooms - 1  # a tree of rooms has one door fewer than rooms; every further door is a loop


@pytest.mark.parametrize("rooms", [3, 5, 9])
def test_a_maze_starts_where_one_can_go_any_way(rooms):
    for seed in range(20):
        grid = generate_maze(rooms, 4.0, seed)
        row, column = grid.start
        assert not grid.cells[[row - 1, row + 1, row, row], [column, column, column - 1, column + 1]].any()


def test_mazes_usually_have_loops():
    extra = [(~generate_maze(5, 4.0, seed).cells).sum() - (2 * 25 - 1) for seed in range(20)]
    assert np.mean(np.array(extra) > 0) > 0.8


def test_ant_maze_takes_a_map_and_starts_in_it(make_vec):
    env = make_vec("kmyriad/AntMaze-v0", 2, map=["11111", "10001", "11111"])
    env.reset()
    np.testing.assert_allclose(env.positions[:, :2], 0.0)
    assert env.wall_map.tolist() == [[True] * 5, [True, False, False, False, True], [True] * 5]
    env = make_vec("kmyriad/AntMaze-v0", 1, map="u")
    env.reset()
    np.testing.assert_allclose(env.positions[0, :2], [-4, -4])
