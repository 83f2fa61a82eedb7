"""A task: a world and a goal in it, or an environment with a reward of its own; and heads that try it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs import IDS, find_id
from kmyriad.envs.replicas import Replicas, make_replicas
from kmyriad.errors import UsageError
from kmyriad.population import Population
from kmyriad.randomness import SELECTION, generator, reset_seed
from kmyriad.rollout import collect
from kmyriad.selection import Play, Trials, distances, first_steps


@dataclass(frozen=True)
class Task:
    env: str
    env_settings: dict[str, Any]
    horizon: int
    goal: tuple[float, ...]
    """Empty for the environment's own reward."""
    goal_radius: float | None = None
    """None for the world's own."""

    def __post_init__(self) -> None:
        if find_id(self.env) in IDS.values():
            if not self.goal:
                raise UsageError(f"{self.env} has no reward without a goal; give one, such as --goal 6 3")
        elif self.goal:
            raise UsageError(f"{self.env} has a reward of its own and takes no goal; leave the goal out")

    def replicas(self, count: int, threads: int | None = None, *, ends_at_goal: bool = False) -> Replicas:
        """`count` copies of the world with the goal in it."""
        settings = dict(self.env_settings)
        if self.goal:
            settings |= {"goal": self.goal, "goal_radius": self.goal_radius, "ends_at_goal": ends_at_goal}
        return make_replicas(self.env, count, horizon=self.horizon, settings=settings, threads=threads)


def trials(task: Task, population: Population, seed: int, threads: int | None = None) -> Play:
    """What `selection.race` calls to let heads of `population` try the task, all in one vector environment."""
    seed = int(generator(seed, SELECTION).integers(2**62))  # other noise than training sees

    def play(heads: Sequence[int], episodes: int, round_index: int) -> Trials:
        replicas = task.replicas(len(heads) * episodes, threads)
        replicas.start(reset_seed(seed, round_index))
        trajectory = collect(replicas, population.select(heads), task.horizon, seed, round_index)
        replicas.close()
        if task.goal and trajectory.xy is not None:
            shortfall: NDArray[np.floating] = distances(trajectory.xy, trajectory.sound, task.goal).min(axis=-1)
        else:
            shortfall = -trajectory.rewards.sum(axis=-1)
        return Trials(np.asarray(trajectory.success.any(axis=-1)), shortfall, first_steps(trajectory.success))

    return play
