"""The settings of runs: one small frozen dataclass per room, the same for the command line, Python and `config.json`.

Names are unique across the blocks of a config, so that keywords and flags are flat: `agents=50`, `--agents 50`. A block
checks its own values (`checks.py` has how); what concerns several blocks is checked by the config that holds them.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeVar

import tyro

from kmyriad.checks import Between, check_fields, converted
from kmyriad.errors import UsageError, nearest_name

FORMAT = 2
"""Of `config.json`. Format 1 was flat, and called an iteration an epoch."""

Activation = Literal["elu", "relu"]
Init = Literal["best", "single", "random", "policy"]
Engine = Literal["auto", "serial", "processes", "vector", "warp"]

Count = Annotated[int, Between(1, 10_000_000)]
Steps = Annotated[int, Between(1, 10**13)]
Rate = Annotated[float, Between(1e-12, 100.0)]
Fraction = Annotated[float, Between(0.0, 1.0)]
Width = Annotated[int, Between(1, 65_536)]


@dataclass(frozen=True)
class WorldConfig:
    """What is explored."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")] = "ant-empty"
    """World: ant-empty, ant-maze, ant-cave, ant-pyramid, point-maze, any Gymnasium id (also package.module:Id-v0), or
    package.module:function that makes an environment."""
    env_settings: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Settings of the environment itself, such as map or reset_noise."""
    horizon: Count = 200
    """Control steps per episode (T; 600 in the paper)."""
    features: tuple[str, ...] = ()
    """State features whose entropy is maximised: columns (0 2:4), parts of a Dict, info.NAME, or of MuJoCo x y z,
    qpos[0], a joint, torso.x; empty takes the position of what moves about, else the observation."""
    feature_scale: tuple[Annotated[float, Between(0.0, 1e9)], ...] = ()
    """Scale of each feature, the length in it that counts as one; 0 takes its deviation over the visited states. Empty:
    1 for metres, 0 for the rest."""
    action_range: tuple[Annotated[float, Between(-1e9, 1e9)], Annotated[float, Between(-1e9, 1e9)]] | None = None
    """Range of actions that the environment itself leaves unbounded, such as -1 1."""
    engine: Engine = "auto"
    """Engine that steps the replicas: of other people's environments serial (one process), processes (one per core) or
    vector (their own vector version); of worlds warp (MuJoCo Warp); auto is what is fastest."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_features(self.features, self.feature_scale)
        if self.action_range is not None and self.action_range[0] >= self.action_range[1]:
            raise UsageError(f"action_range must be a lower and a higher number; got {self.action_range}")


def check_features(features: tuple[str, ...], scale: tuple[float, ...]) -> None:
    """Refuse a scale for another number of features; how many numbers a name stands for only the environment knows."""
    if scale and len(scale) < len(features):
        raise UsageError(f"feature_scale must have a number for each of {len(features)} features; got {len(scale)}")


@dataclass(frozen=True)
class PopulationConfig:
    """The agents and their network."""

    agents: Annotated[int, Between(1, 10_000)] = 10
    """Number of policies in the population."""
    trunk_hidden: tuple[Width, ...] = (256, 128)
    """Hidden sizes of the trunk that all agents share."""
    agent_hidden: Width = 64
    """Hidden size of each agent's own layer."""
    activation: Activation = "elu"
    """Activation of all hidden layers; relu in the paper."""
    initial_std: Annotated[float, Between(1e-4, 100.0)] = 0.18
    """Standard deviation of the raw actions at the start; at 1 the Ant ends up on its back."""
    std_range: tuple[Annotated[float, Between(1e-6, 1e4)], Annotated[float, Between(1e-6, 1e4)]] = (0.01, 2.0)
    """Smallest and largest standard deviation."""
    normalise_observations: bool = True
    """Normalise observations by their running mean and deviation, which become part of the policy."""
    code_size: Annotated[int, Between(1, 10_000)] | None = 2
    """Numbers in an agent's code. Its layers are those in common plus what is linear in its code: agents start alike
    and diverge. As many as agents: a part of its own each. None: independent random layers (the paper's network)."""
    code_rate: Annotated[float, Between(1e-6, 1.0)] = 0.1
    """Learning rate of what is linear in the codes, relative to what is in common."""
    priors: bool = True
    """See the world through the symmetries that its environment declares, several agents each through one of them."""

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.std_range
        if not low <= self.initial_std <= high:
            raise UsageError(f"initial_std must lie within std_range; got {self.initial_std:g} and {low:g} to {high:g}")


@dataclass(frozen=True)
class ObjectiveConfig:
    """What visited states are worth."""

    neighbours: Annotated[int, Between(1, 10_000)] = 5
    """Nearest neighbours (k) of the entropy estimate."""
    diversity_weight: Annotated[float, Between(0.0, 1000.0)] = 2.0
    """Weight of how far agents go, each its own way (actor_critic, agents with codes); 0: the pooled entropy alone."""
    objective_function: Annotated[str, tyro.conf.Suppress] = ""
    """Name of the function, where an objective was given from Python; empty for the one that these settings ask for."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class ActorCritic:
    """Clipped actor-critic (PPO) with a critic per agent: the default."""

    learning_rate: Rate = 1e-3
    """Learning rate of Adam; with desired_kl only its start."""
    gamma: Fraction = 0.99
    """Discount per control step."""
    gae_lambda: Fraction = 0.9
    """Lambda of generalised advantage estimation."""
    clip_range: Annotated[float, Between(1e-3, 10.0)] = 0.2
    """Clip range of the probability ratios."""
    update_epochs: Annotated[int, Between(1, 1000)] = 4
    """Passes over the steps of an iteration."""
    minibatches: Annotated[int, Between(1, 10_000)] = 4
    """Minibatches (gradient steps) per pass."""
    desired_kl: Annotated[float, Between(1e-6, 10.0)] | None = 0.1
    """KL of the actions per iteration that the learning rate is steered to, nats; none keeps the rate."""
    entropy_coef: Annotated[float, Between(0.0, 100.0)] = 0.0
    """Weight of the entropy of the actions."""
    max_grad_norm: Annotated[float, Between(1e-6, 1e9)] = 1.0
    """Gradient clipping: the largest norm."""
    critic_hidden: tuple[Width, ...] = (64, 64)
    """Hidden sizes of the value functions; the last is each agent's own."""
    critic_learning_rate: Rate | None = None
    """Learning rate of the critic; none takes the policy's, wherever desired_kl steers it."""
    critic_epochs: Annotated[int, Between(0, 100_000)] = 0
    """Passes of the critic alone, before the policy learns; 0: both learn at once."""
    critic_lambda: Fraction | None = None
    """Lambda of the critic's own targets, with critic_epochs; none takes gae_lambda."""
    averaged_iterations: Annotated[int, Between(1, 1_000_000)] = 1
    """Moving average of the weights, over about so many iterations, that checkpoints give as policies; 1: none."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.critic_hidden:
            raise UsageError("critic_hidden must name at least one hidden size; got none")


@dataclass(frozen=True)
class Reinforce:
    """The paper's single gradient step on the exact gradient of the entropy."""

    learning_rate: Rate = 1e-3
    """Learning rate of Adam."""
    lr_milestones: tuple[Count, ...] = ()
    """Iterations after which the learning rate is multiplied by lr_decay."""
    lr_decay: Annotated[float, Between(1e-6, 1.0)] = 0.5
    """Factor of the learning rate at each milestone."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class TrustRegion:
    """MEPOL's gradient steps within a bound on the change of the state distribution."""

    learning_rate: Rate = 1e-3
    """Learning rate of Adam."""
    lr_milestones: tuple[Count, ...] = ()
    """Iterations after which the learning rate is multiplied by lr_decay."""
    lr_decay: Annotated[float, Between(1e-6, 1.0)] = 0.5
    """Factor of the learning rate at each milestone."""
    kl_bound: Annotated[float, Between(1e-9, 1e3)] = 0.1
    """Largest KL between the state distributions before and after an iteration's steps."""
    trust_region_steps: Annotated[int, Between(1, 10_000)] = 30
    """Most gradient steps per iteration."""

    def __post_init__(self) -> None:
        check_fields(self)


UpdateRule = ActorCritic | Reinforce | TrustRegion
RULES: dict[str, type[ActorCritic] | type[Reinforce] | type[TrustRegion]] = {
    "actor_critic": ActorCritic,
    "reinforce": Reinforce,
    "trust_region": TrustRegion,
}


@dataclass(frozen=True)
class RunConfig:
    """How long, how wide, and what is kept."""

    total_steps: Steps = 1_200_000
    """Environment steps of all replicas together, after which the run ends."""
    replicas: Count | None = None
    """Copies of the environment, split evenly over the agents; none takes about 100 (jump-start: 200)."""
    rollout_steps: Count | None = 25
    """Control steps of every replica per iteration, going on from the last one; none, or the horizon: from a reset."""
    seed: Annotated[int, Between(0, 2**63 - 1)] = 0
    """Seed: all randomness is a function of it, the iteration and the replica."""
    threads: Annotated[int, Between(1, 4096)] | None = None
    """CPU threads for physics and network; none takes all cores."""
    device: str = "cpu"
    """Device of policies, rewards and updates: cpu, cuda, cuda:1, or auto for a GPU where there is one."""
    checkpoint_every: Count | None = None
    """Iterations between checkpoints; none takes as many as make a horizon."""
    keep_checkpoints: Annotated[int, Between(1, 10_000_000)] = 3
    """Checkpoints kept; older ones are removed."""
    wandb: str = ""
    """Weights & Biases project that metrics go to as well (extra: wandb); empty: none."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not re.fullmatch(r"cpu|auto|cuda(:\d{1,3})?", self.device):
            raise UsageError(f"device must be cpu, cuda, cuda:1 (or another number) or auto; got {self.device!r}")


@dataclass(frozen=True)
class Rollouts:
    """The sizes that a config comes to."""

    agents: int
    replicas: int
    """Of all agents together."""
    horizon: int
    steps: int
    """Of every replica per iteration."""

    @property
    def per_agent(self) -> int:
        """Replicas of one agent."""
        return self.replicas // self.agents

    @property
    def are_segments(self) -> bool:
        """Whether iterations end in the middle of episodes."""
        return self.steps < self.horizon

    @property
    def per_horizon(self) -> int:
        """How many iterations' steps make one horizon."""
        return math.ceil(self.horizon / self.steps)

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of all replicas together."""
        return self.replicas * self.steps


@dataclass(frozen=True)
class PretrainConfig:
    """Everything that decides what pretraining computes, and how it is kept."""

    world: WorldConfig = WorldConfig()
    population: PopulationConfig = PopulationConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    update: ActorCritic | Reinforce | TrustRegion = ActorCritic()
    run: RunConfig = RunConfig()

    def __post_init__(self) -> None:
        _ = self.rollouts

    @property
    def name(self) -> str:
        """Of the run's folder, where nothing else is asked for."""
        return f"{file_name(self.world.env)}-{self.population.agents}-agents-seed-{self.run.seed}"

    @property
    def rule(self) -> str:
        """The update rule by name."""
        return rule_name(self.update)

    @property
    def rollouts(self) -> Rollouts:
        return _rollouts(self.population.agents, self.run, self.world.horizon, about=100)

    def as_json(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings; `command` tells what made the run."""
        return _as_json("pretrain", self)


@dataclass(frozen=True)
class StartConfig:
    """Which policy is fine-tuned."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = ""
    """Pretraining run to start from, by its folder; for init random and init policy a world's name will do."""
    init: Init = "best"
    """Initial policy: best (agent of the run), single (of a run of one), random (fresh weights), policy (in a file)."""
    policy: str = ""
    """Policy trained elsewhere, for init policy: a file of SB3, rsl_rl or ONNX, or exported weights."""
    policy_activation: Literal["auto", "elu", "relu", "tanh"] = "auto"
    """Activation of that policy; auto takes what the file tells, or what its library does by default."""
    agent: Annotated[int, Between(0, 9_999)] | None = None
    """Agent to take, instead of choosing one."""
    top: Annotated[int, Between(1, 10_000)] = 1
    """Number of best agents to fine-tune side by side: different solutions of one task."""
    selection_steps: Steps | None = None
    """Environment steps that selecting may take at most; none lets it grow with agents and horizon."""
    critic_warm_up: Annotated[int, Between(0, 10_000_000)] = 8
    """Warm-up: iterations at the start in which only the critic learns."""
    asymmetric_critic: bool | None = False
    """Show the critic the features that were explored; none: where a goal is given in some that policies cannot see."""
    pace: Annotated[float, Between(1e-6, 1.0)] | None = 1.0
    """What 1 - gamma and desired_kl are multiplied by; none: 200 / horizon, at most 1, where there is a goal."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.agent is not None and self.top != 1:
            raise UsageError(f"agent {self.agent} and top {self.top} exclude each other; leave one out")


@dataclass(frozen=True)
class TaskConfig:
    """What is to be learned."""

    goal: tuple[Annotated[float, Between(-1e9, 1e9)], ...] = ()
    """Goal: a point in the features that were explored, such as 6 3, or x=10 by name; reward 1 within its radius.
    Without one the task is the environment's own reward."""
    goal_names: tuple[str, ...] = ()
    """Features that the goal is a point in, as x=10 says; empty for the first ones."""
    goal_radius: Annotated[float, Between(1e-9, 1e9)] | None = None
    """Radius around the goal that counts as there; none takes the environment's own (1 m for Ants)."""
    stop_at_goal: bool = True
    """End training's episodes once the goal is entered (reward 1). Off: reward 1 for every step in the goal. Needs
    rollout_steps below the horizon."""
    episode_limit: Count | None = None
    """Limit of training's episodes that stop at the goal, steps; none: half again what nine in ten successes take."""
    env: str = ""
    """World; empty takes the source's, which it must be."""
    env_settings: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Settings of the environment itself, on top of the source's."""
    features: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """State features that the source explored."""
    engine: Engine = "auto"
    """Engine that steps the replicas: serial, processes, vector, warp or auto."""
    horizon: Count | None = None
    """Control steps per episode; none takes the source's."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.goal_names and len(self.goal_names) != len(self.goal):
            raise UsageError(f"goal has {len(self.goal)} numbers for {len(self.goal_names)} names; give one each")

    @property
    def goal_words(self) -> list[str]:
        """`6` and `3`, or `x=10`: as the command line takes them."""
        numbers = [f"{number:g}" for number in self.goal]
        return [f"{name}={number}" for name, number in zip(self.goal_names, numbers, strict=False)] or numbers


FINE_TUNING = ActorCritic(
    learning_rate=3e-4,
    gae_lambda=0.5,
    desired_kl=0.03,
    max_grad_norm=0.5,
    critic_hidden=(128, 128),
    critic_learning_rate=1e-3,
    critic_epochs=16,
    critic_lambda=0.95,
)
"""What a policy that can already do something is trained on with, in episodes of 200 steps: see `pace`."""

PACED_FOR = 200
"""Steps of the episodes that gamma and desired_kl were chosen with."""


@dataclass(frozen=True)
class JumpstartConfig:
    """Everything that decides what a jump-start computes, and how it is kept."""

    task: TaskConfig = TaskConfig()
    start: StartConfig = StartConfig()
    update: ActorCritic = FINE_TUNING
    run: RunConfig = RunConfig(total_steps=2_000_000)

    def __post_init__(self) -> None:
        if not isinstance(self.update, ActorCritic):
            raise UsageError(f"a jump-start is trained by actor_critic; got update {rule_name(self.update)}")
        if self.task.horizon is not None:
            _ = self.rollouts

    @property
    def name(self) -> str:
        """Of the run's folder, where nothing else is asked for."""
        goal = "-".join(["to", *(file_name(word) for word in self.task.goal_words)]) if self.task.goal else "own-reward"
        return f"{file_name(self.task.env)}-{self.start.init}-{goal}-seed-{self.run.seed}"

    @property
    def rollouts(self) -> Rollouts:
        if self.task.horizon is None:
            raise UsageError("the horizon is the source's, which has not been read yet; give horizon")
        return _rollouts(self.start.top, self.run, self.task.horizon, about=200)

    @property
    def paced_update(self) -> ActorCritic:
        """`update` at the pace asked for: how far it looks ahead, and how far policies move in an iteration."""
        pace = self.start.pace
        if pace is None:
            pace = min(1.0, PACED_FOR / self.rollouts.horizon) if self.task.goal else 1.0
        if pace == 1.0:
            return self.update
        kl = self.update.desired_kl
        return dataclasses.replace(
            self.update, gamma=1 - (1 - self.update.gamma) * pace, desired_kl=None if kl is None else kl * pace
        )

    @property
    def stops_at_goal(self) -> bool:
        """Whether training's episodes do. Whole horizons would cut off the second try of those who were quick."""
        return self.task.stop_at_goal and bool(self.task.goal) and self.rollouts.are_segments

    def as_json(self) -> dict[str, Any]:
        """Plain lists, dicts, numbers and strings; `command` tells what made the run."""
        return _as_json("jumpstart", self)


Config = TypeVar("Config", PretrainConfig, JumpstartConfig)
CONFIGS: dict[str, type[PretrainConfig] | type[JumpstartConfig]] = {
    "pretrain": PretrainConfig,
    "jumpstart": JumpstartConfig,
}
"""By the command that makes such runs."""


def with_settings(base: Config, settings: Mapping[str, Any]) -> Config:
    """`base` with other values for some of its settings, named flatly; `update` may name another rule."""
    settings = dict(settings)
    if "update" in settings:
        rule: Any = _rule(settings.pop("update"), base.update)
        base = dataclasses.replace(base, update=rule)
    blocks = {block.name: getattr(base, block.name) for block in fields(base)}
    owners = {setting.name: name for name, block in blocks.items() for setting in fields(block)}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if name not in owners:
            raise UsageError(_unknown(name, owners, base.update))
        changes.setdefault(owners[name], {})[name] = value
    return dataclasses.replace(
        base, **{name: dataclasses.replace(blocks[name], **values) for name, values in changes.items()}
    )


def config_from_json(content: Mapping[str, Any]) -> PretrainConfig | JumpstartConfig:
    """The config that `as_json` told; whatever is wrong with it is one sentence.

    A setting that was added since has its default, so that runs and packs of earlier versions stay readable. The
    environment is no such setting: every run names its own.
    """
    if content.get("format") != FORMAT:
        raise UsageError(
            f"its settings are of format {content.get('format', 1)!r}, and this kmyriad reads format {FORMAT}; open it"
            " with the kmyriad that its versions.json names, or train it again"
        )
    command = content.get("command")
    if not isinstance(command, str) or command not in CONFIGS:
        raise UsageError(f"command must be one of {', '.join(CONFIGS)}; got {command!r}")
    made = CONFIGS[command]
    blocks: dict[str, Any] = {}
    for block in fields(made):
        told = content.get(block.name)
        if not isinstance(told, dict):
            raise UsageError(f"the settings must have a block {block.name!r}; got {told!r}")
        told = dict(told)
        kind: Any = type(block.default)
        if block.name == "update":
            kind = type(_rule(told.pop("rule", None)))
        known = [setting.name for setting in fields(kind)]
        for name in told:
            if name not in known:
                raise UsageError(f"unknown setting {name!r} in block {block.name!r}{nearest_name(str(name), known)}")
        if "env" in known and "env" not in told:
            raise UsageError(f"block {block.name!r} does not name its environment; add the setting 'env' again")
        default: Any = block.default if type(block.default) is kind else kind()
        blocks[block.name] = dataclasses.replace(default, **told)
    return made(**blocks)


def settings_of(config: PretrainConfig | JumpstartConfig) -> dict[str, Any]:
    """All settings by their flat names, and the update rule by its own."""
    blocks = (getattr(config, block.name) for block in fields(config))
    told = {setting.name: getattr(block, setting.name) for block in blocks for setting in fields(block)}
    return {"update": rule_name(config.update)} | told


def rule_name(update: UpdateRule) -> str:
    """The name of an update rule, as in `--update reinforce`."""
    return next(name for name, kind in RULES.items() if type(update) is kind)


def file_name(env: str) -> str:
    """An environment's id as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in env)


def even_split(about: int, agents: int) -> int:
    """The number of replicas next to `about` that gives every agent as many as any other, one at least."""
    return agents * max(1, round(about / agents))


def _rule(asked: Any, now: UpdateRule | None = None) -> UpdateRule:
    """The update rule asked for by its name, with the settings it has now if it is the same one."""
    if isinstance(asked, UpdateRule):
        return asked
    if not isinstance(asked, str) or asked not in RULES:
        raise UsageError(f"unknown update {asked!r}{nearest_name(str(asked), RULES)}")
    return now if now is not None and type(now) is RULES[asked] else RULES[asked]()


def _unknown(name: str, known: Mapping[str, str], update: UpdateRule) -> str:
    for rule, kind in RULES.items():
        if any(setting.name == name for setting in fields(kind)):
            return f"{name} is a setting of update {rule}, and this run has update {rule_name(update)}; leave it out"
    return f"unknown setting {name!r}{nearest_name(name, sorted(known))}"


def _rollouts(agents: int, run: RunConfig, horizon: int, about: int) -> Rollouts:
    replicas = run.replicas or even_split(about, agents)
    if replicas % agents:
        below = replicas // agents * agents
        choices = " or ".join(str(count) for count in (below, below + agents) if count)
        raise UsageError(f"{replicas} replicas cannot be split evenly over {agents} agents; use {choices} replicas")
    return Rollouts(agents, replicas, horizon, min(run.rollout_steps or horizon, horizon))


def _as_json(command: str, config: PretrainConfig | JumpstartConfig) -> dict[str, Any]:
    blocks = {block.name: converted(dataclasses.asdict(getattr(config, block.name))) for block in fields(config)}
    blocks["update"] = {"rule": rule_name(config.update)} | blocks["update"]
    return {"format": FORMAT, "command": command, **blocks}
