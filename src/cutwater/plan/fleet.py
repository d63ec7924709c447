"""Clients, one by one or as columns: a fleet of a million is a handful of arrays, not a million objects."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutwater.base.errors import PlanError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_LIMIT = float("inf")
MOST = 10**9
"""Epochs, steps or samples of a mini-batch; more is a slip of the pen."""
MOST_SAMPLES = 10**12
"""The same for a client's data."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """One device: what it can compute, send, hold, and how much data it has."""

    name: str
    compute: float
    """f^C in FLOPS."""
    rate: InitVar[float | None] = None
    """r in bits per second, for both directions; or give ``up`` and ``down``."""
    up: float = None  # type: ignore[assignment] # never None once made
    down: float = None  # type: ignore[assignment]
    samples: int
    """|D|: the size of the local data set."""
    epochs: int | None = None
    """I: passes over the data in a session; the session's own number if neither this nor steps is given."""
    steps: int | None = None
    """Mini-batches in a session, instead of epochs."""
    batch_size: int | None = None
    """|B|; the session's if not given."""
    min_cut: int = 1
    """l^min: the smallest cut that the client's privacy allows."""
    memory: float = NO_LIMIT
    """What training may hold, in bits."""
    forbidden: frozenset[int] = frozenset()
    """Cuts that this client must not use."""
    holds: int = 0
    """It has the weights that do not learn of layers 1..holds already: they need not be sent."""

    def __post_init__(self, rate: float | None) -> None:
        given = (self.up is not None, self.down is not None)
        if rate is not None and any(given):
            raise PlanError(
                f"client {self.name!r} has both a rate and an up or down rate: give one or the other"
            )
        if rate is None and not all(given):
            raise PlanError(f"client {self.name!r} lacks a rate: give rate, or both up and down")
        if rate is not None:
            object.__setattr__(self, "up", rate)
            object.__setattr__(self, "down", rate)
        for what in ("epochs", "steps", "batch_size"):
            value = getattr(self, what)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if value is not None and not (number and 1 <= value <= MOST):
                name, shown = what.replace("_", " "), repr(value)[:30]
                raise PlanError(f"client {self.name!r} has {name} {shown}, but must have {_whole(name)}")
        if isinstance(self.forbidden, str | Mapping) or not isinstance(self.forbidden, Iterable):
            shown = repr(self.forbidden)[:30]
            raise PlanError(
                f"client {self.name!r} has forbidden cuts {shown}, but must have a list of whole numbers"
            )
        object.__setattr__(self, "forbidden", frozenset(self.forbidden))


class Numbered(Sequence[str]):
    """The names c1, c2, …, made when asked for."""

    def __init__(self, count: int) -> None:
        self._range = range(1, count + 1)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(f"c{number}" for number in self._range[index])
        return f"c{self._range[index]}"


@dataclass(frozen=True, eq=False)
class Fleet(Sequence[Client]):
    """All clients as read-only columns; ``fleet[k]`` is a :class:`Client`.

    Zero in ``epochs``, ``steps`` or ``batch_size`` means: as the session says. ``forbidden`` holds, for the
    few clients that have any, the cuts they must not use.
    """

    names: Sequence[str]
    compute: Floats
    up: Floats
    down: Floats
    samples: Ints
    epochs: Ints
    steps: Ints
    batch_size: Ints
    min_cut: Ints
    memory: Floats
    holds: Ints
    forbidden: dict[int, frozenset[int]]

    def __post_init__(self) -> None:
        if not len(self):
            raise PlanError("the fleet has no clients, but a plan needs at least one")
        _check_names(self.names)
        for name in ("compute", "up", "down"):
            self._check(name, lambda x: np.isfinite(x) & (x > 0), "a finite number above zero")
        self._check("samples", lambda x: (x > 0) & (x <= MOST_SAMPLES), _whole("samples"))
        self._check("min_cut", lambda x: x > 0, "a cut layer, 1 or more")
        self._check("memory", lambda x: x > 0, "above zero")
        self._check("holds", lambda x: x >= 0, "a number of layers, 0 or more")
        for name in ("epochs", "steps", "batch_size"):
            self._check(name, lambda x: (x >= 0) & (x <= MOST), _whole(name))
        both = np.flatnonzero((self.epochs > 0) & (self.steps > 0))
        if both.size:
            raise PlanError(
                f"client {self.names[both[0]]!r} has both epochs and steps: give one or the other"
            )

    def _check(self, column: str, good: Callable[[Any], NDArray[np.bool_]], allowed: str) -> None:
        values = getattr(self, column)
        if len(values) != len(self):
            raise PlanError(f"{column} has {len(values)} values, but the fleet has {len(self)} clients")
        bad = np.flatnonzero(~good(values))
        if bad.size:
            what = column if column not in ("up", "down") else f"{column} rate"
            name, value = self.names[bad[0]], values[bad[0]].item()
            raise PlanError(f"client {name!r} has {what.replace('_', ' ')} {value}, but must have {allowed}")
        values.flags.writeable = False

    @classmethod
    def of(cls, clients: Iterable[Client]) -> "Fleet":
        """The columns of a list of clients."""
        rows = list(clients)
        return cls.from_columns(
            names=[row.name for row in rows],
            forbidden={k: row.forbidden for k, row in enumerate(rows) if row.forbidden},
            **{
                f.name: [getattr(row, f.name) for row in rows]
                for f in fields(Client)
                if f.name not in _NOT_COLUMNS
            },
        )

    @classmethod
    def from_columns(
        cls,
        *,
        compute: ArrayLike,
        up: ArrayLike,
        down: ArrayLike,
        samples: ArrayLike,
        names: Sequence[str] | None = None,
        epochs: ArrayLike | None = None,
        steps: ArrayLike | None = None,
        batch_size: ArrayLike | None = None,
        min_cut: ArrayLike = 1,
        memory: ArrayLike = NO_LIMIT,
        holds: ArrayLike = 0,
        forbidden: dict[int, frozenset[int]] | None = None,
    ) -> "Fleet":
        """A fleet from arrays; one number stands for all clients, names default to c1, c2, …"""
        count = len(names) if names is not None else max(map(np.size, (compute, up, down, samples)))
        labels = Numbered(count) if names is None else names if isinstance(names, Numbered) else tuple(names)
        return cls(
            names=labels,
            compute=_floats("compute", compute, labels),
            up=_floats("up rate", up, labels),
            down=_floats("down rate", down, labels),
            samples=_ints("samples", samples, labels),
            epochs=_ints("epochs", _zero_for_none(epochs), labels),
            steps=_ints("steps", _zero_for_none(steps), labels),
            batch_size=_ints("batch size", _zero_for_none(batch_size), labels),
            min_cut=_ints("min cut", min_cut, labels),
            memory=_floats("memory", memory, labels),
            holds=_ints("holds", holds, labels),
            forbidden=dict(forbidden or {}),
        )

    def replace(self, **columns: Any) -> "Fleet":
        """The same fleet with some columns changed."""
        return Fleet.from_columns(**{f.name: getattr(self, f.name) for f in fields(self)} | columns)

    def take(self, count: int) -> "Fleet":
        """The first clients of the fleet."""
        columns = {f.name: getattr(self, f.name)[:count] for f in fields(self) if f.name not in _NOT_COLUMNS}
        names = Numbered(count) if isinstance(self.names, Numbered) else self.names[:count]
        few = {k: cuts for k, cuts in self.forbidden.items() if k < count}
        return Fleet.from_columns(**columns, names=names, forbidden=few)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Client]:
        return (self[k] for k in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Client: ...
    @overload
    def __getitem__(self, index: slice) -> list[Client]: ...
    def __getitem__(self, index: int | slice) -> Client | list[Client]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        row: dict[str, Any] = {
            f.name: getattr(self, f.name)[k].item() for f in fields(self) if f.name not in _NOT_COLUMNS
        }
        for optional in ("epochs", "steps", "batch_size"):
            row[optional] = row[optional] or None
        return Client(name=self.names[k], forbidden=self.forbidden.get(k, frozenset()), **row)


_NOT_COLUMNS = ("name", "names", "forbidden")


def _check_names(names: Sequence[str]) -> None:
    if isinstance(names, Numbered):
        return
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise PlanError(f"a client is named {name!r}, but a name must be text that is not empty")
        if name in seen:
            raise PlanError(f"client {name!r} appears more than once: give every client a name of its own")
        seen.add(name)


def _zero_for_none(values: ArrayLike | None) -> ArrayLike:
    if isinstance(values, list):
        return [0 if value is None else value for value in values]
    return 0 if values is None else values


def _floats(what: str, values: ArrayLike, names: Sequence[str]) -> Floats:
    raw = np.asarray(values)
    if raw.dtype.kind == "O" and all(_is_number(value) for value in raw.flat):
        # Whole numbers beyond 64 bits; which one is too large, and for what, is found later.
        raw = np.array([_as_float(value) for value in raw.flat]).reshape(raw.shape)
    if raw.dtype.kind not in "iuf":
        raise PlanError(_not_a_number(what, values, names))
    if raw.ndim > 1:
        raise PlanError(f"{what} has {raw.ndim} dimensions, but a fleet needs one value for each client")
    return np.full(len(names), raw, dtype=np.float64) if raw.ndim == 0 else np.array(raw, dtype=np.float64)


def _ints(what: str, values: ArrayLike, names: Sequence[str]) -> Ints:
    real = _floats(what, values, names)
    with np.errstate(invalid="ignore"):
        found = real.astype(np.int64)
    broken = np.flatnonzero(found != real)
    if broken.size:
        value = real[broken[0]].item()
        raise PlanError(f"client {names[broken[0]]!r} has {what} {value}, but must have {_whole(what)}")
    return found


def _whole(what: str) -> str:
    return f"a whole number from 1 to {MOST_SAMPLES if what == 'samples' else MOST:,}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _not_a_number(what: str, values: Any, names: Sequence[str]) -> str:
    rows = enumerate(values) if isinstance(values, list | tuple) else ()
    bad = ((k, v) for k, v in rows if not _is_number(v))
    k, value = next(bad, (None, values))
    whose = "the fleet" if k is None else f"client {names[k]!r}"
    return f"{whose} has {what} {value!r}, but must have a number"
