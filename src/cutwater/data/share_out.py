"""How a training set is shared out to clients: seeded partitions.

=============  ==========================================================================================
``paper``      each class spread evenly, sizes from 361 to 3,578, a quarter kept for local tests (Sec. VI)
``iid``        samples at random
``dirichlet``  each client's mix of classes drawn from a Dirichlet distribution; a small alpha skews it
``shards``     samples sorted by class, each client gets a few runs of them (McMahan et al., 2017)
=============  ==========================================================================================

A partition is a pure function of its arguments: the same in every process, on every machine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from cutwater.base.errors import DataError, suggest
from cutwater.base.seeded import stream
from cutwater.base.speech import by_file
from cutwater.base.usercode import blamed
from cutwater.data.partition import Partition
from cutwater.data.samples import Data, Indices

PAPER_SIZES = (361, 3578)
"""The smallest and the largest client of the paper (Sec. VI)."""
_PAPER_LOCAL_TEST = 0.25
_MOST_CLASSES = 10_000_000
_MOST_SHARDS = 10_000_000
"""Of all clients together: far above what makes sense, and far below what memory has room for."""


def _other() -> str:
    return by_file("partition = 'iid' in [data]", "DataSettings(partition='iid')")


class _Task(NamedTuple):
    """What a method of partition works from."""

    available: int
    labels: NDArray[np.int64] | None
    sizes: Indices
    seed: int
    alpha: float
    shards: int
    method: str

    def classes(self) -> NDArray[np.int64]:
        if self.labels is None:
            raise DataError(
                f"partition {self.method!r} needs labels that are classes, which it lacks: use {_other()}"
            )
        largest = int(self.labels.max(initial=0))
        if largest >= _MOST_CLASSES:
            raise DataError(
                f"partition {self.method!r} needs classes numbered below {_MOST_CLASSES:,}, but the "
                f"source has label {largest}; number them from 0 on, or use {_other()}"
            )
        return self.labels


def partition(
    available: int,
    labels: NDArray[np.int64] | None,
    clients: Sequence[str],
    *,
    method: str = "paper",
    samples: Sequence[int] | None = None,
    scale: bool = False,
    local_test: float | None = None,
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
) -> Partition:
    """Share ``available`` samples with these ``labels`` out to clients.

    ``samples`` are the sizes |D_k| of the clients' sets, local tests included; without them ``paper`` spreads
    sizes from 361 to 3,578 (fewer where there are fewer) and the other methods share everything out equally.
    ``scale`` shrinks sizes in proportion where they add up to more than there is. ``local_test`` is the part
    that a client keeps for tests: a quarter for ``paper``, otherwise none, unless it is given.
    """
    if method not in _METHODS:
        raise DataError(f"no partition is called {method!r}; {suggest(method, _METHODS)}")
    if not clients:
        raise DataError("there are no clients to share the samples out to; name at least one")
    if len(clients) > available:
        raise DataError(
            f"client {clients[available]!r} would have no samples: there are {len(clients):,} clients but "
            f"{available:,} samples; use fewer clients or a larger source"
        )
    if samples is None:
        sizes = _own_sizes(available, len(clients), method, seed)
    else:
        sizes = _given_sizes(available, clients, samples, scale)
    order = _METHODS[method](_Task(available, labels, sizes, seed, alpha, shards, method))
    kept = local_test if local_test is not None else _PAPER_LOCAL_TEST if method == "paper" else 0.0
    return Partition(method, tuple(clients), order.astype(np.int32), np.cumsum(sizes), kept, seed)


Share = Callable[[Data, Mapping[str, int]], Mapping[str, Any]]
"""A partition of one's own: of the data and each client's number of samples, the positions of each."""


def share_by(
    function: Share, data: Data, samples: Mapping[str, int], *, local_test: float, seed: int
) -> Partition:
    """The partition that a function of the user's own makes; what it draws follows from the seed."""
    from cutwater.model.randomness import drawn_from

    with (
        blamed(DataError, lambda said: f"partition {_called(function)} failed ({said}): {_TAKES}"),
        drawn_from(seed, "partition"),
    ):
        found = function(data, dict(samples))
    if not isinstance(found, Mapping):
        raise DataError(f"partition {_called(function)} returned {type(found).__name__}: {_TAKES}")
    if found.keys() == samples.keys():
        found = {client: found[client] for client in samples}
    made = Partition.of(found, local_test=local_test, seed=seed)
    made.check_fits(list(samples), list(samples.values()), len(data.train))
    return made


_TAKES = (
    "it takes the data and a dict of each client's number of samples, and returns a dict of the positions in "
    "the training set that each client holds"
)


def _called(function: object) -> str:
    return repr(getattr(function, "__qualname__", function))


def _own_sizes(available: int, clients: int, method: str, seed: int) -> Indices:
    if method != "paper":
        return np.diff(np.arange(clients + 1) * available // clients)
    # Evenly spaced, so that the smallest and the largest client are always there, in seeded order.
    spaced = np.rint(np.linspace(PAPER_SIZES[1], PAPER_SIZES[0], clients)).astype(np.int64)
    return stream(seed, "sizes").permutation(_shrunk(spaced.tolist(), available))


def _given_sizes(available: int, clients: Sequence[str], samples: Sequence[int], scale: bool) -> Indices:
    assert len(samples) == len(clients), "a size for each client"
    for client, size in zip(clients, samples, strict=True):
        if size < 1:
            raise DataError(f"client {client!r} has {size} samples, but needs at least 1; raise samples")
    sizes = [int(size) for size in samples]
    if sum(sizes) > available and not scale:
        raise DataError(
            f"the clients have {sum(sizes):,} samples together, but the source has {available:,}; "
            f"lower samples, or set {by_file('scale = true in [data]', 'DataSettings(scale=True)')} to "
            "shrink them in proportion"
        )
    return _shrunk(sizes, available)


def _shrunk(sizes: Sequence[int], available: int) -> Indices:
    """Sizes in proportion that add up to at most what is available, each at least one."""
    # In Python's own numbers, because sizes that are far too large would wrap round in NumPy's.
    total = sum(sizes)
    if total <= available:
        return np.array(sizes, dtype=np.int64)
    shrunk = np.array([max(size * available // total, 1) for size in sizes], dtype=np.int64)
    # Raising empty clients to one sample can overshoot; the largest give back what they have most of.
    while (excess := int(shrunk.sum()) - available) > 0:
        largest = np.argsort(-shrunk, kind="stable")[:excess]
        shrunk[largest] -= shrunk[largest] > 1
    return shrunk


def _iid(task: _Task) -> Indices:
    return stream(task.seed, "iid").permutation(task.available)[: task.sizes.sum()]


def _paper(task: _Task) -> Indices:
    """Each class spread evenly: any run of the order below holds all classes in proportion."""
    return _even_order(task.classes(), task.seed)[: task.sizes.sum()]


def _shards(task: _Task) -> Indices:
    """Every client's set is cut into equal pieces; the pieces are laid over the samples sorted by class."""
    labels = task.classes()
    if task.shards > (most := _MOST_SHARDS // len(task.sizes)):
        raise DataError(
            f"shards is {task.shards:,}, but must be at most {most:,} for {len(task.sizes):,} clients; "
            "2 to 10 give clients few classes"
        )
    chosen = _even_order(labels, task.seed)[: task.sizes.sum()]
    by_class = chosen[np.argsort(labels[chosen], kind="stable")]
    steps = np.arange(task.shards + 1)
    pieces = np.diff(task.sizes[:, None] * steps // task.shards).ravel()
    laid = stream(task.seed, "shards").permutation(len(pieces))
    starts = np.empty(len(pieces), np.int64)
    starts[laid] = np.cumsum(pieces[laid]) - pieces[laid]
    found: Indices = by_class[np.repeat(starts, pieces) + _ramp(pieces)]
    return found


def _dirichlet(task: _Task) -> Indices:
    """A mix of classes for each client (Hsu et al., 2019), as far as there are samples left of each class."""
    labels = task.classes()
    pools = _even_order(labels, task.seed)
    pools = pools[np.argsort(labels[pools], kind="stable")]
    left = np.bincount(labels)
    taken = np.cumsum(left) - left
    prior = task.alpha * len(left) * left / left.sum()
    present = left > 0
    held: list[Indices] = [np.empty(0, np.int64)] * len(task.sizes)
    # In seeded order, so that no client is always the one that gets the leftovers.
    for position in stream(task.seed, "dirichlet order").permutation(len(task.sizes)):
        mix = np.zeros(len(left))
        mix[present] = _mix(stream(task.seed, "dirichlet", int(position)), prior[present])
        counts = _apportion(int(task.sizes[position]), mix, left)
        held[position] = pools[np.repeat(taken, counts) + _ramp(counts)]
        taken, left = taken + counts, left - counts
    return np.concatenate(held)


def _mix(random: RandomState, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of the classes, drawn from a Dirichlet distribution."""
    drawn: NDArray[np.float64] = random.dirichlet(prior)
    if np.isfinite(drawn).all():
        return drawn
    # Of a very small prior all shares are often too small for a float; then one class takes all, as it does
    # in the limit.
    return random.multinomial(1, prior / prior.sum()).astype(np.float64)


def _apportion(size: int, mix: NDArray[np.float64], left: Indices) -> Indices:
    """Whole counts in proportion to ``mix`` that add up to ``size`` and exceed nowhere what is left."""
    counts = np.zeros(len(left), np.int64)
    while missing := size - int(counts.sum()):
        room = left - counts
        weights = np.where(room > 0, mix, 0.0)
        if weights.sum() <= 0.0:
            weights = room.astype(np.float64)
        ideal = missing * (weights / weights.sum())
        more = np.floor(ideal).astype(np.int64)
        most = np.argsort(more - ideal, kind="stable")[: missing - int(more.sum())]
        more[most] += 1
        counts += np.minimum(more, room)
    return counts


def _even_order(labels: NDArray[np.int64], seed: int) -> Indices:
    """All samples, shuffled within their class, in an order of which every run has the classes in proportion.

    The j-th of n_c samples of a class stands at (j + u) / n_c of the way, u seeded for each class: a run of s
    samples then holds s·n_c/n of each class, give or take about two.
    """
    place = np.empty(len(labels))
    shuffled = stream(seed, "even order").permutation(len(labels))
    offsets = stream(seed, "even offsets").random_sample(int(labels.max()) + 1)
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        place[members] = (np.arange(len(members)) + offsets[label]) / len(members)
    return np.argsort(place, kind="stable")


def _ramp(counts: Indices) -> Indices:
    """0..c-1 for each count c, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


_METHODS: dict[str, Callable[[_Task], Indices]] = {
    "paper": _paper,
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
}
METHODS = tuple(_METHODS)
"""What ``partition`` in [data] may say."""
