"""The worlds: one row each, registered with Gymnasium (`gymnasium.make(id)` for one, `make_vec(id, n)` for many)."""

from typing import Any, NamedTuple

import gymnasium


class WorldRow(NamedTuple):
    id: str
    """Gymnasium's name of it."""
    maker: str
    """`module:function` that makes the world from its settings; imported when it is first needed."""
    settings: dict[str, Any]
    """Settings that tell it from other worlds of the same maker."""
    features: tuple[str, ...]
    """State features whose entropy is maximised where nothing else is asked for."""
    sentence: str
    """What it is, in the middle of a sentence."""
    training_settings: dict[str, Any] = {}  # noqa: RUF012
    """Settings that training has where nothing else is asked for, on top of the world's own."""


WORLDS = {
    "ant-empty": WorldRow(
        "kmyriad/AntEmpty-v0",
        "kmyriad.envs.ant:ant_world",
        {"terrain": "empty"},
        ("x", "y", "z"),
        "the Ant on open flat ground",
    ),
    "ant-maze": WorldRow(
        "kmyriad/AntMaze-v0", "kmyriad.envs.ant:ant_world", {"terrain": "maze"}, ("x", "y", "z"), "the Ant in a maze"
    ),
    "ant-cave": WorldRow(
        "kmyriad/AntCave-v0", "kmyriad.envs.ant:ant_world", {"terrain": "cave"}, ("x", "y", "z"), "the Ant between pits"
    ),
    "ant-pyramid": WorldRow(
        "kmyriad/AntPyramid-v0",
        "kmyriad.envs.ant:ant_world",
        {"terrain": "pyramid"},
        ("x", "y", "z"),
        "the Ant between stepped pyramids",
    ),
    "point-maze": WorldRow(
        "kmyriad/PointMaze-v0",
        "kmyriad.envs.point_maze:point_maze_world",
        {},
        ("x", "y"),
        "the ball in a maze",
        # Its control step is 0.01 s: without decimation the ball hardly leaves its cell in an episode.
        training_settings={"decimation": 5},
    ),
}
"""By the short names that the command line takes."""


def short_name(env: str) -> str:
    """The short name of a world by its Gymnasium id; whatever else is named stays as it is."""
    return next((name for name, row in WORLDS.items() if row.id == env), env)


def describe(env: str) -> str:
    """`the Ant in a maze (ant-maze)`, or the name of an environment that is nobody's here."""
    return f"{WORLDS[env].sentence} ({env})" if env in WORLDS else env


def register() -> None:
    """Make the ids known to Gymnasium. Horizons are the environments' own: no TimeLimit wrapper is needed."""
    for name, row in WORLDS.items():
        gymnasium.register(
            id=row.id,
            entry_point="kmyriad.envs.make:make_env",
            vector_entry_point="kmyriad.envs.make:make_vector_env",
            kwargs={"world": name},
        )


register()
