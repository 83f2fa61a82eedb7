"""A task: a goal in an environment, or the reward that it has of its own."""

from dataclasses import dataclass
from typing import Any

from kmyriad.config import Engine, JumpstartConfig
from kmyriad.engines.make import GoalPoint
from kmyriad.envs import WORLDS, short_name
from kmyriad.errors import UsageError
from kmyriad.processes import Share, device_here
from kmyriad.rollout.replicas import Replicas, make_replicas


@dataclass(frozen=True)
class Task:
    env: str
    env_settings: dict[str, Any]
    horizon: int
    goal: tuple[float, ...]
    """Empty for the environment's own reward."""
    goal_radius: float | None = None
    """None for the environment's own."""
    goal_names: tuple[str, ...] = ()
    """Features that the goal is a point in; empty for the first ones."""
    features: tuple[str, ...] = ()
    """That were explored; empty for the environment's default."""
    engine: Engine = "auto"
    device: str = "cpu"
    """Of engines that can live on one."""

    def __post_init__(self) -> None:
        if short_name(self.env) in WORLDS and not self.goal:
            raise UsageError(f"{self.env} has no reward without a goal; give one, such as --goal 6 3")

    def replicas(
        self,
        count: int,
        threads: int | None = None,
        *,
        ends_at_goal: bool = False,
        share: Share | None = None,
    ) -> Replicas:
        """`count` copies of the environment with the goal in it, or this process's share of them."""
        return make_replicas(
            self.env,
            count,
            horizon=self.horizon,
            features=self.features,
            settings=self.env_settings,
            goal=GoalPoint(self.goal, self.goal_names, self.goal_radius, ends_at_goal) if self.goal else None,
            threads=threads,
            engine=self.engine,
            device=self.device,
            share=share,
        )


def task_of(config: JumpstartConfig) -> Task:
    """What a jump-start is to learn."""
    task, horizon = config.task, config.rollouts.horizon
    return Task(
        task.env,
        task.env_settings,
        horizon,
        task.goal,
        task.goal_radius,
        task.goal_names,
        task.features,
        task.engine,
        device_here(config.run.device),
    )
