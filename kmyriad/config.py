"""The settings of a pretraining run: one frozen dataclass, the same for the command line and for Python."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kmyriad.errors import UsageError, nearest_name

UpdateRule = Literal["reinforce", "trust_region"]

BOUNDS: dict[str, tuple[float, float]] = {
    "agents": (1, 10_000),
    "replicas": (1, 10_000_000),
    "epochs": (1, 10_000_000),
    "seed": (0, 2**63 - 1),
    "horizon": (1, 10_000_000),
    "segment": (1, 10_000_000),
    "k": (1, 10_000),
    "learning_rate": (1e-12, 100.0),
    "learning_rate_decay": (1e-6, 1.0),
    "adapter": (1, 65_536),
    "initial_sigma": (1e-4, 100.0),
    "sigma_min": (1e-6, 100.0),
    "sigma_max": (1e-6, 1e4),
    "kl_bound": (1e-9, 1e3),
    "trust_region_steps": (1, 10_000),
    "chunk": (1, 10_000_000),
    "threads": (1, 4096),
    "checkpoint_every": (1, 10_000_000),
    "keep_checkpoints": (1, 10_000),
}
"""Inclusive limits of every number."""


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides what a run computes, and where it is kept."""

    env: str = "ant-empty"
    """World to explore: ant-empty, ant-maze, ant-cave, ant-pyramid, point-maze, or any Gymnasium id."""
    env_settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the environment, such as map u or size 7 (values are read as JSON where they can be)."""
    horizon: int = 600
    """Control steps per episode (the paper's T)."""
    features: tuple[str, ...] = ()
    """State features whose entropy is maximised; empty takes the world's own (Ant: x y z, PointMaze: x y)."""

    agents: int = 10
    """Policies in the population (heads of the network)."""
    replicas: int = 1000
    """Copies of the environment, split evenly over the agents."""
    epochs: int = 200
    """Updates of the population."""
    segment: int | None = None
    """Control steps per epoch, from replicas at staggered ages; none collects whole horizons from reset (the paper)."""
    seed: int = 0
    """All randomness is a function of this, the epoch and the replica."""

    k: int = 5
    """Neighbours of the entropy estimate."""
    update: UpdateRule = "reinforce"
    """reinforce is the paper's single gradient step; trust_region takes several inside a KL bound (MEPOL)."""
    learning_rate: float = 2e-4
    """Adam's rate."""
    learning_rate_milestones: tuple[int, ...] = (30, 80)
    """Epochs after which the rate is multiplied by the decay."""
    learning_rate_decay: float = 0.5
    """Factor of the rate at each milestone."""
    kl_bound: float = 0.1
    """trust_region: largest KL between the state distributions before and after an epoch's steps."""
    trust_region_steps: int = 30
    """trust_region: most gradient steps per epoch."""

    trunk: tuple[int, ...] = (512, 256)
    """Hidden sizes of the network that all agents share."""
    adapter: int = 256
    """Hidden size of each agent's own layer."""
    initial_sigma: float = 0.37
    """Standard deviation of the raw actions at the start; at 1 the Ant ends up on its back."""
    sigma_min: float = 0.01
    """Smallest standard deviation."""
    sigma_max: float = 2.0
    """Largest standard deviation."""

    chunk: int = 8_192
    """Steps per forward and backward pass of an update: bounds the memory, does not change the result's meaning."""
    threads: int | None = None
    """CPU threads for physics and network; none takes all cores. Changes no number."""
    checkpoint_every: int = 1
    """Epochs between checkpoints."""
    keep_checkpoints: int = 3
    """Checkpoints kept; older ones are removed."""

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            check_number(name, getattr(self, name), low, high)
        for name in ("trunk", "learning_rate_milestones"):
            for value in getattr(self, name):
                check_number(f"each of {name}", value, 1, 1_000_000)
        if not self.sigma_min <= self.initial_sigma <= self.sigma_max:
            raise UsageError(
                f"initial_sigma must lie between sigma_min and sigma_max; got {self.sigma_min} <= {self.initial_sigma}"
                f" <= {self.sigma_max}"
            )
        if self.update not in UPDATE_RULES:
            raise UsageError(f"unknown update {self.update!r}{nearest_name(self.update, UPDATE_RULES)}")
        if self.segment is not None and self.horizon % self.segment:
            below, above = nearest_divisors(self.horizon, self.segment)
            raise UsageError(
                f"segment must divide the horizon of {self.horizon}, so that the pool is one horizon long; got"
                f" {self.segment}, nearest: {below} or {above}"
            )
        replicas_per_agent(self.agents, self.replicas)

    @property
    def epoch_steps(self) -> int:
        """Control steps of every replica per epoch: the paper's T, or a segment."""
        return self.segment or self.horizon

    def as_json(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


UPDATE_RULES = ("reinforce", "trust_region")
FIELDS = {entry.name for entry in dataclasses.fields(PretrainConfig)}


def config_from(settings: Mapping[str, Any], base: PretrainConfig | None = None) -> PretrainConfig:
    """A config from names and values (keyword arguments, or a run's config.json) on top of `base`."""
    for name in settings:
        if name not in FIELDS:
            raise UsageError(f"unknown setting {name!r}{nearest_name(name, sorted(FIELDS))}")
    tuples: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in settings.items()}
    return dataclasses.replace(base or PretrainConfig(), **tuples)


def check_number(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is no number or lies outside [low, high]; None passes (it means: not set)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{name} must be between {low:g} and {high:g}; got {value!r}")


def replicas_per_agent(agents: int, replicas: int) -> int:
    """The even split of replicas over agents; where there is none, the error names the nearest numbers that have."""
    if replicas % agents == 0:
        return replicas // agents
    below = replicas // agents * agents
    replica_choices = [str(count) for count in (below, below + agents) if count]
    agent_choices = [str(count) for count in nearest_divisors(replicas, agents)]
    raise UsageError(
        f"{replicas} replicas cannot be split evenly over {agents} agents; use {' or '.join(replica_choices)} replicas,"
        f" or {' or '.join(dict.fromkeys(agent_choices))} agents"
    )


def nearest_divisors(number: int, near: int) -> tuple[int, int]:
    """The divisors of `number` next below and next above `near`."""
    divisors = [candidate for candidate in range(1, number + 1) if number % candidate == 0]
    below = [divisor for divisor in divisors if divisor <= near]
    above = [divisor for divisor in divisors if divisor >= near]
    return (below or divisors)[-1], (above or divisors[-1:])[0]
