"""Fresh episodes of all agents as a dataset: Minari, Parquet or NPZ. They are written as they are played.

Only one round of episodes is in memory at a time, however many there are.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.config import even_split
from kmyriad.errors import UsageError
from kmyriad.exporters.carried.policy import is_world, make_env
from kmyriad.exporters.folder import need
from kmyriad.exporters.portable import Source
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Trajectory, collect
from kmyriad.rollout.randomness import generator, reset_seed
from kmyriad.rollout.replicas import Replicas, make_replicas
from kmyriad.rollout.task import Task
from kmyriad.runs.files import write_json
from kmyriad.runs.run import Run, version

ROUND = 5_000_000
"""Numbers of observations that are held at a time: 20 MB, and a few times that while episodes are played."""
NOISE = 4
"""A purpose of a generator: other episodes than training's and selection's."""
A_ROW = (
    "a row per step: episode, agent, step, observation, action, raw_action, log_prob, reward, terminated, truncated"
    " and, where the environment tells, success."
)


@dataclass(frozen=True)
class Episode:
    """One episode of L steps, or less where it ended early."""

    agent: int
    observations: NDArray[np.float32]
    """(L + 1, d), what is seen after the last step included."""
    actions: NDArray[Any]
    """(L, a), the environment's; (L,) where they are discrete."""
    raw_actions: NDArray[np.float32]
    """(L, a), before squashing; one-hot where they are discrete."""
    log_probs: NDArray[np.float32]
    """(L,), of the raw actions under the agent's policy."""
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success: NDArray[np.bool_] | None
    """(L,) each; success up to that step, None where the environment does not tell."""

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Size:
    """What was written."""

    episodes: int
    steps: int
    left_out: int
    """Episodes whose physics broke."""


def played(
    source: Source, count: int, goal: tuple[float, ...], goal_radius: float | None, seed: int, threads: int | None
) -> Iterator[Episode | None]:
    """About `count` whole episodes, as many of every agent; None for one whose physics broke."""
    run, population = source.run, source.population
    horizon, agents = run.config.rollouts.horizon, population.agents
    total = even_split(count, agents)
    at_once = even_split(min(total, max(1, ROUND // (horizon * population.observation_size))), agents)
    seed = int(generator(seed, NOISE).integers(2**62))
    rounds, left = 0, total
    while left > 0:
        now = min(at_once, left)
        replicas = _replicas(run, now, goal, goal_radius, threads)
        replicas.start(reset_seed(seed, rounds))
        trajectory = collect(replicas, population, horizon, seed, rounds, keep_next_observations=True)
        replicas.close()
        yield from _episodes(trajectory, population)
        left -= now
        rounds += 1


def write_minari(source: Source, folder: Path, episodes: Iterator[Episode | None]) -> Size:
    """A Minari dataset below `folder`, which is then a root of datasets; the agent's index is in the infos."""
    need("minari", "minari", "minari", "h5py")
    with _minari_root(folder):
        import minari
        from minari.data_collector import EpisodeBuffer

        env = make_env(source.facts)
        counted = _Counted(episodes)
        name = dataset_name(source)

        def buffers() -> Iterator[EpisodeBuffer]:
            for index, one in enumerate(counted):
                infos = {"agent": np.full(len(one) + 1, one.agent, np.int64)}
                if one.success is not None:
                    infos["success"] = np.concatenate([[False], one.success])
                yield EpisodeBuffer(
                    id=index,
                    observations=one.observations.astype(env.observation_space.dtype),
                    actions=one.actions.astype(env.action_space.dtype),
                    rewards=one.rewards,
                    terminations=one.terminated,
                    truncations=one.truncated,
                    infos=infos,
                )

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for an author and a link
            minari.create_dataset_from_buffers(
                name,
                buffers(),
                **_environment(env),
                algorithm_name=f"kmyriad {version()}",
                description=f"Episodes of {source.population.agents} agents of the run {source.run.name}",
                requirements=[f"kmyriad=={version()}"] if is_world(source.facts) else None,
                data_format="hdf5",
            )
        env.close()
    return counted.size


def write_parquet(source: Source, folder: Path, episodes: Iterator[Episode | None]) -> Size:
    """`episodes.parquet`: a row per step, a row group per episode or more; last observations in `last.parquet`."""
    need("parquet", "parquet", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    counted = _Counted(episodes)
    writers: dict[str, Any] = {}
    try:
        for index, rows in enumerate(_groups(counted)):
            for name, columns in (("episodes", _step_columns(rows)), ("last", _last_columns(rows))):
                table = pa.table({column: _arrow(values) for column, values in columns.items()})
                if index == 0:
                    writers[name] = parquet.ParquetWriter(folder / f"{name}.parquet", table.schema)
                writers[name].write_table(table)
    finally:
        for writer in writers.values():
            writer.close()
    return counted.size


def write_npz(source: Source, folder: Path, episodes: Iterator[Episode | None]) -> Size:
    """`episodes-0000.npz` and so on: a row per step, and the episodes' last observations."""
    counted = _Counted(episodes)
    for index, rows in enumerate(_groups(counted)):
        last = {f"last_{name}": values for name, values in _last_columns(rows).items()}
        arrays: dict[str, Any] = _step_columns(rows) | last
        np.savez_compressed(folder / f"episodes-{index:04d}.npz", **arrays)
    return counted.size


DATA_TARGETS: dict[str, Callable[[Source, Path, Iterator[Episode | None]], Size]] = {
    "minari": write_minari,
    "parquet": write_parquet,
    "npz": write_npz,
}


def write_data(
    to: str,
    source: Source,
    folder: Path,
    episodes: int,
    goal: tuple[float, ...],
    goal_radius: float | None,
    seed: int,
    threads: int | None,
) -> Size:
    """Play and write, with dataset.json and a README beside the data."""
    size = DATA_TARGETS[to](source, folder, played(source, episodes, goal, goal_radius, seed, threads))
    if not size.steps:
        raise UsageError(f"all {size.left_out} episodes of {source.run.given} broke down; there is nothing to write")
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts = source.facts | {
        "agents": source.population.agents,
        "episodes": size.episodes,
        "steps": size.steps,
        "left_out": size.left_out,
        "bytes": written,
        "seed": seed,
        "kmyriad": version(),
    }
    write_json(folder / "dataset.json", facts)
    (folder / "README.md").write_text(_readme(to, source, size, written))
    return size


def dataset_name(source: Source) -> str:
    """`kmyriad/point-maze-4-agents-v0`: what `minari.load_dataset` takes."""
    return f"kmyriad/{re.sub(r'[^A-Za-z0-9_-]+', '-', source.run.name).strip('-') or 'run'}-v0"


def _readme(to: str, source: Source, size: Size, written: int) -> str:
    use = {
        "minari": f'Set MINARI_DATASETS_PATH to this folder, then `minari.load_dataset("{dataset_name(source)}")`;'
        " infos have the index of the agent.",
        "parquet": f"`episodes.parquet` has {A_ROW}\n`last.parquet` has what each episode led to.",
        "npz": f"`episodes-0000.npz` and so on have {A_ROW}\n`last_...` is what each episode led to.",
    }
    goal, agents = source.facts["goal"], source.population.agents
    own = "nothing" if is_world(source.facts) else "its own task"
    reward = f"the goal {' '.join(f'{number:g}' for number in goal)}" if goal else own
    lines = [
        f"# Episodes of the run `{source.run.name}`",
        "",
        f"- {size.episodes:,} episodes, {size.steps:,} steps, {written:,} bytes; {agents} agent{'s' * (agents > 1)}.",
        f"- Environment `{source.facts['env_id']}`, rewards for {reward}; its settings are in dataset.json.",
        f"- {size.left_out} episodes were left out because their physics broke.",
        "- Actions are the environment's own; log-probabilities are of the raw ones, before squashing.",
        "",
        use[to],
        "",
    ]
    return "\n".join(lines)


def _replicas(
    run: Run, count: int, goal: tuple[float, ...], goal_radius: float | None, threads: int | None
) -> Replicas:
    horizon = run.config.rollouts.horizon
    if goal:
        return Task(run.env, run.env_settings, horizon, goal, goal_radius).replicas(count, threads, ends_at_goal=True)
    return make_replicas(run.env, count, horizon=horizon, settings=run.env_settings, threads=threads)


def _environment(env: Any) -> dict[str, Any]:
    """What Minari is told of it: the whole of it, so that it can be made again, or its spaces where that cannot be."""
    try:
        env.spec.to_json()
    except ValueError:  # registered by its class, not by the name of it
        return {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"env": env, "eval_env": env}


def _episodes(trajectory: Trajectory, population: Population) -> Iterator[Episode | None]:
    """The first episode of every replica."""
    assert trajectory.next_observations is not None
    lengths = trajectory.in_first_episode.sum(dim=-1).numpy()
    actions = population.actions.squash(trajectory.actions)
    for agent, replica in np.ndindex(lengths.shape):
        steps = slice(int(lengths[agent, replica]))
        place = (agent, replica, steps)
        if not trajectory.valid[place].all():
            yield None
            continue
        last = trajectory.next_observations[agent, replica, lengths[agent, replica] - 1]
        terminated = trajectory.terminated[place].numpy().copy()
        truncated = np.zeros_like(terminated)
        truncated[-1] = not terminated[-1]
        yield Episode(
            agent,
            np.concatenate([trajectory.observations[place].numpy(), last.numpy()[None]]),
            actions[place].numpy(),
            trajectory.actions[place].numpy(),
            trajectory.log_probs[place].numpy(),
            trajectory.rewards[place].numpy(),
            terminated,
            truncated,
            None if trajectory.success is None else trajectory.success[place].numpy(),
        )


class _Counted:
    """Episodes that are counted as they pass; broken ones do not."""

    def __init__(self, episodes: Iterator[Episode | None]) -> None:
        self._episodes, self.size = episodes, Size(0, 0, 0)

    def __iter__(self) -> Iterator[Episode]:
        count = steps = left_out = 0
        for one in self._episodes:
            if one is None:
                left_out += 1
            else:
                count, steps = count + 1, steps + len(one)
            self.size = Size(count, steps, left_out)
            if one is not None:
                yield one


def _groups(episodes: _Counted) -> Iterator[list[tuple[int, Episode]]]:
    """Episodes with their numbers, as many at a time as make up a round."""
    group: list[tuple[int, Episode]] = []
    held = 0
    for number, one in enumerate(episodes):
        group.append((number, one))
        held += one.observations.size
        if held >= ROUND:
            yield group
            group, held = [], 0
    if group:
        yield group


def _step_columns(rows: list[tuple[int, Episode]]) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {
        "episode": np.concatenate([np.full(len(one), number, np.int64) for number, one in rows]),
        "agent": np.concatenate([np.full(len(one), one.agent, np.int32) for _, one in rows]),
        "step": np.concatenate([np.arange(len(one), dtype=np.int32) for _, one in rows]),
        "observation": np.concatenate([one.observations[:-1] for _, one in rows]),
    }
    names = {"action": "actions", "raw_action": "raw_actions", "log_prob": "log_probs", "reward": "rewards"}
    names |= {"terminated": "terminated", "truncated": "truncated"}
    columns |= {name: np.concatenate([getattr(one, field) for _, one in rows]) for name, field in names.items()}
    told = [one.success for _, one in rows if one.success is not None]
    return columns | ({"success": np.concatenate(told)} if len(told) == len(rows) else {})


def _last_columns(rows: list[tuple[int, Episode]]) -> dict[str, NDArray[Any]]:
    return {
        "episode": np.array([number for number, _ in rows], np.int64),
        "observation": np.stack([one.observations[-1] for _, one in rows]),
    }


def _arrow(values: NDArray[Any]) -> Any:
    """Rows of several numbers become lists of fixed length."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


@contextmanager
def _minari_root(folder: Path) -> Iterator[None]:
    """Minari writes where this variable says."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
