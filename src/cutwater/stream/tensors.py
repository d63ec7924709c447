"""What the plan expects of a message, and tensors as raw bytes.

The cut of a session fixes the names, types and shapes of everything that crosses it; only the last mini-batch
may be smaller. So both ends know beforehand what may arrive, and refuse the rest before they allocate for it.
"""

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.arrays import ALIGNMENT
from cutwater.base.errors import EngineError
from cutwater.stream.refusal import invalid

DTYPES: Final[tuple[torch.dtype, ...]] = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
"""Their places in this list are their codes on the wire: append only."""

MAX_DIMENSIONS: Final = 8
_FEW: Final = 256

Array = npt.NDArray[Any]
_DISGUISED: Final = {torch.bfloat16: torch.int16, torch.bool: torch.uint8}
"""As what numpy gets to see what it does not have (bfloat16) or would trust unseen (booleans)."""
_NUMPY: Final = {
    dtype: np.dtype(str(_DISGUISED.get(dtype, dtype)).removeprefix("torch.")) for dtype in DTYPES
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a message: everything but the mini-batch, which is its first dimension."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Of one sample."""
    values: tuple[int, int] | None = None
    """Smallest and largest value, if not a floating-point tensor: (0, classes - 1) for labels."""

    def __post_init__(self) -> None:
        if self.dtype is torch.bool:
            object.__setattr__(self, "values", (0, 1))
        if not 0 < len(self.name.encode()) <= 255:
            raise EngineError(f"the tensor name {self.name!r} must have 1 to 255 bytes")
        if self.dtype not in DTYPES:
            raise EngineError(f"tensor {self.name!r} has type {self.dtype}, but only {DTYPES} can be sent")
        if len(self.shape) >= MAX_DIMENSIONS or any(not 0 < size < 2**32 for size in self.shape):
            raise EngineError(
                f"tensor {self.name!r} has samples of shape {self.shape}, but up to {MAX_DIMENSIONS - 1} "
                f"dimensions of at least 1 can be sent"
            )

    def bytes(self, rows: int) -> int:
        """Size of a mini-batch of this many samples."""
        return rows * math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class TensorHead:
    """What a message says about a tensor before its bytes come."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def bytes(self) -> int:
        """Size of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_heads(heads: Sequence[TensorHead], specs: Sequence[TensorSpec], rows: range) -> None:
    """Refuse tensors that are not exactly the expected ones; they agree on one mini-batch within ``rows``."""
    names, wanted = [head.name for head in heads], [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise invalid(f"the tensors are {names}, but each must have a name of its own")
    if names != wanted:
        raise invalid(f"the tensors are {names}, but {wanted} were expected, in this order")
    for head, spec in zip(heads, specs, strict=True):
        if head.dtype != spec.dtype:
            raise invalid(f"tensor {head.name!r} is of type {head.dtype}, but the plan says {spec.dtype}")
        if len(head.shape) != len(spec.shape) + 1 or head.shape[1:] != spec.shape:
            raise invalid(
                f"tensor {head.name!r} has shape {head.shape}, but the plan says (mini-batch, "
                f"{', '.join(map(str, spec.shape))})"
            )
        if head.shape[0] not in rows or head.shape[0] != heads[0].shape[0]:
            raise invalid(
                f"tensor {head.name!r} has a mini-batch of {head.shape[0]}, but {_say(rows)} were expected, "
                f"the same for all"
            )


def _say(rows: range) -> str:
    return f"{rows[0]} to {rows[-1]}" if len(rows) > 1 else str(rows[0])


def check_values(array: Array, spec: TensorSpec) -> None:
    """Refuse labels out of range and booleans that are neither."""
    assert spec.values is not None
    low, high = spec.values
    # A class for each sample is a short list, for which numpy takes longer to get going than to look.
    values = array.tolist() if array.size <= _FEW and array.ndim == 1 else (array.min(), array.max())
    least, most = min(values), max(values)
    if not low <= least <= most <= high:
        raise invalid(
            f"tensor {spec.name!r} holds values from {least} to {most}, but the plan allows {low} to {high}"
        )


class Memory:
    """A buffer that is handed out again when nobody holds what was handed out before."""

    def __init__(self) -> None:
        self._buffer: Array = np.empty(0, np.uint8)
        self._start = 0

    def take(self, size: int) -> memoryview:
        """So many bytes, at an address that ALIGNMENT divides."""
        # Every view, array and tensor over it holds a reference to it; two are ours and getrefcount's.
        if len(self._buffer) < size + ALIGNMENT or sys.getrefcount(self._buffer) > 2:
            self._buffer = np.empty(size + ALIGNMENT, np.uint8)
            self._start = -self._buffer.__array_interface__["data"][0] % ALIGNMENT
        return self._buffer.data[self._start : self._start + size]


def array_in(memory: memoryview, head: TensorHead, offset: int) -> Array:
    """The tensor that begins at ``offset`` of a payload, as an array over the same memory if that will do."""
    array: Array = np.ndarray(head.shape, _NUMPY[head.dtype], memory, offset)
    return array if array.flags.aligned else array.copy()


with warnings.catch_warnings():
    # torch says once in a process that a tensor over bytes can be written to; nobody here does.
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"\0", np.uint8))


def tensor_of(array: Array, head: TensorHead) -> Tensor:
    """The tensor over an array's memory."""
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype is head.dtype else tensor.view(head.dtype)


def array_of(tensor: Tensor) -> Array:
    """The array over a tensor's memory; over a copy's, if it is not on the CPU in one piece."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in _DISGUISED:
        tensor = tensor.contiguous().view(_DISGUISED[tensor.dtype])
    # By force, torch looks after what hardly any tensor has; cold, each look takes as long as a copy.
    array: Array = tensor.numpy(force=not tensor.is_cpu or tensor.is_neg())
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
