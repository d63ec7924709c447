"""Phase 5: the n_k-weighted average of the clients' models (eq. (2)), the same bits in any order of arrival.

Results arrive in whatever order workers and networks deliver them, and floating-point addition depends on
order. Keeping early results back until their turn comes would need memory for all of them. So the terms
n_k·w_k are rounded once, to multiples of 2^-60, and added exactly (:mod:`~cutwater.train.exactsum`): any
order and any grouping over workers gives the same sum, in 16 bytes a weight whatever the number of clients
(24, if weights are so large that two sums can't hold them). The term of a float32 weight needs no rounding
unless the weight is below 2^-37; the average is off by less than 2^-60, and by its last rounding to the
weight's own type: closer than accumulating in float64.
"""

import hashlib
import json
import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.train.exactsum import ExactSum
from cutwater.train.session import State

LARGEST_WEIGHT = 2.0**30
MOST_SAMPLES = 2**28
"""Of all clients of a round together. Within the two limits every sum is exact."""


class BadUpdate(RunError):  # noqa: N818 - it says what was sent, not what went wrong here
    """A client's update that must not reach the global model."""

    def __init__(self, client: str, reason: str) -> None:
        super().__init__(f"the update of client {client!r} {reason}")
        self.client = client
        """Who sent it."""


class _Kind(NamedTuple):
    """What every update must have under a name."""

    shape: torch.Size
    dtype: torch.dtype


class Average:
    """The weighted average of a round, one update at a time.

    Parameters and floating-point buffers (BatchNorm's running statistics) are averaged. Of integer buffers
    the largest is taken: they are counters (BatchNorm's ``num_batches_tracked``), of which it is the furthest
    that any client came, or constants, which are the same everywhere. Weights that do not learn, and a tensor
    that holds infinities by design, such as an attention mask, must come back as they were.
    """

    def __init__(self, reference: State, fixed: Collection[str] = ()) -> None:
        """An empty average of models like ``reference``, the global model that the round started from.

        ``fixed`` are the names of weights that do not learn.
        """
        self._kinds = {name: _Kind(tensor.shape, tensor.dtype) for name, tensor in reference.items()}
        self._fixed = {name: t for name, t in reference.items() if name in fixed or _has_infinities(t)}
        self._largest: dict[str, Tensor] = {}
        self._places: dict[str, slice] = {}
        end = 0
        for name, tensor in reference.items():
            if tensor.is_complex():
                raise RunError(f"{name!r} is complex, but only real weights can be averaged")
            if tensor.is_floating_point() and name not in self._fixed:
                self._places[name] = slice(end, end + tensor.numel())
                end += tensor.numel()
        self._sum = ExactSum(end)
        self.clients: set[str] = set()
        """Whose updates are in."""
        self.samples = 0
        """Σ n_k over the updates so far."""

    def add(self, client: str, samples: int, state: State) -> None:
        """Take in w_k of a client with n_k samples, or refuse it as a whole with a :class:`BadUpdate`."""
        if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= MOST_SAMPLES:
            raise BadUpdate(
                client,
                f"is for {samples!r} samples, but must be for a whole number from 1 to {MOST_SAMPLES:,}",
            )
        largest = self._check_state(client, state)
        self._count({client}, samples)
        self._sum.add((_flat(state[name]) for name in self._places), samples, largest)
        for name in self._kinds.keys() - self._places.keys() - self._fixed.keys():
            self._raise(name, state[name].detach().cpu())

    def merge(self, other: "Average") -> None:
        """Take in all updates of another average of the same round, such as that of another worker."""
        if self._kinds != other._kinds:
            raise RunError("averages of different models can't be merged")
        self._count(other.clients, other.samples)
        self._sum.merge(other._sum)
        for name, tensor in other._largest.items():
            self._raise(name, tensor)

    def result(self) -> dict[str, Tensor]:
        """w = Σ n_k·w_k / Σ n_k (eq. (2)), on the CPU."""
        if not self.clients:
            raise RunError("no client's update is left to average; the model stays as it was")
        return {name: self._averaged(name, kind) for name, kind in self._kinds.items()}

    def _averaged(self, name: str, kind: _Kind) -> Tensor:
        if name in self._fixed:
            return self._fixed[name].detach().cpu()
        if name not in self._places:
            return self._largest[name].clone()
        averaged = torch.empty(kind.shape, dtype=kind.dtype)
        flat = averaged.view(-1)
        for place, means in self._sum.means(self._places[name], self.samples):
            flat[place] = torch.from_numpy(means)
        return averaged

    def _raise(self, name: str, tensor: Tensor) -> None:
        known = self._largest.get(name)
        self._largest[name] = tensor.clone() if known is None else torch.maximum(known, tensor)

    def _count(self, clients: set[str], samples: int) -> None:
        twice = sorted(self.clients & clients)
        if twice:
            raise BadUpdate(twice[0], "arrived twice")
        if self.samples + samples > MOST_SAMPLES:
            raise RunError(
                f"the clients of a round have more than {MOST_SAMPLES:,} samples, which can't be averaged "
                "exactly; select fewer clients"
            )
        self.clients |= clients
        self.samples += samples

    def _check_state(self, client: str, state: State) -> float:
        """The largest weight of an update that may be averaged."""
        largest = 0.0
        odd = sorted(state.keys() ^ self._kinds.keys())
        if odd:
            what = "lacks" if odd[0] in self._kinds else "has an unknown"
            raise BadUpdate(client, f"{what} tensor {odd[0]!r}; it must have those of the global model")
        for name, kind in self._kinds.items():
            tensor = state[name]
            if (tensor.shape, tensor.dtype) != kind:
                raise BadUpdate(
                    client,
                    f"has {name!r} as {_kind_text(_Kind(tensor.shape, tensor.dtype))}, but it must be "
                    f"{_kind_text(kind)}",
                )
            if name in self._fixed:
                if not _same_bytes(tensor, self._fixed[name]):
                    raise BadUpdate(client, f"changes {name!r}, which must stay as it is")
            elif name in self._places and tensor.numel():
                largest = max(largest, _largest(client, name, tensor))
        return largest


def weights_sha256(state: State) -> str:
    """SHA-256 over the names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        header = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
        digest.update(json.dumps(header).encode() + b"\n")
        digest.update(raw_bytes(tensor).numpy().data)
    return digest.hexdigest()


def _flat(tensor: Tensor) -> npt.NDArray[Any]:
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


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    return one is other or torch.equal(raw_bytes(one), raw_bytes(other))


def _has_infinities(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and not _all_finite(*_ends(tensor))


def _ends(tensor: Tensor) -> tuple[float, float]:
    """The smallest and the largest value, NaN if there is one: in one pass, all there is to know."""
    low, high = torch.aminmax(tensor.detach())
    return float(low), float(high)


def _all_finite(low: float, high: float) -> bool:
    return -math.inf < low and high < math.inf


def raw_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, one after the other, on the CPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _kind_text(kind: _Kind) -> str:
    return f"{str(kind.dtype).removeprefix('torch.')} {list(kind.shape)}"
