"""The shape of stored policies. A file can claim anything, so it is checked before a network is made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from torch import Tensor

from kmyriad.checks import Between, check_fields
from kmyriad.errors import UsageError

Size = Annotated[int, Between(1, 1_000_000_000)]


@dataclass(frozen=True)
class Architecture:
    """What `Population.architecture` tells."""

    agents: Size
    observation_size: Size
    discrete: bool
    low: tuple[float, ...]
    high: tuple[float, ...]
    choices: tuple[Size, ...]
    trunk_hidden: tuple[Size, ...]
    agent_hidden: Size
    activation: Literal["elu", "relu", "tanh"]
    std_range: tuple[Annotated[float, Between(1e-12, 1e6)], Annotated[float, Between(1e-12, 1e6)]]
    normalises: bool
    codes: tuple[tuple[float, ...], ...] | None
    code_rate: float
    framed: bool
    clips: bool

    def __post_init__(self) -> None:
        check_fields(self)


def check_architecture(told: Any, tensors: Mapping[str, Tensor]) -> None:
    """UsageError if `told` is no shape of policies, or not that of these tensors."""
    names = [field.name for field in fields(Architecture)]
    if not isinstance(told, dict) or {*told} != {*names}:
        raise UsageError(f"a population is told by {', '.join(names)}; got {str(told)[:80]!r}")
    shape = Architecture(**told)
    stored = {size for tensor in tensors.values() for size in tensor.shape}
    sizes = {shape.agents, shape.observation_size, shape.agent_hidden, *shape.trunk_hidden}
    if not sizes <= stored:  # before memory is asked for
        raise UsageError(f"no tensor has a side of {', '.join(map(str, sorted(sizes - stored)))}")
    if len(shape.low) != len(shape.high) or sum(shape.choices) not in (0, len(shape.low)):
        raise UsageError(f"{len(shape.low)} lowest and {len(shape.high)} highest actions do not go together")
    if shape.codes is not None and len(shape.codes) != shape.agents:
        raise UsageError(f"{len(shape.codes)} codes do not go with {shape.agents} agents")
