"""What a plan lets cross the cut of one session: the one thing both ends check everything against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from cutwater.base.errors import EngineError
from cutwater.stream.frames import FrameKind
from cutwater.stream.heads import Outline
from cutwater.stream.refusal import invalid
from cutwater.stream.tensors import Form, TensorHead, TensorSpec
from cutwater.train.rows import NUMBER
from cutwater.train.step import Part, Tensors, parts_of
from cutwater.train.three_parts import leg
from cutwater.train.wire import Coder


@dataclass(frozen=True, slots=True)
class Gate:
    """What one kind of message may carry."""

    forms: tuple[Form, ...] = ()
    most: int = field(init=False)
    """Bytes of the largest payload that fits."""
    limited: tuple[int, ...] = field(init=False)
    """Places of the tensors whose values have limits."""

    def __post_init__(self) -> None:
        limited = tuple(place for place, form in enumerate(self.forms) if form.values is not None)
        object.__setattr__(self, "limited", limited)
        heads = [TensorHead(form.name, form.dtype, form.shape) for form in self.forms]
        object.__setattr__(self, "most", Outline.of(heads, ()).total)


class Planned(NamedTuple):
    """A part of a session, as both ends know it beforehand."""

    part: Part
    rows: int
    """Its samples."""
    opens: bool
    """Whether it is the first of a window: all parts before it are answered before it is sent."""
    back: bool | None = None
    """Where the model has a tail at the client: whether it is on its way forward or back."""
    moves: int = 0
    """Of the cut, before it: each is a message of its own."""

    @property
    def number(self) -> int:
        """Of the message."""
        return self.part.number + self.moves if self.back is None else leg(self.part, back=self.back)

    @property
    def kind(self) -> FrameKind:
        """Of the message."""
        return FrameKind.BACK if self.back else FrameKind.PART

    @property
    def completes(self) -> bool:
        """Whether the part has taken effect with it."""
        return self.back is not False


_NUMBERS = TensorSpec("rows", NUMBER, (), (0, 2**31 - 1))
"""Of a part whose rows go up once: that of each sample's row."""
_PLAIN = partial(Coder.of, "fp32", seed=0)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The parts of a session and their tensors (Sec. III-B): S and labels up, G down.

    Where the model has a tail at the client, there are no labels: S up, the output of the server's layers
    down, its gradients up, and G down.
    """

    batches: tuple[int, ...]
    """|B_k| of every mini-batch, in order; a client may finish after fewer."""
    smashed: tuple[TensorSpec, ...]
    labels: TensorSpec | None
    """None where they stay at the client."""
    gradients: tuple[TensorSpec, ...]
    """One for each smashed tensor that requires a gradient, under the same name, in the same order."""
    output: tuple[TensorSpec, ...] = ()
    """Of the server's layers, where labels stay."""
    output_gradients: tuple[TensorSpec, ...] = ()
    """One for each of these that requires a gradient, as above."""
    micro_batches: int = 1
    """The parts that every mini-batch is trained in."""
    overlapped: bool = False
    """Whether all parts of a mini-batch may be on their way at once, or one at a time."""
    once: int = 0
    """The rows that the server keeps, where one that it has goes up as its number; 0: rows go up as they are.
    """
    up: Coder = field(default_factory=partial(_PLAIN, direction="up"))
    down: Coder = field(default_factory=partial(_PLAIN, direction="down"))

    def __post_init__(self) -> None:
        for what, value in (("micro_batches", self.micro_batches), ("batches", min(self.batches, default=0))):
            if not 0 < value < 2**32:
                raise EngineError(f"{what} is {value}, but must be 1 to {2**32 - 1}")
        if not self.smashed:
            raise EngineError("a session over the stream needs at least one smashed tensor")
        if (self.labels is None) != bool(self.output) or (self.output and self.overlapped):
            raise EngineError(
                "with labels there is no output; without labels there must be one, and parts must not overlap"
            )
        if self.once and (self.gradients or self.overlapped):
            raise EngineError("rows go up once where parts go in turn and no gradient comes back")
        names = [spec.name for spec in (*self.smashed, *([self.labels] if self.labels else ()))]
        if len(set(names)) != len(names):
            raise EngineError(f"the tensor names {names} must differ")
        for what, gradients, of in (
            ("smashed data", self.gradients, self.smashed),
            ("the server's output", self.output_gradients, self.output),
        ):
            if not set(gradients) <= set(of):
                raise EngineError(
                    f"every gradient of {what} must have name, type and shape of a tensor of it"
                )

    @property
    def window(self) -> int:
        """The most parts that are on their way at once."""
        return min(self.micro_batches, max(self.batches)) if self.overlapped else 1

    @property
    def largest_part(self) -> int:
        """Samples of the largest part."""
        return -(-max(self.batches) // min(self.micro_batches, max(self.batches)))

    @property
    def held_bytes(self) -> int:
        """The most that the server holds of parts and replies at once, tensors and what surrounds them.

        Of every part of a window there is what came, the same decoded where a codec made it, and the reply,
        which is kept until the next window begins. One reply is there before it is coded, too. Rows that go
        up once are kept to the session's end.
        """
        rows = self.largest_part
        came = max(gate.most for gate in self.at_server(rows).values())
        reply = max(gate.most for gate in self.at_client(rows).values())
        plain = replace(self, up=_PLAIN(direction="up"), down=_PLAIN(direction="down"))
        decoded = 0 if self.up.plain else max(gate.most for gate in plain.at_server(rows).values())
        uncoded = 0 if self.down.plain else max(gate.most for gate in plain.at_client(rows).values())
        kept = self.once * max(gate.most for gate in plain.at_server(1).values()) if self.once else 0
        return self.window * (came + decoded + reply) + uncoded + kept

    def parts(self) -> Iterator[Planned]:
        """All parts, in order, made as they are asked for."""
        first, shapes = 0, dict[int, list[tuple[Part, int]]]()
        for samples in self.batches:
            # Nearly all mini-batches have as many samples, and this is on the way of every part.
            shape = shapes.get(samples) or shapes.setdefault(
                samples, parts_of(0, samples, self.micro_batches)
            )
            for part, rows in shape:
                opens = part.number == 0 or not self.overlapped
                mine = Part(first + part.number, part.weight, part.last)
                if self.output:
                    yield from (Planned(mine, rows, opens, back=back) for back in (False, True))
                else:
                    yield Planned(mine, rows, opens)
            first += len(shape)

    def at_server(self, rows: int) -> dict[FrameKind, Gate]:
        """What a client may send when a part of so many samples is next."""
        fewer = self.once > 0
        forms = [spec.form(rows, self.up, fewer=fewer) for spec in self.smashed]
        forms += [self.labels.form(rows, fewer=fewer)] if self.labels is not None else []
        forms += [_NUMBERS.form(rows)] if fewer else []
        gates = {FrameKind.PART: Gate(tuple(forms)), FrameKind.FINISH: Gate(), FrameKind.PING: Gate()}
        if self.labels is None:
            back = tuple(spec.form(rows, self.up) for spec in self.output_gradients)
            gates[FrameKind.BACK] = Gate(back)
        return gates

    def at_client(self, rows: int) -> dict[FrameKind, Gate]:
        """What the server may send when the reply to a part of so many samples is next."""
        gradients = tuple(spec.form(rows, self.down) for spec in self.gradients)
        gates = {
            FrameKind.WELCOME: Gate(),
            FrameKind.REPLY: Gate(gradients),
            FrameKind.FINISHED: Gate(),
            FrameKind.PONG: Gate(),
        }
        if self.output:
            gates[FrameKind.OUTPUT] = Gate(tuple(spec.form(rows, self.down) for spec in self.output))
        return gates

    def going_up(self, planned: Planned) -> tuple[TensorSpec, ...]:
        """What a codec may take of a part: smashed data, or the gradients of the server's output."""
        return self.output_gradients if planned.back else self.smashed

    def going_down(self, planned: Planned) -> tuple[TensorSpec, ...]:
        """The same of its answer: gradients, or what the client's tail takes."""
        return self.gradients if planned.completes else self.output

    def came_up(self, planned: Planned, coded: Tensors, said: Mapping[str, float] | None = None) -> Tensors:
        """What the server trains on, from what arrived, with the sizes that were said where they vary."""
        return _decoded(self.up, planned, coded, self.going_up(planned), said or {})

    def came_down(self, planned: Planned, coded: Tensors, said: Mapping[str, float] | None = None) -> Tensors:
        """What the client goes on with, in the same way."""
        return _decoded(self.down, planned, coded, self.going_down(planned), said or {})


SIZE = "size_"
"""Before the place of a tensor and that of a dimension: how large this is, where that varies and is coded."""


def said_sizes(coder: Coder, specs: Sequence[TensorSpec], tensors: Tensors) -> dict[str, float]:
    """The sizes that bytes of a codec do not tell, where they vary."""
    if coder.plain:
        return {}
    pairs = enumerate(zip(specs, tensors, strict=True))
    return {
        f"{SIZE}{place}_{at}": float(tensor.shape[1 + at])
        for place, (spec, tensor) in pairs
        for at in spec.varies
    }


def _shape(place: int, spec: TensorSpec, said: Mapping[str, float]) -> tuple[int, ...]:
    """The shape of a sample, within what the plan allows."""
    shape = list(spec.shape)
    for at in spec.varies:
        size = said.get(f"{SIZE}{place}_{at}", 0.0)
        if not (size.is_integer() and 1 <= size <= spec.shape[at]):
            raise invalid(
                f"tensor {spec.name!r} is said to have a size of {size:g} in dimension {1 + at}, but the "
                f"plan allows 1 to {spec.shape[at]}"
            )
        shape[at] = int(size)
    return tuple(shape)


def _decoded(
    coder: Coder, planned: Planned, coded: Tensors, specs: Sequence[TensorSpec], said: Mapping[str, float]
) -> Tensors:
    if coder.plain:
        return coded
    like = [spec.like(planned.rows, _shape(place, spec, said)) for place, spec in enumerate(specs)]
    return coder.decode(planned.number, coded, like)
