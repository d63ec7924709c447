"""Clients, one by one or as columns: a fleet of a million is a handful of arrays, not a million objects."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Annotated, Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Choice, Kind, Many, Number, Quantity, Text, Whole, quote
from cutwater.base.schema import Field, Told, check, described, schema_of
from cutwater.codec.registry import CODECS

NO_LIMIT = float("inf")
LABELS = ("go", "stay")
"""Whether labels go up to the server with smashed data, or stay on the device, and the model's tail too."""
SCHEDULES = ("in turn", "overlapped")
"""How the parts of a mini-batch cross a cut: one after the other, or as many at once as there are."""
MOST = 10**9
"""Epochs, steps or samples of a mini-batch; more is a slip of the pen."""
MOST_SAMPLES = 10**12
"""The same for a client's data."""
_SESSION, _CUT = Whole(1, MOST, quoted=True), Whole(1, quoted=True)


@dataclass(frozen=True)
class SetOf(Many):
    """Some of the known names, or numbers: a list, or a CSV cell with spaces between them."""

    def parse(self, value: Any) -> Any:
        """All of them, from a list or a cell."""
        return frozenset(super().parse(self._words(value) if isinstance(value, str) else value))

    def _words(self, cell: str) -> list[str]:
        """A known name may itself hold a space."""
        known = self.each.known if isinstance(self.each, Choice) else ()
        return re.findall("|".join([*(rf"{re.escape(name)}(?!\S)" for name in known), r"\S+"]), cell)

    def _take(self, value: Any) -> Any:
        return frozenset(super()._take(value))


@dataclass(frozen=True)
class Cuts(SetOf):
    """Cuts that must not be used."""

    each: Kind = _CUT

    def _allowed(self) -> str:
        return "a list of cuts such as [3, 4]"

    def _take(self, value: Any) -> Any:
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise ValueError(value)
        return frozenset(value)  # whether the model has them, the problem says


@described("a client", PlanError, either=((("rate",), ("up", "down")),))
@dataclass(frozen=True, kw_only=True)
class Client:
    """One device: what it can compute, send, hold, and how much data it has."""

    name: Annotated[str, Text(), "what it is called everywhere", Told("`c1`, `c2`, …")]
    compute: Annotated[float, Quantity(above=0, per="compute"), "f^C, its FLOPS"]
    rate: InitVar[
        Annotated[
            float | None,
            Quantity(above=0, per="rate"),
            "r, its link, the same both ways",
            Told("needed, or `up` and `down`"),
        ]
    ] = None
    # Neither is None once a client is made.
    up: Annotated[float, Quantity(above=0, per="rate"), "its link to the server", Told("`rate`")] = None  # type: ignore[assignment]
    down: Annotated[float, Quantity(above=0, per="rate"), "its link from the server", Told("`rate`")] = None  # type: ignore[assignment]
    samples: Annotated[int, Whole(1, MOST_SAMPLES, quoted=True), "|D|: how many samples it holds"]
    epochs: Annotated[
        int | None, _SESSION, "I: passes over its data in a session of its own", Told("that of `[session]`")
    ] = None
    steps: Annotated[
        int | None,
        _SESSION,
        "mini-batches in a session of its own, in place of epochs",
        Told("that of `[session]`"),
    ] = None
    batch_size: Annotated[
        int | None, _SESSION, "|B|: samples in a mini-batch of its own", Told("that of `[session]`")
    ] = None
    min_cut: Annotated[int, _CUT, "l_min, the least that stays on the device"] = 1
    memory: Annotated[
        float,
        Quantity(above=0, most=NO_LIMIT, per="size"),
        "what training may hold: cuts whose client-side training takes more are ruled out",
        Told("no limit"),
    ] = NO_LIMIT
    forbidden: Annotated[frozenset[int], Cuts(), "cuts that it may not use", Told("`[]`")] = frozenset()
    rtt: Annotated[
        float, Quantity(least=0, per="time"), "the round trip of its link, which every split step waits for"
    ] = 0.0
    codecs: Annotated[
        frozenset[str],
        SetOf(Choice(CODECS, own=True)),
        "the only codecs of `[wire]` that it can use",
        Told("all of them"),
    ] = frozenset()
    schedules: Annotated[
        frozenset[str],
        SetOf(Choice(SCHEDULES)),
        "the only schedules of `[wire]` that it can use",
        Told("all of them"),
    ] = frozenset()
    labels: Annotated[
        str | None,
        Choice(LABELS),
        "whether its labels `go` to the server, or `stay` with the model's tail",
        Told("that of `[session]`"),
    ] = None
    holds: Annotated[
        int,
        Whole(0, quoted=True),
        "the first layers whose weights it has already, of those that do not learn: they need not be sent",
    ] = 0
    holds_last: Annotated[
        int, Whole(0, quoted=True), "the same of the last layers, which it has where labels stay"
    ] = 0

    @property
    def held(self) -> "Held":
        """Both in one."""
        return Held(self.holds, self.holds_last)

    def __post_init__(self, rate: float | None) -> None:
        rates = (("rate", rate), ("up", self.up), ("down", self.down))
        given = {key for key, value in rates if value is not None}
        if given == {"rate"}:
            object.__setattr__(self, "up", rate)
            object.__setattr__(self, "down", rate)
        check(self, f"client {self.name!r}", given)


class Held(NamedTuple):
    """Of how many first and last layers a device has the weights that do not learn."""

    first: int = 0
    last: int = 0

    @classmethod
    def after(cls, cut: int, second_cut: int, layers: int) -> "Held":
        """What a device has from a session, of a model of so many layers."""
        return cls(cut, layers - second_cut if second_cut else 0)

    def joined(self, other: "Held") -> "Held":
        """What it has from two."""
        return Held(max(self.first, other.first), max(self.last, other.last))


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

    Zero in ``epochs``, ``steps`` or ``batch_size`` means: as the session says. ``forbidden``, ``codecs`` and
    ``schedules`` hold, for the few clients that have any, the cuts that they must not use, and the only
    codecs and schedules that they can; ``labels`` what becomes of theirs, where a client has a word on it.
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
    holds_last: Ints
    rtt: Floats
    forbidden: dict[int, frozenset[int]]
    codecs: dict[int, frozenset[str]]
    schedules: dict[int, frozenset[str]]
    labels: dict[int, str]

    def __post_init__(self) -> None:
        if not len(self):
            raise PlanError("the fleet has no clients, but a plan needs at least one")
        _check_names(self.names)
        for each in _COLUMNS.values():
            self._check(each)
        both = np.flatnonzero((self.epochs > 0) & (self.steps > 0))
        if both.size:
            raise PlanError(
                f"client {self.names[both[0]]!r} has both epochs and steps: give one or the other"
            )

    def _check(self, column: Field) -> None:
        values = getattr(self, column.name)
        if len(values) != len(self):
            raise PlanError(f"{column.name} has {len(values)} values, but the fleet has {len(self)} clients")
        assert isinstance(column.kind, Whole | Number)
        good = column.kind.holds(values)
        bad = np.flatnonzero(~(good | (values == 0) if column.may_be_none else good))
        if bad.size:
            column.kind.check(
                values[bad[0]].item(), f"client {self.names[bad[0]]!r} {column.name}", PlanError
            )
        values.flags.writeable = False

    @classmethod
    def of(cls, clients: Iterable[Client]) -> "Fleet":
        """The columns of a list of clients."""
        rows = list(clients)
        sets: dict[str, Any] = {
            name: {k: getattr(row, name) for k, row in enumerate(rows) if getattr(row, name)} for name in FEW
        }
        columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
        return cls.from_columns(names=[row.name for row in rows], **columns, **sets)

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
        holds_last: ArrayLike = 0,
        rtt: ArrayLike = 0.0,
        forbidden: dict[int, frozenset[int]] | None = None,
        codecs: dict[int, frozenset[str]] | None = None,
        schedules: dict[int, frozenset[str]] | None = None,
        labels: dict[int, str] | None = None,
    ) -> "Fleet":
        """A fleet from arrays; one number stands for all clients, names default to c1, c2, …"""
        count = len(names) if names is not None else max(map(np.size, (compute, up, down, samples)))
        named = Numbered(count) if names is None else names if isinstance(names, Numbered) else tuple(names)
        return cls(
            names=named,
            compute=_floats("compute", compute, named),
            up=_floats("up", up, named),
            down=_floats("down", down, named),
            samples=_ints("samples", samples, named),
            epochs=_ints("epochs", _zero_for_none(epochs), named),
            steps=_ints("steps", _zero_for_none(steps), named),
            batch_size=_ints("batch_size", _zero_for_none(batch_size), named),
            min_cut=_ints("min_cut", min_cut, named),
            memory=_floats("memory", memory, named),
            holds=_ints("holds", holds, named),
            holds_last=_ints("holds_last", holds_last, named),
            rtt=_floats("rtt", rtt, named),
            forbidden=dict(forbidden or {}),
            codecs=dict(codecs or {}),
            schedules=dict(schedules or {}),
            labels=dict(labels or {}),
        )

    def replace(self, **columns: Any) -> "Fleet":
        """The same fleet with some columns changed."""
        return Fleet.from_columns(**{f.name: getattr(self, f.name) for f in fields(self)} | columns)

    def take(self, count: int) -> "Fleet":
        """The first clients of the fleet."""
        return self.some(np.arange(count))

    def some(self, clients: Ints) -> "Fleet":
        """Some of the clients, by their places."""
        columns = {name: getattr(self, name)[clients] for name in _COLUMNS}
        places = clients.tolist()
        first = isinstance(self.names, Numbered) and places == list(range(len(places)))
        names = Numbered(len(places)) if first else [self.names[k] for k in places]
        few: dict[str, Any] = {}
        for name in FEW:
            given = getattr(self, name)
            few[name] = {new: given[k] for new, k in enumerate(places) if k in given} if given else {}
        return Fleet.from_columns(**columns, names=names, **few)

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
        row: dict[str, Any] = {name: getattr(self, name)[k].item() for name in _COLUMNS}
        for optional in ("epochs", "steps", "batch_size"):
            row[optional] = row[optional] or None
        sets = {name: getattr(self, name).get(k, frozenset()) for name in SETS}
        return Client(name=self.names[k], labels=self.labels.get(k), **sets, **row)


SETS = ("forbidden", "codecs", "schedules")
"""What few clients have, and those that have it a set of."""
FEW = (*SETS, "labels")
"""What few clients have."""
_COLUMNS = {
    each.name: each for each in schema_of(Client) if not each.only_read and each.name not in ("name", *FEW)
}


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
        _COLUMNS[what].kind.check(real[broken[0]].item(), f"client {names[broken[0]]!r} {what}", PlanError)
    return found


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
    return f"{whose} {what} is {quote(value)}, but must be {_COLUMNS[what].kind.allowed}"
