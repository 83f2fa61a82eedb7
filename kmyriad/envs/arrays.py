"""One code for NumPy arrays and torch tensors: the library that an array is of, and constants beside it."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any
"""A NumPy array, or a torch tensor on some device."""


def namespace_of(array: Array) -> Any:
    """The module, numpy or torch, whose functions take `array`; what both have goes by one name there.

    Such are arctan2, clip, column_stack, cos, sin, sqrt, where, zeros_like.
    """
    if isinstance(array, np.ndarray):
        return np
    import torch  # late: many commands need none

    return torch


def like(values: NDArray[Any], array: Array) -> Array:
    """Constant `values` as what can be computed with beside `array`: copied to its device once."""
    if isinstance(array, np.ndarray):
        return values
    return _tensor(values.tobytes(), values.dtype.str, values.shape, array.dtype, array.device)


@lru_cache(maxsize=256)
def _tensor(content: bytes, kind: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    import torch

    values = np.frombuffer(content, kind).reshape(shape)
    return torch.tensor(values, dtype=dtype, device=device)
