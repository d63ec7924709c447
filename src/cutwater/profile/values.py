"""What every cut of a model costs, as frozen values (paper, Sec. IV-A). Needs no torch."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import FileFormatError, ModelError
from cutwater.base.jsonfile import check_document, document

FORMAT = "cutwater.profile"
VERSION = 1


@dataclass(frozen=True)
class Cut:
    """One place to cut: layers 1..cut stay with the client, the rest goes to the server.

    All amounts are for one sample; FLOPs count a multiply-add as two. At ``cut == L`` nothing is on the
    server and nothing is sent in a mini-batch; ``smashed_bits`` is then the size of the model's output.
    """

    cut: int
    name: str
    """Name of the cut layer w^(l), the last one on the client."""
    stage: str
    """The part of the model that the layer belongs to, for tables."""
    client_bits: int
    """|w^C(l)|: parameters of layers 1..l that learn."""
    client_forward_flops: float
    """F^C(l)."""
    client_backward_flops: float
    """B^C(l)."""
    server_forward_flops: float
    """F^S(l)."""
    server_backward_flops: float
    """B^S(l)."""
    smashed_bits: int
    """|S(l)|: what one sample sends up."""
    gradient_bits: int
    """|G(l)|: what one sample gets back (less than |S| where part of it carries no gradient)."""
    client_memory_bits: int
    """Peak memory of training layers 1..l at the profile's batch size: weights, gradients, optimizer state,
    saved activations."""
    ruled_out: str | None = None
    """Why this cut can't be used (tied parameters on both sides), or None."""
    weight_bits: int | None = None
    """All weights of layers 1..l, buffers and those that don't learn included; None where it is not told."""
    buffer_bits: int = 0
    """Buffers of layers 1..l that a state dict holds: they travel as the weights do that learn. The paper's
    count leaves them out."""
    frozen_bits: int = 0
    """Parameters of layers 1..l that don't learn: they travel to a device once."""


@dataclass(frozen=True)
class Profile:
    """The cost of every cut l = 1..L of one model; ``cuts[l - 1]`` is cut l."""

    model: str
    input: str
    """Shape of one sample, such as "1x28x28"."""
    classes: int | None
    count: str
    """How FLOPs were counted: "exact" or "paper"."""
    kappa: float
    """κ: backward over forward FLOPs of the whole model."""
    batch_size: int
    """The batch size that ``client_memory_bits`` is for."""
    optimizer: str
    """The optimizer whose state ``client_memory_bits`` holds."""
    cuts: tuple[Cut, ...]

    def __post_init__(self) -> None:
        if not self.cuts or [cut.cut for cut in self.cuts] != list(range(1, len(self.cuts) + 1)):
            raise ModelError(f"profile of {self.model!r} must list its cuts 1 to L in order, without gaps")

    def __len__(self) -> int:
        """L, the number of layers."""
        return len(self.cuts)

    def column(self, name: str) -> NDArray[np.float64]:
        """One amount for all cuts 1..L as an array, such as ``column("smashed_bits")``."""
        return np.array([getattr(cut, name) for cut in self.cuts], dtype=np.float64)

    @property
    def total_bits(self) -> int:
        """|w|: the size of the whole model."""
        return self.cuts[-1].client_bits

    @property
    def total_flops(self) -> float:
        """Γ = F + B of the whole model for one sample (eq. (22))."""
        return self.cuts[-1].client_forward_flops + self.cuts[-1].client_backward_flops

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        body = asdict(self)
        body["layers"] = len(self)
        body["cuts"] = [asdict(cut) for cut in self.cuts]
        return document(FORMAT, VERSION, body)

    @classmethod
    def from_json(cls, data: object, source: str = "the profile") -> "Profile":
        """Read back what :meth:`to_json` wrote, equal to the original."""
        body = check_document(data, FORMAT, VERSION, source)
        try:
            cuts = tuple(_cut(entry, source) for entry in body["cuts"])
            values = {f.name: body[f.name] for f in fields(cls) if f.name != "cuts"}
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"{source} lacks or misspells a field: {error}") from error
        for name, value in values.items():
            _check(name, value, source)
        return cls(cuts=cuts, **values)


def _cut(entry: Any, source: str) -> Cut:
    cut = Cut(**entry)
    for field in fields(Cut):
        _check(field.name, getattr(cut, field.name), f"{source}: cut {_shown(cut.cut)}")
    return cut


def _check(name: str, value: object, where: str) -> None:
    """Refuse what has no sense in the field of this name."""
    allowed, good = _FIELDS.get(name, (_AMOUNT, _is_amount))
    if not good(value):
        raise FileFormatError(f"{where} has {name} {_shown(value)}, but must have {allowed}")


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= sys.float_info.max  # a longer whole number fits no column


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _shown(value: object) -> str:
    written = repr(value)
    return written if len(written) <= 40 else f"{written[:40]}…"


_AMOUNT = "a finite number, zero or more"
_FIELDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("model", "input", "count", "optimizer", "name", "stage"), ("text", _is_text)),
    **dict.fromkeys(("batch_size", "cut"), ("a whole number of at least 1", _is_count)),
    "classes": ("a whole number or null", lambda value: value is None or _is_whole(value)),
    "weight_bits": (f"{_AMOUNT}, or null", lambda value: value is None or _is_amount(value)),
    "ruled_out": ("text or null", lambda value: value is None or _is_text(value)),
}
"""What each field holds, and whether a value is that; all others are amounts."""
