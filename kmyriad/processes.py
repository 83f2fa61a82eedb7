"""Many processes that train one population: torchrun starts them, and each has a share of every agent's replicas.

All of them have the same weights and the same pool. What must be the same everywhere is gathered or summed here; every
process must come by each of these calls, in the same order. Without torchrun there is one process, and nothing is
exchanged.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from kmyriad.errors import TrainingStoppedError, UsageError, first_line
from kmyriad.torchrun import is_one_of_many, local_rank, restarts

CPU = torch.device("cpu")

PATIENCE = timedelta(hours=2)
"""That a process waits for the others. One that has died is noticed at once; this is for one that hangs."""


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Meet the other processes that torchrun has started, if it has."""
    if not is_one_of_many() or dist.is_initialized():
        yield
        return
    with _told():
        store, number, count = next(rendezvous("env://", timeout=PATIENCE))
        # torchrun may keep the store when it starts processes again, with the addresses of those that died.
        store = PrefixStore(f"attempt-{restarts()}", store)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=number, world_size=count, timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()
        gc.collect()  # a group that lives on until the interpreter ends may abort it: its threads are still there


def rank() -> int:
    """The number of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def ranks() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def leads() -> bool:
    """Whether this process writes the run."""
    return rank() == 0


def find_device(name: str) -> torch.device:
    """The device that `name` stands for: cpu, cuda, cuda:1, or auto for a GPU where there is one."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CPU
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise UsageError(f"device {name}: torch {torch.__version__} sees no GPU here; use --device cpu")
    _, _, number = name.partition(":")
    index = int(number or local_rank())
    if index >= count:
        raise UsageError(f"device cuda:{index}: there are {count} GPUs here, cuda:0 to cuda:{count - 1}; use one each")
    return torch.device("cuda", index)


def device_here(name: str) -> str:
    """The device that a run was trained on, or the CPU where there is none like it: to look at what it learned."""
    try:
        return str(find_device(name))
    except UsageError:
        return str(CPU)


@dataclass(frozen=True)
class Share:
    """The replicas of one process: as many of every agent's as of any other's, next to each other.

    Replica i of all is agent i // p's, and stands at place i % p. So tensors (m, p, ...) of all replicas are those
    (m, p / processes, ...) of each process, side by side.
    """

    agents: int
    per_agent: int
    """p, of all processes together."""
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.per_agent % self.ranks:
            fewer = max(1, self.per_agent // self.ranks) * self.ranks * self.agents
            raise UsageError(
                f"{self.per_agent} replicas of each agent cannot be split evenly over {self.ranks} processes; use"
                f" --replicas {fewer}"
            )

    @staticmethod
    def here(agents: int, per_agent: int) -> "Share":
        """Of this process."""
        return Share(agents, per_agent, rank(), ranks())

    @property
    def places(self) -> slice:
        """Of each agent's replicas."""
        size = self.per_agent // self.ranks
        return slice(self.rank * size, (self.rank + 1) * size)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(n,), which of all replicas these are."""
        return np.arange(self.agents * self.per_agent).reshape(self.agents, -1)[:, self.places].ravel()

    def own(self, of_all: Tensor) -> Tensor:
        """(m, p / processes, ...), this process's part of (m, p, ...)."""
        return of_all if self.ranks == 1 else of_all[:, self.places]

    def gather(self, own: Tensor) -> Tensor:
        """(m, p, ...), what all processes have, from this one's part (m, p / processes, ...)."""
        return own if self.ranks == 1 else torch.cat(gathered(own), dim=1)

    def gather_all(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`gather` of several by name, in one exchange."""
        if self.ranks == 1:
            return dict(own)
        parts = zip(*gathered_together([*own.values()]), strict=True)
        return {name: torch.cat(part, dim=1) for name, part in zip(own, parts, strict=True)}

    def gather_rows(self, own: NDArray[np.generic]) -> NDArray[np.generic]:
        """(m p, ...) from (m p / processes, ...); rows that are longer elsewhere are filled up with zeros."""
        if self.ranks == 1:
            return own
        if own.ndim > 1:
            longest = int(largest(torch.tensor([own.shape[1]]))[0])
            own = np.pad(own, [(0, 0), (0, longest - own.shape[1]), *[(0, 0)] * (own.ndim - 2)])
        parts = gathered(torch.from_numpy(np.ascontiguousarray(own).reshape(self.agents, -1).view(np.uint8)))
        whole = np.concatenate(
            [part.numpy().view(own.dtype).reshape(self.agents, -1, *own.shape[1:]) for part in parts], 1
        )
        return whole.reshape(-1, *own.shape[1:])


def gathered(tensor: Tensor) -> list[Tensor]:
    """The tensors of one shape that all processes have, in their order."""
    return [part for (part,) in gathered_together([tensor])]


def gathered_together(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The `tensors` that all processes have, in their order: one exchange of all of them, of whatever types."""
    if ranks() == 1:
        return [[*tensors]]
    mine = torch.cat([tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors])
    parts = [torch.empty_like(mine) for _ in range(ranks())]
    with _told():
        dist.all_gather(parts, mine)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    # A copy of each, as numbers of eight bytes must begin where eight divides.
    return [
        [
            own.clone().view(tensor.dtype).view(tensor.shape)
            for own, tensor in zip(torch.split(part, sizes), tensors, strict=True)
        ]
        for part in parts
    ]


def summed(tensors: Sequence[Tensor]) -> None:
    """Put the sum over all processes in place of each of `tensors`, which are of one type."""
    if ranks() == 1 or not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    with _told():
        dist.all_reduce(flat)
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def largest(tensor: Tensor) -> Tensor:
    """The largest of what all processes have, number by number."""
    if ranks() > 1:
        tensor = tensor.clone()
        with _told():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor


def divided(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """(n, ...), what `function` makes of `rows` (n, ...), which all processes have; each computes a part of them."""
    if ranks() == 1:
        return function(rows)
    size = -(-len(rows) // ranks())
    mine = rows[rank() * size : (rank() + 1) * size]
    mine = torch.cat([mine, rows[:1].expand(size - len(mine), *rows.shape[1:])])  # equal sizes are gathered
    return torch.cat(gathered(function(mine)))[: len(rows)]


def shared_out(function: Callable[[int], float], count: int) -> list[float]:
    """`function` of 0 to `count` - 1, which all processes could compute; each computes some of them."""
    mine = [function(number) for number in range(rank(), count, ranks())]
    if ranks() == 1:
        return mine
    filled = mine + [0.0] * (-(-count // ranks()) - len(mine))  # equal sizes are gathered
    of_all = torch.stack(gathered(torch.tensor(filled, dtype=torch.float64)), dim=1)
    return of_all.flatten()[:count].tolist()


def check_alike(parameters: Iterable[Tensor]) -> None:
    """Stop if the processes no longer have the same weights, as broken hardware or another library may bring about."""
    if ranks() == 1:
        return
    first, *others = gathered(torch.stack([parameter.detach().double().sum() for parameter in parameters]))
    if not all(torch.equal(first, other) for other in others):
        raise TrainingStoppedError(
            "the processes no longer have the same weights; see that all have the same machine, torch and kmyriad, and"
            " resume from the last checkpoint"
        )


def agreed(text: str) -> str:
    """What the process that leads says."""
    if ranks() == 1:
        return text
    letters = text.encode() if leads() else b""
    size = int(largest(torch.tensor([len(letters)]))[0])
    said = gathered(torch.tensor([*letters.ljust(size, b"\0")], dtype=torch.uint8))[0]
    return bytes(said.tolist()).decode()


@contextmanager
def _told() -> Iterator[None]:
    """A process that is gone is one sentence."""
    try:
        yield
    except RuntimeError as error:  # gloo's and nccl's errors
        raise TrainingStoppedError(
            f"process {rank()} of {ranks()} has lost another one, which has ended or does not answer; its own words say"
            f" why; resume from the last checkpoint ({first_line(error)[:120]})"
        ) from error
