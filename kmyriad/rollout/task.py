"""A task: a world and a goal in it, or an environment with a reward of its own."""

from dataclasses import dataclass
from typing import Any

from kmyriad.config import JumpstartConfig
from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError
from kmyriad.rollout.replicas import Replicas, make_replicas


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
        if short_name(self.env) in WORLDS:
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


def task_of(config: JumpstartConfig) -> Task:
    """What a jump-start is to learn."""
    task, horizon = config.task, config.rollouts.horizon
    return Task(task.env, task.env_settings, horizon, task.goal, task.goal_radius)
