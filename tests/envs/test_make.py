import gymnasium
import pytest

from kmyriad.envs import WORLDS
from kmyriad.envs.make import make_world
from kmyriad.errors import UsageError


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_without_an_engine_is_the_environments_own(name, make_vec):
    world, env = make_world(name, horizon=7), make_vec(WORLDS[name].id, 1, horizon=7)
    assert type(world) is type(env.world)
    assert (world.horizon, world.goal_radius) == (7, env.goal_radius)
    assert world.terrain.boxes == env.world.terrain.boxes
    assert (world.model.nq, world.model.nu) == (env.world.model.nq, env.world.model.nu)
    assert all(feature in world.features for feature in WORLDS[name].features)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"armature": -1.0}, "armature must be between"),
        ({"horizon": "long"}, "horizon must be a whole number; got 'long'"),
        ({"goal_radius": 0}, "goal_radius must be between"),
        ({"armatur": 0.1}, "unknown setting 'armatur' .did you mean 'armature'"),
        ({"threads": 2}, "unknown setting 'threads'"),
    ],
)
def test_a_single_environment_refuses_the_same_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        gymnasium.make("kmyriad/AntEmpty-v0", **settings)


@pytest.mark.parametrize(
    ("world", "settings", "message"),
    [
        ("ant-mazes", {}, "unknown world 'ant-mazes' .did you mean 'ant-maze'"),
        ("ant-maze", {"size": "big"}, "size must be a whole number; got 'big'"),
        ("ant-maze", {"goal": (1, 1)}, "unknown setting 'goal'"),
    ],
)
def test_a_world_without_an_engine_refuses_them_too(world, settings, message):
    with pytest.raises(UsageError, match=message):
        make_world(world, **settings)


def test_a_world_is_known_by_its_id_too():
    by_id, by_name = make_world("kmyriad/AntMaze-v0", size=3), make_world("ant-maze", size=3.0)
    assert by_id.terrain.boxes == by_name.terrain.boxes
    assert by_id.terrain.name == "maze"
