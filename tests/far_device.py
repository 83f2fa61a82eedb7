"""A device without a GPU: torch's `meta` device, with numbers. What would cross a device boundary shows here.

Tensors on it hold a tensor of the CPU and say that they are on `meta`. As on a GPU, they refuse `.numpy()` and to be
mixed with tensors of the CPU; to move one to the CPU, or to ask for its value, is a synchronisation, and counted.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

FAR = torch.device("meta")
aten = torch.ops.aten
VALUES = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
"""What tells the host a value."""
SIZES = {aten.nonzero.default, aten.masked_select.default, aten.bincount.default, aten.unique_dim.default}
"""What has to wait, to know how large its result is."""


class FarTensor(Tensor):
    """A tensor that is on the far device."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "FarTensor":
        made = Tensor._make_wrapper_subclass(
            cls, near.size(), strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype, device=FAR
        )
        made.near = near
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"FarTensor({self.near!r})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, kinds: Any, arguments: Any = (), settings: Any = None) -> Any:
        raise AssertionError(f"{function} on a far tensor outside of FarDevice")


class FarDevice(TorchDispatchMode):
    """Within it there is a far device. `waits` counts what the host had to wait for, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> "FarDevice":
        self._inference_mode, torch.inference_mode = torch.inference_mode, torch.no_grad  # which wrappers do not know
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        torch.inference_mode = self._inference_mode
        super().__exit__(*raised)

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), settings: Any = None) -> Any:
        settings = dict(settings or {})
        tensors = [one for one in tree_flatten((arguments, settings))[0] if isinstance(one, Tensor)]
        is_far = any(isinstance(one, FarTensor) for one in tensors)
        asked = settings.get("device")
        goes_far = is_far if asked is None else torch.device(asked) == FAR
        if not is_far and not goes_far:
            return function(*arguments, **settings)
        copies = function in (aten._to_copy.default, aten.copy_.default)
        if not copies and any(not isinstance(one, FarTensor) and one.dim() for one in tensors):
            raise AssertionError(f"{function} mixes tensors of two devices")
        if function in VALUES | SIZES or (copies and is_far and self._comes_near(function, tensors, goes_far)):
            self.waits[function.name()] += 1
        if function is aten.index.Tensor and any(one is not None and one.dtype == torch.bool for one in arguments[1]):
            self.waits["aten::index of a mask"] += 1
        if asked is not None:
            settings["device"] = torch.device("cpu")
        near = tree_map(lambda one: one.near if isinstance(one, FarTensor) else one, (arguments, settings))
        found = function(*near[0], **near[1])
        if function in VALUES:
            return found
        if not goes_far and function is aten._to_copy.default:
            return found.clone()
        if function.name().split("::")[1].split(".")[0].endswith("_") or "out" in settings:  # in place
            return self._same(found, near, arguments, settings)
        return tree_map(lambda one: FarTensor(one) if isinstance(one, Tensor) else one, found)

    @staticmethod
    def _comes_near(function: Any, tensors: list[Tensor], goes_far: bool) -> bool:
        if function is aten.copy_.default:
            return not isinstance(tensors[0], FarTensor)
        return not goes_far

    @staticmethod
    def _same(found: Any, near: Any, arguments: Any, settings: Any) -> Any:
        """The far tensors that an operation in place has changed."""
        pairs = list(zip(tree_flatten(near)[0], tree_flatten((arguments, settings))[0], strict=True))
        return tree_map(
            lambda one: next((far for held, far in pairs if held is one), one) if isinstance(one, Tensor) else one,
            found,
        )
