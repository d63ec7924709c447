"""How much a client trains in one round: mini-batches, and the parts that each of them is trained in."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any

import numpy as np

from cutwater.base.arrays import Bools, Ints
from cutwater.base.errors import CutwaterError, PlanError
from cutwater.base.kinds import Choice, JsonSchema, Many, Whole
from cutwater.base.schema import Told, check, described
from cutwater.codec.registry import CODECS, lossy_among
from cutwater.plan.fleet import LABELS, MOST, SCHEDULES, Client

PRECISIONS = ("bf16",)


@described("the session", PlanError, either=((("epochs",), ("steps",)),))
@dataclass(frozen=True, kw_only=True)
class Session:
    """How much a client trains in one round: ``epochs`` over its data, or ``steps`` mini-batches."""

    epochs: Annotated[
        int | None,
        Whole(1, MOST, quoted=True),
        "I: a session is so many passes over the client's samples",
        Told("needed, or `steps`"),
    ] = None
    steps: Annotated[
        int | None,
        Whole(1, MOST, quoted=True),
        "a session is so many mini-batches",
        Told("needed, or `epochs`"),
    ] = None
    batch_size: Annotated[int, Whole(1, MOST, quoted=True), "|B|: samples in a mini-batch"] = 32
    micro_batches: Annotated[
        int,
        Whole(1, MOST, quoted=True),
        "m: every mini-batch is trained in so many parts whose gradients are added up, on every client, cut "
        "or not; a cut client may then compute, send and receive different parts at the same time; batch "
        "normalisation sees the parts",
    ] = 1
    labels: Annotated[
        str,
        Choice(LABELS),
        "`go`: labels go up to the server with smashed data; `stay`: labels, loss and the model's last "
        "layers stay on the device, and the server has the layers between two cuts",
    ] = "go"
    autocast: Annotated[
        str | None,
        Choice(PRECISIONS),
        "`bf16`: forward passes and the loss are computed under torch's autocast, on both sides of a cut and "
        "by whole clients alike; what then crosses a cut as bf16 is priced as that; weights stay as they "
        "are, and the model is scored in their precision",
    ] = None

    def __post_init__(self) -> None:
        check(self)
        check_micro_batches(self.micro_batches, self.batch_size, "the session")

    def of(self, client: Client) -> "Session":
        """How much one client trains: by its own numbers where it has any, else by these."""
        own = client.epochs is not None or client.steps is not None
        if not own and client.batch_size is None and client.labels is None:
            return self
        source = client if own else self
        size = client.batch_size or self.batch_size
        check_micro_batches(self.micro_batches, size, f"client {client.name!r}")
        labels = client.labels or self.labels
        return replace(self, epochs=source.epochs, steps=source.steps, batch_size=size, labels=labels)


@dataclass(frozen=True)
class Wire:
    """How the parts of a split step cross the cut."""

    schedule: str = "in turn"
    up: str = "fp32"
    """The codec of smashed data."""
    down: str = "fp32"
    """The codec of gradients."""


@dataclass(frozen=True)
class OneOrMany(Many):
    """One name, or a list of at least one."""

    least: int = 1

    def parse(self, value: Any) -> Any:
        """The names."""
        return super().parse([value] if isinstance(value, str) else value)

    def refusal(self, value: Any, what: str, refused: type[CutwaterError]) -> CutwaterError:
        """What is wrong with the one name, or with one of the list."""
        if isinstance(value, str):
            return self.each.refusal(value, what, refused)
        return super().refusal(value, what, refused)

    def check(self, value: Any, what: str, refused: type[CutwaterError]) -> Any:
        """The names as a field holds them, or one sentence."""
        try:
            return self._take(value)
        except ValueError:
            raise self.refusal(value, what, refused) from None

    def json_schema(self) -> JsonSchema:
        """One name by itself, or a list of names."""
        return {"anyOf": [self.each.json_schema(), super().json_schema()]}

    def _allowed(self) -> str:
        return f"{self.each.written}, or a list of them"

    def _take(self, value: Any) -> Any:
        return super()._take([value] if isinstance(value, str) else value)


_CODECS = OneOrMany(Choice(CODECS, own=True))


@described("[wire]", PlanError)
@dataclass(frozen=True, kw_only=True)
class Wires:
    """``[wire]``: how smashed data and gradients may cross a cut; a plan chooses for each client."""

    up: Annotated[
        tuple[str, ...],
        _CODECS,
        "codecs of smashed data: `fp32` (as it is), `lossless` (zeros cost a bit; the same bits arrive), and "
        "lossy ones, which change what is learned: `bf16`, `fp16`, `int8`, `int4`, `topk`; of several, the "
        "plan takes the first of those that make a client fastest",
    ] = ("fp32",)
    down: Annotated[tuple[str, ...], _CODECS, "codecs of gradients, as above"] = ("fp32",)
    schedule: Annotated[
        tuple[str, ...],
        OneOrMany(Choice(SCHEDULES)),
        "`in turn` (one part of a mini-batch at a time) or `overlapped` (all parts on their way at once, and "
        "in memory); matters where `micro_batches` of `[session]` is above 1",
    ] = SCHEDULES

    def __post_init__(self) -> None:
        check(self)

    @property
    def lossy(self) -> tuple[str, ...]:
        """The codecs among these that change what is learned."""
        return lossy_among((*self.up, *self.down))

    @classmethod
    def both_ways(cls, codec: str) -> "Wires":
        """One codec for smashed data and gradients."""
        return cls(up=(codec,), down=(codec,))

    def options(self, micro_batches: int) -> tuple[Wire, ...]:
        """The ways in which a split step may go, those first that are preferred where time is the same.

        A mini-batch of one part has nothing to overlap.
        """
        schedules = (
            [each for each in SCHEDULES if each in self.schedule] if micro_batches > 1 else SCHEDULES[:1]
        )
        return tuple(Wire(*each) for each in product(dict.fromkeys(schedules), self.up, self.down))


def usable(wires: Sequence[Wire], codecs: Container[str] | None, schedules: Container[str] | None) -> Bools:
    """Which wires a client can use that knows only some codecs and schedules (None: all of them)."""

    def can(wire: Wire) -> bool:
        coded = codecs is None or (wire.up in codecs and wire.down in codecs)
        return coded and (schedules is None or wire.schedule in schedules)

    return np.array([can(wire) for wire in wires])


def check_micro_batches(micro_batches: int, batch_size: int, whose: str) -> None:
    """Refuse more parts than a mini-batch has samples."""
    if micro_batches > batch_size:
        raise PlanError(
            f"micro_batches is {micro_batches}, but the mini-batches of {whose} have {batch_size} samples: "
            f"use at most {batch_size}, or a larger batch_size"
        )


def part_sizes(samples: int, micro_batches: int) -> list[int]:
    """How many samples each part of a mini-batch has: as equal as can be, the larger ones first.

    A mini-batch of fewer samples than parts (the last of a pass) has a part for each of them.

    >>> part_sizes(32, 1), part_sizes(10, 4), part_sizes(2, 4)
    ([32], [3, 3, 2, 2], [1, 1])
    """
    count = min(micro_batches, samples)
    least, more = divmod(samples, count)
    return [least + (place < more) for place in range(count)]


def last_of_pass(samples: Ints, batch_size: Ints) -> tuple[Ints, Ints]:
    """Of a pass over so many samples: how many mini-batches are full, and how large the other one is, if any.

    A sample that would be left alone joins the mini-batch before it: batch normalisation can't work on one.

    >>> import numpy as np
    >>> last_of_pass(np.array([96, 100, 65]), np.array([32, 32, 32]))
    (array([3, 3, 1]), array([ 0,  4, 33]))
    """
    full, left = np.divmod(samples, batch_size)
    lone = (left == 1) & (batch_size > 1) & (full > 0)
    return full - lone, np.where(lone, batch_size + 1, left)
