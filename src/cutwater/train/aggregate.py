"""Phase 5: the n_k-weighted average of the clients' models (eq. (2)), the same bits in any order of arrival.

Results arrive in whatever order workers and networks deliver them, and floating-point addition depends on
order. Keeping early results back until their turn comes would need memory for all of them. So the terms
n_k·w_k are rounded once, to multiples of 2^-60, and added exactly (:mod:`~cutwater.train.exactsum`): any
order gives the same sum, in 16 bytes a weight whatever the number of clients (24, if weights are so large
that two sums can't hold them). The term of a float32 weight needs no rounding unless the weight is below
2^-37; the average is off by less than 2^-60, and by its last rounding to the weight's own type: closer than
accumulating in float64.
"""

import hashlib
import json
from collections.abc import Collection

import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.train.exactsum import ExactSum
from cutwater.train.expected import BadUpdate, Expected, Kind, flat, raw_bytes
from cutwater.train.session import State

MOST_SAMPLES = 2**28
"""Of all clients of a round together. Within it and the largest weight every sum is exact."""


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
        self._expected = Expected(reference, fixed)
        self._largest: dict[str, Tensor] = {}
        self._places: dict[str, slice] = {}
        end = 0
        for name in self._expected.floats:
            self._places[name] = slice(end, end + reference[name].numel())
            end += reference[name].numel()
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
        largest = self._expected.check(client, state)
        self._count(client, samples)
        self._sum.add((flat(state[name]) for name in self._places), samples, largest)
        for name in self._expected.counters:
            counted, known = state[name].detach().cpu(), self._largest.get(name)
            self._largest[name] = counted.clone() if known is None else torch.maximum(known, counted)

    def result(self) -> dict[str, Tensor]:
        """w = Σ n_k·w_k / Σ n_k (eq. (2)), on the CPU."""
        if not self.clients:
            raise RunError("no client's update is left to average; the model stays as it was")
        return {name: self._averaged(name, kind) for name, kind in self._expected.kinds.items()}

    def _averaged(self, name: str, kind: Kind) -> Tensor:
        if name in self._expected.fixed:
            return self._expected.fixed[name].detach().cpu()
        if name not in self._places:
            return self._largest[name].clone()
        averaged = torch.empty(kind.shape, dtype=kind.dtype)
        flat = averaged.view(-1)
        for place, means in self._sum.means(self._places[name], self.samples):
            flat[place] = torch.from_numpy(means)
        return averaged

    def _count(self, client: str, samples: int) -> None:
        if client in self.clients:
            raise BadUpdate(client, "arrived twice")
        if self.samples + samples > MOST_SAMPLES:
            raise RunError(
                f"the clients of a round have more than {MOST_SAMPLES:,} samples, which can't be averaged "
                "exactly; select fewer clients"
            )
        self.clients.add(client)
        self.samples += samples


def weights_sha256(state: State) -> str:
    """SHA-256 over the names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        header = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
        digest.update(json.dumps(header).encode() + b"\n")
        digest.update(raw_bytes(tensor).numpy().data)
    return digest.hexdigest()
