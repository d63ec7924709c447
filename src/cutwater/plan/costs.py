"""What each cut costs, as arrays over the cuts: the paper's columns, and what crosses the cut by wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.codec.crossing import crossing_size
from cutwater.codec.registry import find_codec
from cutwater.plan.session import Wire
from cutwater.profile.values import Profile


@dataclass(frozen=True)
class Costs:
    """What each cut 1..L costs for one sample; cut L sends nothing and needs no server (eq. (18))."""

    bits: Floats
    """What of w^C travels down and up in every round: weights that learn, and buffers."""
    once: Floats
    """What of it travels down once: weights that do not learn, of layers 1..l."""
    client_forward: Floats
    client_backward: Floats
    server_forward: Floats
    server_backward: Floats
    smashed: Floats
    gradient: Floats

    @classmethod
    def of(cls, profile: Profile) -> "Costs":
        """The columns of a profile with eq. (18) applied to its last cut."""
        bits = profile.column("client_bits") + profile.column("buffer_bits")
        costs = cls(bits, *(profile.column(name) for name in _COLUMNS))
        for whole_model_has_none in (
            costs.server_forward,
            costs.server_backward,
            costs.smashed,
            costs.gradient,
        ):
            whole_model_has_none[-1] = 0.0
        return costs

    @cached_property
    def client(self) -> Floats:
        """F^C + B^C."""
        return self.client_forward + self.client_backward

    def once_after(self, row: Ints, holds: ArrayLike) -> Floats:
        """Fixed weights of the layers up to a row of these columns that a device with some of them lacks."""
        held = np.minimum(np.asarray(holds, dtype=np.int64), len(self.once))
        lacking: Floats = np.maximum(self.once[row] - np.concatenate([[0.0], self.once])[held], 0.0)
        return lacking

    @cached_property
    def server(self) -> Floats:
        """F^S + B^S."""
        return self.server_forward + self.server_backward


_COLUMNS = (
    "frozen_bits",
    "client_forward_flops",
    "client_backward_flops",
    "server_forward_flops",
    "server_backward_flops",
    "smashed_bits",
    "gradient_bits",
)


@dataclass(frozen=True)
class WireCosts:
    """Bits that cross each cut, one row for each wire: for a sample, and for a message (a part) on top.

    Cut L sends nothing. A lossless codec takes at most this.
    """

    smashed: Floats
    smashed_message: Floats
    gradient: Floats
    gradient_message: Floats
    overlapped: Bools
    """Which wires overlap the parts of a step."""
    coded: Bools
    """Which wires send smashed data otherwise than it is, so that there is a copy of it."""
    known: Bools
    """Where the profile tells of the tensors at a cut, so that coded ones can be priced."""

    @classmethod
    def of(cls, profile: Profile, costs: Costs, wires: Sequence[Wire]) -> "WireCosts":
        """The bits of every wire at every cut."""
        names = {*(wire.up for wire in wires), *(wire.down for wire in wires)}
        up = {name: _sizes(profile, name, costs.smashed, down=False) for name in names}
        down = {name: _sizes(profile, name, costs.gradient, down=True) for name in names}
        return cls(
            np.array([up[wire.up][0] for wire in wires]),
            np.array([up[wire.up][1] for wire in wires]),
            np.array([down[wire.down][0] for wire in wires]),
            np.array([down[wire.down][1] for wire in wires]),
            np.array([wire.schedule == "overlapped" for wire in wires]),
            np.array([wire.up != "fp32" for wire in wires]),
            np.array([_known(profile, wire) for wire in wires]),
        )


def _sizes(profile: Profile, name: str, plain: Floats, *, down: bool) -> tuple[Floats, Floats]:
    """Bits of a sample and of a message at every cut under one codec."""
    if name == "fp32":
        return plain, np.zeros_like(plain)
    codec = find_codec(name)
    sizes = [
        (0, 0) if cut.crossing is None else crossing_size(cut.crossing, codec, down=down)
        for cut in profile.cuts
    ]
    sizes[-1] = (0, 0)
    sample, message = np.array(sizes, dtype=np.float64).T
    return np.array(sample), np.array(message)


def _known(profile: Profile, wire: Wire) -> list[bool]:
    plain = wire.up == wire.down == "fp32"
    last = len(profile)
    return [plain or cut.crossing is not None or cut.cut == last for cut in profile.cuts]
