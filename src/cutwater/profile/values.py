"""What every cut of a model costs, as frozen values (paper, Sec. IV-A). Needs no torch."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import FileFormatError, ModelError
from cutwater.base.jsonfile import check_document, document
from cutwater.base.kinds import Flag, Many, Number, Text, Whole
from cutwater.base.schema import Nested, described, read, schema_of
from cutwater.codec.crossing import Crossing

FORMAT = "cutwater.profile"
VERSION = 1
COUNTS = ("exact", "paper")
"""How FLOPs can be counted."""


_AMOUNT, _BITS = Number(0), Whole(0)


@described("a cut", FileFormatError)
@dataclass(frozen=True)
class Cut:
    """One place to cut: layers 1..cut stay with the client, the rest goes to the server.

    All amounts are for one sample; FLOPs count a multiply-add as two. At ``cut == L`` nothing is on the
    server and nothing is sent in a mini-batch; ``smashed_bits`` is then the size of the model's output.
    """

    cut: Annotated[int, Whole(1), "l, the number of layers on the client"]
    name: Annotated[str, Text(empty=True), "name of the cut layer w^(l), the last one on the client"]
    stage: Annotated[str, Text(empty=True), "the part of the model that the layer belongs to, for tables"]
    client_bits: Annotated[int, _BITS, "|w^C(l)|: parameters of layers 1..l that learn"]
    client_forward_flops: Annotated[float, _AMOUNT, "F^C(l)"]
    client_backward_flops: Annotated[float, _AMOUNT, "B^C(l)"]
    server_forward_flops: Annotated[float, _AMOUNT, "F^S(l)"]
    server_backward_flops: Annotated[float, _AMOUNT, "B^S(l)"]
    smashed_bits: Annotated[int, _BITS, "|S(l)|: what one sample sends up"]
    gradient_bits: Annotated[
        int, _BITS, "|G(l)|: what one sample gets back (less than |S| where part of it carries no gradient)"
    ]
    client_memory_bits: Annotated[
        int,
        _BITS,
        "peak memory of training layers 1..l at the profile's batch size: weights, gradients, optimizer "
        "state, saved activations",
    ]
    ruled_out: Annotated[
        str | None, Text(empty=True), "why this cut can't be used (tied parameters on both sides), or none"
    ] = None
    weight_bits: Annotated[
        int | None,
        _BITS,
        "all weights of layers 1..l, buffers and those that don't learn included, where told",
    ] = None
    buffer_bits: Annotated[
        int,
        _BITS,
        "buffers of layers 1..l that a state dict holds: they travel as the weights do that learn; the "
        "paper's count leaves them out",
    ] = 0
    frozen_bits: Annotated[
        int, _BITS, "parameters of layers 1..l that don't learn: they travel to a device once"
    ] = 0
    crossing: Annotated[
        tuple[Crossing, ...] | None,
        Many(Nested(Crossing)),
        "the tensors that cross the cut, where they are told: what a codec makes of them follows from it",
    ] = None
    repeats: Annotated[
        bool,
        Flag(),
        "whether a sample crosses the same in every epoch: nothing before the cut learns, draws or goes by "
        "the other samples of a mini-batch",
    ] = False

    @property
    def client_flops(self) -> float:
        """F^C(l) + B^C(l): what the client computes for one sample."""
        return self.client_forward_flops + self.client_backward_flops


@described("a shared weight", FileFormatError)
@dataclass(frozen=True)
class SharedWeight:
    """A tensor that several layers use."""

    name: Annotated[str, Text(empty=True), "the first of its names"]
    layers: Annotated[tuple[int, ...], Many(Whole(1), 2), "those that use it, ascending"]
    bits: Annotated[int, _BITS, "its size"]
    learns: Annotated[bool, Flag(), "whether training changes it, so that it may be on one side only"]


@described("the profile", FileFormatError)
@dataclass(frozen=True)
class Profile:
    """The cost of every cut l = 1..L of one model; ``cuts[l - 1]`` is cut l."""

    model: Annotated[str, Text(empty=True), "the model by name"]
    input: Annotated[str, Text(empty=True), 'shape of one sample, such as "1x28x28"']
    classes: Annotated[int | None, Whole(0), "number of classes, where it has any"]
    count: Annotated[str, Text(empty=True), 'how FLOPs were counted: "exact" or "paper"']
    kappa: Annotated[float, _AMOUNT, "κ: backward over forward FLOPs of the whole model"]
    batch_size: Annotated[int, Whole(1), "the batch size that client_memory_bits is for"]
    optimizer: Annotated[str, Text(empty=True), "the optimizer whose state client_memory_bits holds"]
    cuts: Annotated[tuple[Cut, ...], Many(Nested(Cut)), "all cuts 1..L in order"]
    shared: Annotated[
        tuple[SharedWeight, ...] | None,
        Many(Nested(SharedWeight)),
        "the tensors that several layers use, where they are told: which pairs of cuts they allow follows",
    ] = None
    batch_norm: Annotated[
        bool,
        Flag(),
        "whether layers normalise by the statistics of their batch (BatchNorm): with micro-batches those are "
        "of the part, a smaller batch",
    ] = False

    def __post_init__(self) -> None:
        if not self.cuts or [cut.cut for cut in self.cuts] != list(range(1, len(self.cuts) + 1)):
            raise ModelError(f"profile of {self.model!r} must list its cuts 1 to L in order, without gaps")

    def __len__(self) -> int:
        """L, the number of layers."""
        return len(self.cuts)

    def column(self, name: str) -> NDArray[np.float64]:
        """One amount for all cuts 1..L as an array, such as ``column("smashed_bits")``."""
        if name not in self._columns:
            self._columns[name] = np.array([getattr(cut, name) for cut in self.cuts], dtype=np.float64)
        return self._columns[name].copy()

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.float64]]:
        return {}

    @cached_property
    def crossings(self) -> tuple[tuple[tuple[Crossing, ...] | None, ...], NDArray[np.int64]]:
        """What crosses, each kind once, and the place of every cut's among them.

        Blocks repeat, and so do the tensors between them.
        """
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys(cut.crossing for cut in self.cuts))}
        return tuple(kinds), np.array([kinds[cut.crossing] for cut in self.cuts], dtype=np.int64)

    @property
    def total_bits(self) -> int:
        """|w|: the size of the whole model."""
        return self.cuts[-1].client_bits

    @property
    def total_flops(self) -> float:
        """Γ = F + B of the whole model for one sample (eq. (22))."""
        return self.cuts[-1].client_flops

    @property
    def client_flops(self) -> NDArray[np.float64]:
        """F^C(l) + B^C(l) for all cuts 1..L."""
        return self.column("client_forward_flops") + self.column("client_backward_flops")

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        body = asdict(self) | {"layers": len(self), "cuts": [asdict(cut) for cut in self.cuts]}
        return document(FORMAT, VERSION, body)

    @classmethod
    def from_json(cls, data: object, source: str = "the profile") -> "Profile":
        """Read back what :meth:`to_json` wrote, equal to the original."""
        body = check_document(data, FORMAT, VERSION, source)
        # What a command prints of a profile holds more, such as its fit: that follows from the rest.
        known = {each.key for each in schema_of(cls)}
        return read(cls, {key: value for key, value in body.items() if key in known}, source)


def worth_choosing(profile: Profile) -> tuple[int, ...]:
    """The cuts l that no other cut matches with as few bits of w^C, FLOPs of the client, bits of S and of G.

    Whatever its rate, a client whose share of the server is at least as fast as the client itself has its
    lowest latency (eq. (20)) at one of these, because T_k then grows with each of the four. Where the server
    is the slower side, or its compute is scarce among clients, another cut can be the better one. L is always
    among them: it alone needs no server and sends nothing in a mini-batch.
    """
    allowed = [cut for cut in profile.cuts[:-1] if cut.ruled_out is None]
    best = [cut.cut for cut in allowed if not any(_beats(other, cut) for other in allowed)]
    return (*best, len(profile))


def _beats(other: Cut, cut: Cut) -> bool:
    """No worse in any amount, and better in one; of equals, the earlier is kept."""
    theirs, ours = (
        (each.client_bits, each.client_flops, each.smashed_bits, each.gradient_bits) for each in (other, cut)
    )
    no_worse = all(a <= b for a, b in zip(theirs, ours, strict=True))
    return no_worse and (theirs != ours or other.cut < cut.cut)
