"""The worlds, registered with Gymnasium: `gymnasium.make(id)` for one, `gymnasium.make_vec(id, n)` for many."""

import gymnasium

from kmyriad.errors import UsageError, nearest_name

IDS = {
    "ant-empty": "kmyriad/AntEmpty-v0",
    "ant-maze": "kmyriad/AntMaze-v0",
    "ant-cave": "kmyriad/AntCave-v0",
    "ant-pyramid": "kmyriad/AntPyramid-v0",
    "point-maze": "kmyriad/PointMaze-v0",
}
"""Short names, as on the command line, and Gymnasium ids."""


def find_id(env: str) -> str:
    """The Gymnasium id of a world by its short name, or of any environment registered with Gymnasium."""
    env_id = IDS.get(env, env)
    try:
        return gymnasium.spec(env_id).id
    except gymnasium.error.Error:
        hint = nearest_name(env, [*IDS, *gymnasium.registry]).split("; known")[0]
        raise UsageError(
            f"unknown environment {env!r}{hint}; use one of {', '.join(IDS)}, or an id registered with Gymnasium"
        ) from None


def register() -> None:
    """Make the ids known to Gymnasium. Horizons are the environments' own: no TimeLimit wrapper is needed."""
    for name, env_id in IDS.items():
        robot, terrain = name.split("-")
        is_ant = robot == "ant"
        gymnasium.register(
            id=env_id,
            entry_point="kmyriad.envs.make:make_ant" if is_ant else "kmyriad.envs.make:make_point_maze",
            vector_entry_point="kmyriad.envs.make:make_ant_vector"
            if is_ant
            else "kmyriad.envs.make:make_point_maze_vector",
            kwargs={"terrain": terrain} if is_ant else {},
        )


register()
