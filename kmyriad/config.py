"""The settings of a pretraining run: one frozen dataclass, the same for the command line and for Python."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from kmyriad.envs import IDS, find_id
from kmyriad.errors import UsageError, nearest_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UpdateRule = Literal["actor_critic", "reinforce", "trust_region"]
Activation = Literal["elu", "relu"]

REPLICAS = 100
"""About how many there are where nothing else is asked for."""

SEGMENT, POINT_MAZE_SEGMENT = 25, 100
"""About how many control steps an actor_critic epoch has, where nothing else is asked for. The ball crosses its maze in
a hundred: shorter epochs only ever see a part of that, and their updates chase each other."""

OWN_RATE = 0.1
"""Of agents' own layers beside what all have in common, where nothing else is asked for."""

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
    "diversity": (0.0, 1000.0),
    "compass": (0.0, 100.0),
    "gamma": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "clip": (1e-3, 10.0),
    "passes": (1, 1000),
    "minibatches": (1, 10_000),
    "target_kl": (1e-6, 10.0),
    "adapter": (1, 65_536),
    "own_rate": (1e-6, 1.0),
    "direction_rate": (0.0, 1.0),
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
class ActorCriticSettings:
    """What the clipped actor-critic needs to know, in pretraining and in fine-tuning."""

    gamma: float
    """Discount per control step."""
    gae_lambda: float
    """How far advantages trust rewards over the critic: 0 one step, 1 to the end."""
    clip: float
    """Ratios of probabilities beyond 1 +- this give no gradient."""
    passes: int
    """Times that an epoch's data is gone through."""
    minibatches: int
    """Gradient steps per pass."""
    target_kl: float | None
    """Mean KL of the actions per epoch that the policy's learning rate is steered to; None leaves it as it is."""
    entropy_bonus: float = 0.0
    """Weight of the entropy of the actions."""
    largest_gradient: float = 1.0
    """Longer gradients (of policy and critic together, where they learn together) are cut to this norm."""
    critic_passes: int = 0
    """Times that the critic goes through an epoch's data alone, before advantages are taken; 0: with the policy."""
    critic_lambda: float | None = None
    """The gae_lambda of what the critic learns; None takes gae_lambda."""


class TrainingConfig(Protocol):
    """What every kind of training run has."""

    @property
    def name(self) -> str:
        """Of the run's folder, where nothing else is asked for."""

    @property
    def agents(self) -> int: ...
    @property
    def replica_count(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def env(self) -> str: ...
    @property
    def epochs(self) -> int: ...
    @property
    def epoch_steps(self) -> int: ...
    @property
    def has_segments(self) -> bool: ...
    @property
    def epochs_per_horizon(self) -> int: ...
    @property
    def checkpoint_every(self) -> int | None: ...
    @property
    def keep_checkpoints(self) -> int: ...
    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides what a run computes, and where it is kept."""

    env: str = "ant-empty"
    """World to explore: ant-empty, ant-maze, ant-cave, ant-pyramid, point-maze, or any Gymnasium id."""
    env_settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the environment, such as map u or size 7 (values are read as JSON where they can be)."""
    horizon: int = 200
    """Control steps per episode (the paper's T, 600 there)."""
    features: tuple[str, ...] = ()
    """State features whose entropy is maximised; empty takes the world's own (Ant: x y z, PointMaze: x y)."""

    agents: int = 10
    """Policies in the population (heads of the network)."""
    replicas: int | None = None
    """Copies of the environment, split evenly over the agents; none takes about 100."""
    epochs: int = 480
    """Updates of the population."""
    segment: int | None = None
    """Control steps per epoch, from replicas at staggered ages; the horizon's own length collects whole horizons from
    reset (the paper). None takes about 25 for actor_critic in our worlds, 100 in PointMaze, and whole horizons
    elsewhere."""
    seed: int = 0
    """All randomness is a function of this, the epoch and the replica."""

    k: int = 5
    """Neighbours of the entropy estimate."""
    update: UpdateRule = "actor_critic"
    """actor_critic learns fastest; reinforce is the paper's single gradient step; trust_region is MEPOL's."""
    learning_rate: float = 1e-3
    """Adam's rate; actor_critic only starts with it and steers it by target_kl."""
    diversity: float = 1.0
    """actor_critic: weight of the mutual information of state and head, which sends heads different ways; 0 leaves the
    entropy of all of them together, the paper's objective."""
    compass: float = 0.0
    """actor_critic: how far, in standard deviations, each agent is expected in a direction of its own, evenly around
    the plane of the first two features, when heads are told apart; 0 lets them find their ways by chance."""
    gamma: float = 0.99
    """actor_critic: discount per control step."""
    gae_lambda: float = 0.95
    """actor_critic: how far advantages trust rewards over the critic; 0 is one step, 1 to the end."""
    clip: float = 0.2
    """actor_critic: ratios of probabilities beyond 1 +- this give no gradient."""
    passes: int = 4
    """actor_critic: times that an epoch's steps are gone through."""
    minibatches: int = 4
    """actor_critic: gradient steps per pass."""
    target_kl: float = 0.1
    """actor_critic: change of the policy per epoch that the learning rate is steered to, nats."""
    critic: tuple[int, ...] = (64, 64)
    """actor_critic: hidden sizes of the value functions; the last is each agent's own."""
    learning_rate_milestones: tuple[int, ...] = ()
    """reinforce, trust_region: epochs after which the rate is multiplied by the decay."""
    learning_rate_decay: float = 0.5
    """reinforce, trust_region: factor of the rate at each milestone."""
    kl_bound: float = 0.1
    """trust_region: largest KL between the state distributions before and after an epoch's steps."""
    trust_region_steps: int = 30
    """trust_region: most gradient steps per epoch."""

    normalise_observations: bool = True
    """Shift and scale observations by their running mean and deviation, which become part of the policy."""
    trunk: tuple[int, ...] = (256, 128)
    """Hidden sizes of the network that all agents share."""
    adapter: int = 64
    """Hidden size of each agent's own layer."""
    own_rate: float | None = OWN_RATE
    """How fast an agent's own layers learn beside what all have in common there: agents start alike and grow apart.
    None leaves nothing in common but the trunk: each agent starts with random layers of its own (the paper)."""
    mirrors: bool = False
    """With a compass: agents see the world in mirrors that turn their directions into the first quadrant, where robots
    are their own mirror images (Ants are), so that those that go left learn from those that go right."""
    turns: bool = False
    """With a compass: agents see the world turned so that their directions lie straight ahead, where robots can be
    (Ants can), and are told apart by their directions alone: all learn the same thing."""
    own_adapters: bool = True
    """Whether agents' adapters have weights of their own, or only biases, beside output layers: many agents are faster
    with weights in common. Without an own_rate they have their own in any case."""
    direction_rate: float = 0.0
    """With a compass: how fast agents' layers learn, together, what depends on their directions; 0 leaves that to a
    bias."""
    activation: Activation = "elu"
    """Of all hidden layers; the paper has relu."""
    initial_sigma: float = 0.18
    """Standard deviation of the raw actions at the start; at 1 the Ant ends up on its back."""
    sigma_min: float = 0.01
    """Smallest standard deviation."""
    sigma_max: float = 2.0
    """Largest standard deviation."""

    chunk: int = 8_192
    """Steps per forward and backward pass of an update: bounds the memory, does not change the result's meaning."""
    threads: int | None = None
    """CPU threads for physics and network; none takes all cores. Changes no number."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints; none takes as many as make a horizon."""
    keep_checkpoints: int = 3
    """Checkpoints kept; older ones are removed."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.sigma_min <= self.initial_sigma <= self.sigma_max:
            raise UsageError(
                f"initial_sigma must lie between sigma_min and sigma_max; got {self.sigma_min} <= {self.initial_sigma}"
                f" <= {self.sigma_max}"
            )
        check_choice("update", self.update, get_args(UpdateRule))
        check_choice("activation", self.activation, get_args(Activation))
        check_segment(self.segment, self.horizon)
        replicas_per_agent(self.agents, self.replica_count)

    @property
    def name(self) -> str:
        """Of the run's folder, where nothing else is asked for."""
        return f"{self.env.replace('/', '-')}-{self.agents}-agents-seed-{self.seed}"

    @property
    def replica_count(self) -> int:
        """Replicas of all agents together."""
        return self.replicas or even_split(REPLICAS, self.agents)

    @property
    def epoch_steps(self) -> int:
        """Control steps of every replica per epoch: the paper's T, or a segment."""
        if self.segment is None and self.update != "actor_critic":
            return self.horizon
        about = POINT_MAZE_SEGMENT if find_id(self.env) == IDS["point-maze"] else SEGMENT
        return steps_per_epoch(self.segment, self.env, self.horizon, about)

    @property
    def has_segments(self) -> bool:
        """Whether epochs end in the middle of episodes."""
        return self.epoch_steps < self.horizon

    @property
    def epochs_per_horizon(self) -> int:
        """How many epochs' steps make one horizon."""
        return self.horizon // self.epoch_steps

    @property
    def actor_critic(self) -> ActorCriticSettings:
        return actor_critic_settings(self)

    def as_json(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings."""
        return plain(self)


def actor_critic_settings(config: Any) -> ActorCriticSettings:
    """Those of the settings of a run that the update needs."""
    names = [field.name for field in fields(ActorCriticSettings) if hasattr(config, field.name)]
    return ActorCriticSettings(**{name: getattr(config, name) for name in names})


Config = TypeVar("Config", bound="DataclassInstance")


def config_from(settings: Mapping[str, Any], base: PretrainConfig | None = None) -> PretrainConfig:
    """A pretraining config from names and values (keyword arguments, or a run's config.json) on top of `base`."""
    return changed(base or PretrainConfig(), settings)


def changed(base: Config, settings: Mapping[str, Any]) -> Config:
    """`base` with other values for some of its fields; lists become tuples."""
    known = sorted(field.name for field in fields(base))
    for name in settings:
        if name not in known:
            raise UsageError(f"unknown setting {name!r}{nearest_name(name, known)}")
    tuples: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in settings.items()}
    return dataclasses.replace(base, **tuples)


def plain(config: "DataclassInstance") -> dict[str, Any]:
    """A config as lists, dicts, numbers and strings."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(config).items()}


def steps_per_epoch(segment: int | None, env: str, horizon: int, about: int = SEGMENT) -> int:
    """Of every replica under actor_critic: the segment asked for, `about` so many in our worlds, or a whole horizon."""
    if segment is not None:
        return segment
    if find_id(env) not in IDS.values():
        return horizon
    return min(nearest_divisors(horizon, about), key=lambda steps: abs(steps - about))


def check_numbers(config: "DataclassInstance", bounds: Mapping[str, tuple[float, float]] = BOUNDS) -> None:
    """Refuse numbers beyond `bounds`, and layers or milestones that are no counts."""
    for name, value in vars(config).items():
        if name in bounds:
            check_number(name, value, *bounds[name])
        if name in ("trunk", "critic", "learning_rate_milestones"):
            for count in value:
                check_number(f"each of {name}", count, 1, 1_000_000)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"unknown {name} {value!r}{nearest_name(value, choices)}")


def check_segment(segment: int | None, horizon: int) -> None:
    if segment is not None and horizon % segment:
        below, above = nearest_divisors(horizon, segment)
        raise UsageError(
            f"segment must divide the horizon of {horizon}, so that the pool is one horizon long; got"
            f" {segment}, nearest: {below} or {above}"
        )


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


def even_split(about: int, agents: int) -> int:
    """The number of replicas next to `about` that gives every agent as many as any other, one at least."""
    return agents * max(1, round(about / agents))


def nearest_divisors(number: int, near: int) -> tuple[int, int]:
    """The divisors of `number` next below and next above `near`."""
    below = next(candidate for candidate in range(min(near, number), 0, -1) if number % candidate == 0)
    above = next((candidate for candidate in range(near, number + 1) if number % candidate == 0), number)
    return below, above
