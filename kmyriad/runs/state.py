"""What a run needs to go on: weights, optimizer, counters and, with segments, replicas in mid-episode and the pool."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kmyriad.config import PretrainConfig
from kmyriad.envs.vector_env import SimulatorState
from kmyriad.errors import UsageError
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Visits
from kmyriad.rollout.replicas import Replicas
from kmyriad.runs.run import Run
from kmyriad.runs.tensor_file import Checkpoint, CheckpointError, checkpoint_path, newest_checkpoint, read_checkpoint

COUNTERS = ("epoch", "env_steps", "bad_gradients", "skipped_updates")


@dataclass
class TrainingState:
    population: Population
    optimizer: torch.optim.Optimizer
    """Of all parameters, the critic's included; the first group's learning rate may move, those of others do not."""
    critic: Critic | None = None
    """Where the update rule learns with one."""
    epoch: int = 0
    """The epoch under way, or the last one done."""
    env_steps: int = 0
    bad_gradients: int = 0
    """Updates in a row that were skipped for a gradient that was not finite."""
    skipped_updates: int = 0
    """Such updates in all."""
    steps_to_success: float = 0.0
    """Of a task that is being learned: about how many steps its successes take now; 0 without any yet."""
    pool: list[Visits] = field(default_factory=list)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def set_learning_rate(self, config: PretrainConfig) -> None:
        """MultiStepLR, as a function of the epoch."""
        passed = sum(self.epoch > milestone for milestone in config.learning_rate_milestones)
        self._put_learning_rate(config.learning_rate * config.learning_rate_decay**passed)

    def count(self, env_steps: int, good_gradient: bool) -> None:
        """Add an epoch's work to the counters."""
        self.env_steps += env_steps
        self.bad_gradients = 0 if good_gradient else self.bad_gradients + 1
        self.skipped_updates += not good_gradient

    def checkpoint(self, replicas: Replicas | None) -> Checkpoint:
        """Everything to go on from; `replicas` only where they are in the middle of episodes."""
        tensors = {f"population.{name}": tensor for name, tensor in self.population.state_dict().items()}
        if self.critic is not None:
            tensors |= {f"critic.{name}": tensor for name, tensor in self.critic.state_dict().items()}
        for index, entries in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in entries.items()}
        if replicas is not None:
            simulator = dataclasses.asdict(replicas.get_state())
            tensors |= {f"simulator.{name}": torch.from_numpy(array) for name, array in simulator.items()}
            for index, segment in enumerate(self.pool):
                parts = {name: array for name, array in vars(segment).items() if array is not None}
                tensors |= {f"pool.{index}.{name}": torch.from_numpy(array) for name, array in parts.items()}
        counters = {name: int(getattr(self, name)) for name in COUNTERS}
        rates = {"learning_rate": self.learning_rate, "steps_to_success": self.steps_to_success}
        return Checkpoint(tensors, {**counters, **rates, "architecture": self.population.architecture()})

    def restore(self, checkpoint: Checkpoint, replicas: Replicas | None) -> None:
        """Put everything back to the bit."""
        try:
            self.population.load_state_dict(_under("population", checkpoint))
            if self.critic is not None:
                self.critic.load_state_dict(_under("critic", checkpoint))
            self._put_learning_rate(checkpoint.facts["learning_rate"])
            self._restore_optimizer(_under("optimizer", checkpoint))
            if replicas is not None:
                simulator = {name: tensor.numpy() for name, tensor in _under("simulator", checkpoint).items()}
                replicas.set_state(SimulatorState(**simulator))
                self.pool = _restore_pool(_under("pool", checkpoint))
            self.steps_to_success = checkpoint.facts.get("steps_to_success", 0.0)  # older checkpoints do not tell
            for name in COUNTERS:
                setattr(self, name, checkpoint.facts[name])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            first_line = str(error).splitlines()[0]
            raise CheckpointError(f"the checkpoint does not fit this run's settings: {first_line}") from error

    def _put_learning_rate(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate

    def _restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        state = self.optimizer.state_dict()
        entries: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            index, key = name.split(".", 1)
            entries.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**state, "state": entries})


def load_population(run: Run, epoch: int | None = None) -> Population:
    """The population of a run after `epoch`, which must have a checkpoint, or as the newest good checkpoint has it."""
    if epoch is None:
        return load_newest(run)[0]
    return _population(run, read_checkpoint(checkpoint_path(run.checkpoints, epoch)))


def load_newest(run: Run) -> tuple[Population, dict[str, Any]]:
    """The population of the newest good checkpoint, and that checkpoint's facts (epoch, env_steps, ...)."""
    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        raise UsageError(f"{run.path} has no checkpoint yet; let it train for an epoch first")
    return _population(run, newest.checkpoint), newest.checkpoint.facts


def _population(run: Run, checkpoint: Checkpoint) -> Population:
    try:
        population = Population.build(checkpoint.facts["architecture"])
        population.load_state_dict(_under("population", checkpoint))
    except (KeyError, RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"the policies in {run.path} do not fit this version of kmyriad; use the one that its versions.json names,"
            " or train them again"
        ) from error
    return population


def _under(prefix: str, checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in checkpoint.tensors.items() if name.startswith(start)}


def _restore_pool(tensors: dict[str, torch.Tensor]) -> list[Visits]:
    parts: dict[int, dict[str, np.ndarray[Any, Any]]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        parts.setdefault(int(index), {})[key] = tensor.numpy()
    return [Visits(part["features"], part.get("xy"), part["sound"]) for _, part in sorted(parts.items())]
