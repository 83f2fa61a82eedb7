"""What a run needs to go on: weights, optimizer, counters and, with segments, replicas in mid-episode and the pool."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kmyriad.checks import checked
from kmyriad.errors import UsageError, first_line
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Segment, Visits
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.architecture import check_architecture
from kmyriad.runs.checkpoints import checkpoint_path, newest_checkpoint
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.tensor_file import CheckpointError, TensorFile, read_tensor_file, write_tensor_file

COUNTERS = ("iteration", "env_steps", "bad_gradients", "skipped_updates")


@dataclass
class TrainingState:
    population: Population
    optimizer: torch.optim.Optimizer
    """Of all parameters, the critic's included; the first group's learning rate may move, those of others do not."""
    critic: Critic | None = None
    """Where the update rule learns with one."""
    iteration: int = 0
    """The iteration under way, or the last one done."""
    env_steps: int = 0
    bad_gradients: int = 0
    """Updates in a row that were skipped for a gradient that was not finite."""
    skipped_updates: int = 0
    """Such updates in all."""
    success_steps: list[int] = field(default_factory=list)
    """Of a task that is being learned: how many steps its last successes took."""
    pool: list[Segment] = field(default_factory=list)
    average: dict[str, torch.Tensor] = field(default_factory=dict)
    """Moving average of the policies' weights, where one is kept: what a checkpoint gives to those who only read it."""

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def count(self, env_steps: int, good_gradient: bool) -> None:
        """Add an iteration's work to the counters."""
        self.env_steps += env_steps
        self.bad_gradients = 0 if good_gradient else self.bad_gradients + 1
        self.skipped_updates += not good_gradient

    @torch.no_grad()
    def average_in(self, iterations: int) -> None:
        """Let the average follow the weights: the plain mean, later an exponential one (Polyak & Juditsky 1992)."""
        if iterations == 1:
            return
        for name, parameter in self.population.named_parameters():
            if name not in self.average:
                self.average[name] = parameter.detach().clone()
            self.average[name].lerp_(parameter, 1 / min(self.iteration, iterations))

    def checkpoint(self, replicas: Replicas | None) -> TensorFile:
        """Everything to go on from, of all processes; `replicas` only where they are in the middle of episodes."""
        tensors = {f"population.{name}": tensor for name, tensor in self.population.state_dict().items()}
        tensors |= {f"average.{name}": tensor for name, tensor in self.average.items()}
        if self.critic is not None:
            tensors |= {f"critic.{name}": tensor for name, tensor in self.critic.state_dict().items()}
        for index, entries in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in entries.items()}
        if replicas is not None:
            simulator = replicas.get_state()
            if simulator is not None:
                tensors |= {f"simulator.{name}": torch.from_numpy(array) for name, array in simulator.items()}
            for index, segment in enumerate(self.pool):
                tensors |= {f"pool.{index}.{name}": tensor for name, tensor in vars(segment).items()}
        counters = {name: int(getattr(self, name)) for name in COUNTERS}
        rates = {"learning_rate": self.learning_rate, "success_steps": self.success_steps}
        return TensorFile(tensors, {**counters, **rates, "architecture": self.population.architecture()})

    def restore(self, checkpoint: TensorFile, replicas: Replicas | None) -> None:
        """Put everything back to the bit. Replicas that cannot be put back stay as they are, and are not running."""
        facts = checkpoint.facts
        try:
            self.population.load_state_dict(_under("population", checkpoint))
            self._restore_average(_under("average", checkpoint))
            if self.critic is not None:
                self.critic.load_state_dict(_under("critic", checkpoint))
            self.optimizer.param_groups[0]["lr"] = checked("learning_rate", facts["learning_rate"], float)
            self._restore_optimizer(_under("optimizer", checkpoint))
            if replicas is not None:
                if replicas.can_be_saved:
                    simulator = {name: tensor.numpy() for name, tensor in _under("simulator", checkpoint).items()}
                    replicas.set_state(simulator)
                self.pool = _restore_pool(_under("pool", checkpoint), self.population.device)
            self.success_steps = list(checked("success_steps", facts["success_steps"], tuple[int, ...]))
            for name in COUNTERS:
                setattr(self, name, checked(name, facts[name], int))
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not fit this run's settings: {first_line(error)}") from error

    def _restore_average(self, tensors: dict[str, torch.Tensor]) -> None:
        """One of every parameter, or none."""
        parameters = self.population.named_parameters() if tensors else ()
        self.average = {name: tensors[name].view_as(one).to(one.device) for name, one in parameters}

    def _restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        state = self.optimizer.state_dict()
        entries: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            index, key = name.split(".", 1)
            entries.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**state, "state": entries})


def adam(groups: list[dict[str, Any]], device: torch.device, rate: float = 1e-3) -> torch.optim.Optimizer:
    """The optimizer of all update rules; `rate` is that of groups that have none of their own."""
    return torch.optim.Adam(groups, lr=rate, fused=device.type in ("cpu", "cuda"))


def load_population(run: Run | str | Path, iteration: int | None = None, *, averaged: bool = True) -> Population:
    """The population of a run as its newest good checkpoint has it, or that of `iteration`.

    Where a moving average of the weights was kept it is that, unless not `averaged`: then those that training had last.
    """
    run = open_run(run, trusted=True)  # nothing is made from its settings
    if iteration is None:
        return load_newest(run, averaged)[0]
    return _population(run, read_tensor_file(checkpoint_path(run.checkpoints, iteration)), averaged)


def load_newest(run: Run, averaged: bool = True) -> tuple[Population, dict[str, Any]]:
    """The population of the newest good checkpoint, and that checkpoint's facts (iteration, env_steps, ...)."""
    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        raise UsageError(f"{run.given} has no checkpoint yet; let it train for an iteration first")
    facts = newest.content.facts
    for name in COUNTERS:
        if type(facts.get(name)) is not int:
            raise CheckpointError(f"the newest checkpoint of {run.given} is malformed: {name} is {facts.get(name)!r}")
    return _population(run, newest.content, averaged), facts


def save_last_horizon(run: Run, pool: list[Segment]) -> None:
    """Keep what figures need of the last horizon: features, positions and validity of every step, (m, p, T, ...)."""
    names = ("features", "valid", "xy")
    tensors = {name: torch.cat([getattr(segment, name) for segment in pool], dim=2) for name in names}
    write_tensor_file(run.last_horizon_path, TensorFile(tensors, {}))


def load_last_horizon(run: Run | str | Path) -> Visits | None:
    """Where all agents were in training's last horizon, None if that is not stored yet."""
    run = open_run(run)
    return visits_from(run.last_horizon_path)[0] if run.last_horizon_path.exists() else None


def visits_from(path: Path) -> tuple[Visits, dict[str, Any]]:
    """Stored visits and the facts beside them; CheckpointError if they are none."""
    stored = read_tensor_file(path)
    arrays = {name: tensor.numpy() for name, tensor in stored.tensors.items()}
    try:
        visits = Visits(arrays["features"], arrays["xy"], arrays["valid"])
        shape = visits.valid.shape
        fits = visits.valid.dtype == bool and len(shape) == 3 and min(shape) > 0
        fits &= visits.features.ndim == 4 and visits.features.shape[:3] == shape
        fits &= visits.xy.shape == (*shape, 2)
    except KeyError:
        fits = False
    if not fits:
        raise CheckpointError(f"{path} is malformed: it holds no visits of one shape; remove it")
    return visits, stored.facts


def _population(run: Run, checkpoint: TensorFile, averaged: bool) -> Population:
    tensors, averages = _under("population", checkpoint), _under("average", checkpoint) if averaged else {}
    tensors = {name: averages.get(name, tensor) for name, tensor in tensors.items()}
    try:
        check_architecture(checkpoint.facts["architecture"], tensors)
        population = Population.build(checkpoint.facts["architecture"])
        population.load_state_dict(tensors)
    except (AttributeError, KeyError, RuntimeError, TypeError, UsageError, ValueError) as error:
        raise CheckpointError(
            f"the policies in {run.given} do not fit this version of kmyriad; use the one that its versions.json names,"
            " or train them again"
        ) from error
    return population


def _under(prefix: str, checkpoint: TensorFile) -> dict[str, torch.Tensor]:
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in checkpoint.tensors.items() if name.startswith(start)}


def _restore_pool(tensors: dict[str, torch.Tensor], device: torch.device) -> list[Segment]:
    parts: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        parts.setdefault(int(index), {})[key] = tensor.to(device)
    return [Segment(part["features"], part["xy"], part["valid"]) for _, part in sorted(parts.items())]
