"""What an update must be before anything is computed from it: the tensors of the global model, all finite."""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.train.session import State

LARGEST_WEIGHT = 2.0**30
"""Sums of larger weights would not be exact (:mod:`~cutwater.train.aggregate`)."""


class BadUpdate(RunError):  # noqa: N818 - it says what was sent, not what went wrong here
    """A client's update that must not reach the global model."""

    def __init__(self, client: str, reason: str) -> None:
        super().__init__(f"the update of client {client!r} {reason}")
        self.client = client
        """Who sent it."""


class Kind(NamedTuple):
    """What every update must have under a name."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.shape.numel() * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


class Expected:
    """What every update of a round must have, by the global model that the round started from.

    Weights that do not learn, and a tensor that holds infinities by design, such as an attention mask, must
    come back as they were.
    """

    def __init__(self, reference: State, fixed: Collection[str] = ()) -> None:
        """``fixed`` are the names of weights that do not learn."""
        self.kinds: Mapping[str, Kind] = {
            name: Kind(tensor.shape, tensor.dtype) for name, tensor in reference.items()
        }
        self.fixed: Mapping[str, Tensor] = {
            name: tensor for name, tensor in reference.items() if name in fixed or _has_infinities(tensor)
        }
        for name, tensor in reference.items():
            if tensor.is_complex():
                raise RunError(f"{name!r} is complex, but only real weights can be averaged")
        moving = [(name, tensor.is_floating_point()) for name, tensor in reference.items()]
        self.floats = tuple(name for name, floats in moving if floats and name not in self.fixed)
        """Weights that learn and buffers of real numbers."""
        self.counters = tuple(name for name, floats in moving if not floats and name not in self.fixed)
        """Buffers of whole numbers."""

    def check_kinds(self, client: str, state: State) -> None:
        """Refuse an update that has other tensors than the global model."""
        odd = sorted(state.keys() ^ self.kinds.keys())
        if odd:
            what = "lacks" if odd[0] in self.kinds else "has an unknown"
            raise BadUpdate(client, f"{what} tensor {odd[0]!r}; it must have those of the global model")
        for name, kind in self.kinds.items():
            tensor = state[name]
            if tensor.shape != kind.shape or tensor.dtype != kind.dtype:
                found = Kind(tensor.shape, tensor.dtype)
                raise BadUpdate(client, f"has {name!r} as {found}, but it must be {kind}")

    def check(self, client: str, state: State) -> float:
        """The largest weight of an update that may be aggregated; any other is refused as a whole."""
        self.check_kinds(client, state)
        for name, tensor in self.fixed.items():
            if not same_bytes(state[name], tensor):
                raise BadUpdate(client, f"changes {name!r}, which must stay as it is")
        numbers = (name for name in self.floats if state[name].numel())
        return max((_largest(client, name, state[name]) for name in numbers), default=0.0)


def raw_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, one after the other, on the CPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def to_raw(tensor: Tensor) -> bytes:
    """A tensor as its bytes."""
    return raw_bytes(tensor).numpy().tobytes()


def from_raw(content: bytes, like: Tensor) -> Tensor:
    """The tensor of these bytes on the CPU, of a type and shape that has as many."""
    if not content:
        return torch.empty_like(like, device="cpu")
    return torch.frombuffer(bytearray(content), dtype=like.dtype).reshape(like.shape)


def flat(tensor: Tensor) -> npt.NDArray[Any]:
    """Real numbers one after the other, for numpy."""
    known = tensor.dtype in (torch.float32, torch.float64)  # numpy has no bfloat16
    array: npt.NDArray[Any] = (tensor if known else tensor.float()).numpy(force=True)
    return array.reshape(-1)


def _largest(client: str, name: str, tensor: Tensor) -> float:
    low, high = _ends(tensor)
    if not _all_finite(low, high):
        raise BadUpdate(client, f"has a value in {name!r} that is not finite; it is left out")
    largest = max(-low, high)
    if largest > LARGEST_WEIGHT:
        raise BadUpdate(
            client, f"has {largest:.3g} in {name!r}, but weights are at most {LARGEST_WEIGHT:.3g}"
        )
    return largest


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bytes; -0 is not 0 here, and NaN is itself."""
    return one is other or torch.equal(raw_bytes(one), raw_bytes(other))


def _has_infinities(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and not _all_finite(*_ends(tensor))


def _ends(tensor: Tensor) -> tuple[float, float]:
    """The smallest and the largest value, NaN if there is one: in one pass, all there is to know."""
    low, high = torch.aminmax(tensor.detach())
    return float(low), float(high)


def _all_finite(low: float, high: float) -> bool:
    return -math.inf < low and high < math.inf
