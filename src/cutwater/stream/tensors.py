"""What the plan expects of a message, and tensors as raw bytes.

The cut of a session fixes the names, types and shapes of everything that crosses it, its mini-batches and
their parts fix the samples of each, and its codecs what a tensor becomes on the way. So both ends know
beforehand what may arrive, and refuse the rest before they allocate for it.
"""

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.arrays import ALIGNMENT
from cutwater.base.errors import EngineError
from cutwater.stream.refusal import invalid
from cutwater.train.wire import Coder

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
    """One tensor that crosses the cut: everything but the number of samples, its first dimension."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Of one sample."""
    values: tuple[int, int] | None = None
    """Smallest and largest value, if not a floating-point tensor: (0, classes - 1) for labels."""
    varies: tuple[int, ...] = ()
    """Dimensions of a sample whose sizes may be smaller: ``shape`` is the largest."""

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

    def form(self, rows: int, coder: Coder | None = None, *, fewer: bool = False) -> "Form":
        """As what it travels in a message of so many samples, or of fewer or none of them."""
        if coder is None or not coder.takes(self.like(rows)):
            varies = tuple(1 + dimension for dimension in self.varies)
            return Form(self.name, self.dtype, (rows, *self.shape), self.values, fewer=fewer, varies=varies)
        size = coder.codec.size(self.shape).bits(rows) // 8
        if not 0 < size < 2**32:
            raise EngineError(
                f"tensor {self.name!r} of {rows} samples takes {size} bytes by codec {coder.codec.name!r}, "
                f"but 1 to {2**32 - 1} can be sent: use another codec, or more micro_batches"
            )
        at_most = coder.codec.at_most or bool(self.varies)
        return Form(self.name, torch.uint8, (size,), None, coder.codec.name, at_most, fewer)

    def like(self, rows: int, shape: tuple[int, ...] | None = None) -> Tensor:
        """A tensor of this type and shape, or a smaller one, without any memory."""
        return torch.empty((rows, *(shape or self.shape)), dtype=self.dtype, device="meta")


@dataclass(frozen=True, slots=True)
class TensorHead:
    """What a message says about a tensor before its bytes come."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def bytes(self) -> int:
        """Size of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


class Form(NamedTuple):
    """One tensor of a message as it travels: as it is, or as the bytes that a codec makes of it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """All of it, samples first; of bytes, how many."""
    values: tuple[int, int] | None = None
    """Smallest and largest value, where these are limited."""
    codec: str = ""
    """Whose bytes they are."""
    at_most: bool = False
    """Whether fewer bytes may come."""
    fewer: bool = False
    """Whether fewer samples may come, or none: those that are new."""
    varies: tuple[int, ...] = ()
    """Dimensions whose sizes may be smaller."""

    def check(self, head: TensorHead) -> None:
        """Refuse a tensor that is not of this form."""
        if head.dtype != self.dtype:
            raise invalid(f"tensor {self.name!r} is of type {head.dtype}, but the plan says {self.dtype}")
        if self.codec:
            self._check_bytes(head.shape)
        elif not self._has_sizes(head.shape):
            most = [f"1 to {size}" if at in self.varies else str(size) for at, size in enumerate(self.shape)]
            raise invalid(
                f"tensor {self.name!r} has shape {head.shape}, but the plan says (samples, "
                f"{', '.join(most[1:])})"
            )
        elif head.shape[0] != self.shape[0] and not (self.fewer and head.shape[0] < self.shape[0]):
            raise invalid(
                f"tensor {self.name!r} has {head.shape[0]} samples, but this part of the mini-batch has "
                f"{self.shape[0]}, the same for all tensors"
            )

    def _has_sizes(self, shape: tuple[int, ...]) -> bool:
        """Whether samples are as they must be, or smaller where they may be."""
        if shape[1:] == self.shape[1:]:
            return len(shape) == len(self.shape)
        if not self.varies or len(shape) != len(self.shape):
            return False
        pairs = list(enumerate(zip(shape, self.shape, strict=True)))[1:]
        return all(1 <= one <= most if at in self.varies else one == most for at, (one, most) in pairs)

    def _check_bytes(self, shape: tuple[int, ...]) -> None:
        (most,) = self.shape
        least = 0 if self.fewer else 1 if self.at_most else most
        if len(shape) != 1 or not least <= shape[0] <= most:
            due = f"{least} to {most}" if least < most else str(most)
            raise invalid(
                f"tensor {self.name!r} comes as bytes of shape {shape}, but codec {self.codec!r} makes {due} "
                "bytes of this part"
            )


def check_heads(heads: Sequence[TensorHead], forms: Sequence[Form]) -> None:
    """Refuse tensors that are not exactly the expected ones."""
    names, wanted = [head.name for head in heads], [form.name for form in forms]
    if len(set(names)) != len(names):
        raise invalid(f"the tensors are {names}, but each must have a name of its own")
    if names != wanted:
        raise invalid(f"the tensors are {names}, but {wanted} were expected, in this order")
    for head, form in zip(heads, forms, strict=True):
        form.check(head)


def check_values(array: Array, form: Form) -> None:
    """Refuse labels out of range and booleans that are neither."""
    assert form.values is not None
    low, high = form.values
    if not array.size:
        return
    # A class for each sample is a short list, for which numpy takes longer to get going than to look.
    values = array.tolist() if array.size <= _FEW and array.ndim == 1 else (array.min(), array.max())
    least, most = min(values), max(values)
    if not low <= least <= most <= high:
        raise invalid(
            f"tensor {form.name!r} holds values from {least} to {most}, but the plan allows {low} to {high}"
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
