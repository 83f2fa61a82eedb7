"""The settings of a jump-start: one frozen dataclass, the same for the command line and for Python."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from kmyriad import config
from kmyriad.config import (
    ActorCriticSettings,
    actor_critic_settings,
    check_choice,
    check_numbers,
    check_segment,
    even_split,
    plain,
    replicas_per_agent,
    steps_per_epoch,
)
from kmyriad.errors import UsageError

Init = Literal["best", "single", "random"]

REPLICAS = 200
"""About how many there are where nothing else is asked for."""


BOUNDS = config.BOUNDS | {
    "top": (1, 10_000),
    "patience": (1, 10_000_000),
    "selection_steps": (1, 10**12),
    "warm_up": (0, 10_000_000),
    "critic_learning_rate": (1e-12, 100.0),
    "critic_passes": (0, 100_000),
    "critic_lambda": (0.0, 1.0),
    "entropy_bonus": (0.0, 100.0),
    "largest_gradient": (1e-6, 1e9),
}
"""Inclusive limits of every number."""


@dataclass(frozen=True)
class JumpstartConfig:
    """Everything that decides what a jump-start computes, and where it is kept."""

    source: str = ""
    """Folder of the pretraining run to start from; for init random a world's name will do."""
    goal: tuple[float, ...] = ()
    """Where to go, metres from the middle of the world: x y, or x y z. Other environments have rewards of their own."""
    goal_radius: float | None = None
    """Metres around the goal that count as there; none takes the world's own."""
    init: Init = "best"
    """best: the head of the population that does best on the task; single: a run of one agent; random: no pretraining,
    the best of several heads with fresh weights."""
    head: int | None = None
    """Take this head, after a few trials of it alone."""
    top: int = 1
    """Fine-tune that many of the best heads side by side: different solutions of one task."""
    selection_steps: int = 60_000
    """Environment steps that selecting may take at most."""

    env: str = ""
    """The world; empty takes the source's, which it must be."""
    env_settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the environment, on top of the source's."""
    horizon: int | None = None
    """Control steps per episode; none takes the source's."""
    replicas: int | None = None
    """Copies of the environment; none takes about 200."""
    epochs: int = 400
    """Updates, those of the warm-up included."""
    segment: int | None = None
    """Control steps per epoch; none takes about 25 in our worlds, and whole horizons elsewhere."""
    seed: int = 0
    """All randomness is a function of this, the epoch and the replica."""

    stop_at_goal: bool = True
    """Training's episodes end once the goal is entered (with reward 1), as what comes after is no part of the task, and
    end without it where time runs out. Off, they go on with reward 1 for every step in the goal. Needs segments."""
    patience: int | None = None
    """Steps after which training's episodes are given up, where they stop at the goal; none takes one and a half times
    what successes take at the moment. Most that take longer have passed the goal and teach nothing."""
    warm_up: int = 8
    """Epochs at the start in which only the critic learns."""
    learning_rate: float = 3e-4
    """Of the policy; only where it starts, if there is a target_kl."""
    critic_learning_rate: float = 1e-3
    """Of the value function."""
    gamma: float = 0.99
    """Discount per control step."""
    gae_lambda: float = 0.5
    """How far advantages trust rewards over the critic; 0 is one step, 1 to the end."""
    critic_lambda: float = 0.95
    """The same for what the critic learns by itself; with critic_passes 0 it learns by gae_lambda."""
    clip: float = 0.2
    """Ratios of probabilities beyond 1 +- this give no gradient."""
    passes: int = 4
    """Times that an epoch's steps are gone through."""
    minibatches: int = 4
    """Gradient steps per pass."""
    critic_passes: int = 16
    """Times that the critic alone goes through an epoch's steps, before the policy learns; 0: both learn at once."""
    target_kl: float | None = 0.03
    """Change of the policy per epoch that its learning rate is steered to, nats; none keeps the rate."""
    entropy_bonus: float = 0.0
    """Weight of the entropy of the actions."""
    largest_gradient: float = 0.5
    """Longer gradients are cut to this norm."""
    critic: tuple[int, ...] = (128, 128)
    """Hidden sizes of the value function."""

    threads: int | None = None
    """CPU threads for physics and network; none takes all cores. Changes no number."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints; none takes as many as make a horizon."""
    keep_checkpoints: int = 3
    """Checkpoints kept; older ones are removed."""

    def __post_init__(self) -> None:
        check_numbers(self, BOUNDS)
        check_choice("init", self.init, get_args(Init))
        if self.goal and len(self.goal) not in (2, 3):
            raise UsageError(f"goal must be x y or x y z, metres; got {len(self.goal)} numbers")
        if self.head is not None and self.top != 1:
            raise UsageError(f"head {self.head} and top {self.top} exclude each other; leave one out")
        if self.horizon is not None:
            check_segment(self.segment, self.horizon)
        replicas_per_agent(self.top, self.replica_count)

    @property
    def name(self) -> str:
        """Of the run's folder, where nothing else is asked for."""
        where = "-".join(["to", *(f"{number:g}" for number in self.goal)]) if self.goal else "own-reward"
        return f"{self.env.replace('/', '-')}-{self.init}-{where}-seed-{self.seed}"

    @property
    def agents(self) -> int:
        """Policies that are fine-tuned."""
        return self.top

    @property
    def replica_count(self) -> int:
        """Replicas of all agents together."""
        return self.replicas or even_split(REPLICAS, self.top)

    @property
    def steps_per_episode(self) -> int:
        if self.horizon is None:
            raise UsageError("the horizon is the source's, which has not been read yet; give horizon")
        return self.horizon

    @property
    def epoch_steps(self) -> int:
        """Control steps of every replica per epoch."""
        return steps_per_epoch(self.segment, self.env, self.steps_per_episode)

    @property
    def has_segments(self) -> bool:
        """Whether epochs end in the middle of episodes."""
        return self.epoch_steps < self.steps_per_episode

    @property
    def epochs_per_horizon(self) -> int:
        """How many epochs' steps make one horizon."""
        return self.steps_per_episode // self.epoch_steps

    @property
    def stops_at_goal(self) -> bool:
        """Whether training's episodes do. Whole horizons would cut off the second try of those who were quick."""
        return self.stop_at_goal and bool(self.goal) and self.has_segments

    @property
    def actor_critic(self) -> ActorCriticSettings:
        return actor_critic_settings(self)

    def as_json(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings; `command` tells what made the run."""
        return {"command": "jumpstart", **plain(self)}
