"""What each cut costs, as arrays over the cuts: the paper's columns, and what crosses the cut by wire."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.codec.crossing import crossing_size
from cutwater.codec.registry import find_codec
from cutwater.plan.places import Places, at_server, on_client, sent_down, sent_up, used_elsewhere
from cutwater.plan.session import Wire
from cutwater.profile.values import Profile, SharedWeight

REFERENCE: Final = 32
"""Bits of the number that a row is known by."""


@dataclass(frozen=True)
class Costs:
    """What each cut 1..L costs for one sample; cut L sends nothing and needs no server (eq. (18))."""

    places: Places
    """What the rows of all other columns are, but for ``once``, which has cuts 1..L."""
    bits: Floats
    """What of w^C travels down and up in every round: weights that learn, and buffers."""
    once: Floats
    """What of it travels down once: weights that do not learn, of layers 1..l."""
    shared: tuple[SharedWeight, ...]
    """What several layers use."""
    client_forward: Floats
    client_backward: Floats
    server_forward: Floats
    server_backward: Floats
    smashed: Floats
    """Up, and what comes down next: with a tail, each has activations and gradients."""
    gradient: Floats

    @classmethod
    def of(cls, profile: Profile, places: Places) -> "Costs":
        """The columns of a profile, with eq. (18) applied to its last cut, and of its pairs of cuts."""
        bits = profile.column("client_bits") + profile.column("buffer_bits")
        forward, backward = (profile.column(f"client_{way}_flops") for way in ("forward", "backward"))
        rest = [profile.column(f"server_{way}_flops") for way in ("forward", "backward")]
        smashed, gradient = profile.column("smashed_bits"), profile.column("gradient_bits")
        for whole_model_has_none in (*rest, smashed, gradient):
            whole_model_has_none[-1] = 0.0
        return cls(
            places,
            on_client(bits, places),
            profile.column("frozen_bits"),
            profile.shared or (),
            on_client(forward, places),
            on_client(backward, places),
            # What a profile says of the server, wherever it says it.
            np.where(places.pairs, at_server(forward, places), rest[0][places.first - 1]),
            np.where(places.pairs, at_server(backward, places), rest[1][places.first - 1]),
            sent_up(smashed, gradient, places),
            sent_down(smashed, gradient, places),
        )

    @cached_property
    def client(self) -> Floats:
        """F^C + B^C."""
        return self.client_forward + self.client_backward

    def once_after(self, row: Ints, first: ArrayLike, last: ArrayLike) -> Floats:
        """Fixed weights of a row's layers on the client that a device lacks.

        It has those of so many first layers and of so many last ones, all that these use.
        """
        if not self.once.any():  # most models learn as a whole
            return np.zeros(np.broadcast_shapes(np.shape(row), np.shape(first), np.shape(last)))
        layers, so_far, mine = len(self.once), np.r_[0.0, self.once], self.places.at(row)
        head = np.minimum(np.asarray(first, dtype=np.int64), layers)
        tail = np.maximum(layers - np.asarray(last, dtype=np.int64), head)
        # Each weight counts with the first layer that uses it: layers h+1..l, and m+1..t, are lacking.
        lacking: Floats = np.maximum(so_far[np.minimum(mine.first, tail)] - so_far[head], 0.0)
        lacking = lacking + np.maximum(so_far[tail] - so_far[np.maximum(mine.second, head)], 0.0)
        return lacking + used_elsewhere(self.shared, mine, head, tail)

    @cached_property
    def server(self) -> Floats:
        """F^S + B^S."""
        return self.server_forward + self.server_backward


@dataclass(frozen=True)
class WireCosts:
    """Bits that cross at each place, one row for each wire: for a sample, and for a part's messages on top.

    Cut L sends nothing. A lossless codec takes at most this. With a tail, all that goes up is coded by one
    codec and all that comes down by the other, and parts go in turn.
    """

    smashed: Floats
    smashed_message: Floats
    gradient: Floats
    gradient_message: Floats
    overlapped: Bools
    """Which wires overlap the parts of a step."""
    coded: Bools
    """Which wires send smashed data otherwise than it is, so that there is a copy of it."""
    again: Floats
    """Of smashed data, what the same sample would send again the next time: all that goes up in turn where
    what comes before the cut repeats itself. Where parts overlap, it is sent again."""
    again_message: Floats
    known: Bools
    """Where the profile tells of the tensors at a cut, so that coded ones can be priced."""

    @classmethod
    def of(cls, profile: Profile, costs: Costs, wires: Sequence[Wire]) -> "WireCosts":
        """The bits of every wire at every cut."""
        names = {*(wire.up for wire in wires), *(wire.down for wire in wires)}
        smashed = {name: _sizes(profile, name, down=False) for name in names}
        gradient = {name: _sizes(profile, name, down=True) for name in names}
        places = costs.places
        # Of a sample, and of a message; then by wire and place.
        up = np.stack([sent_up(smashed[one.up], gradient[one.up], places) for one in wires], axis=1)
        down = np.stack([sent_down(smashed[one.down], gradient[one.down], places) for one in wires], axis=1)
        overlapped = np.array([wire.schedule == "overlapped" for wire in wires])
        same = np.stack([smashed[wire.up] for wire in wires], axis=1)
        repeats = np.array([cut.repeats for cut in profile.cuts]) & ~overlapped[:, None]
        again = np.where(repeats, same, 0.0)[..., places.first - 1]
        return cls(
            up[0],
            up[1],
            down[0],
            down[1],
            overlapped,
            np.array([wire.up != "fp32" for wire in wires]),
            again[0],
            again[1],
            np.array([_known(profile, wire, places) for wire in wires]),
        )

    @cached_property
    def repeats(self) -> bool:
        """Whether any of it would be sent again."""
        return bool(self.again.any())

    def up(self, wire: ArrayLike, row: ArrayLike, fresh: "Fresh") -> tuple[Floats, Floats]:
        """Bits that go up for a sample, and for a part's message, on average over a session."""
        at = np.asarray(wire), np.asarray(row)
        if not self.repeats:
            return self.smashed[at], self.smashed_message[at]
        saved = self.saved(wire, row, fresh)
        heads = np.where(saved > 0, self.again_message[at] * (1 - np.asarray(fresh.parts)), 0.0)
        return self.smashed[at] - saved, self.smashed_message[at] - heads

    def saved(self, wire: ArrayLike, row: ArrayLike, fresh: "Fresh") -> Floats:
        """Of a sample's bits, what is saved by sending rows once a session, and later only their numbers.

        0 where that would be nothing, or less: then all rows are sent whenever they come.
        """
        again = self.again[np.asarray(wire), np.asarray(row)] * (1 - np.asarray(fresh.samples))
        least: Floats = np.maximum(again - REFERENCE, 0.0)
        return least


class Fresh(NamedTuple):
    """Of a session's samples and parts, those that bring rows which were not sent before, as fractions."""

    samples: Floats
    parts: Floats

    @classmethod
    def of(cls, epochs: Ints, steps: Ints, samples: Ints, batch_size: Ints) -> "Fresh":
        """By passes, all rows go up in the first; by steps, there are as many rows as samples at most.

        Which are drawn again is not known beforehand, so that the latter is an upper bound. It is rounded up
        to 64 values between a number and its double, so that a fleet has few different ones.
        """
        part, power = np.frexp(samples / np.maximum(steps * batch_size, 1))
        drawn = np.ldexp(np.ceil(128 * part) / 128, power)
        by_steps, passes = steps > 0, 1 / np.maximum(epochs, 1)
        return cls(np.where(by_steps, np.minimum(drawn, 1.0), passes), np.where(by_steps, 1.0, passes))

    @classmethod
    def everything(cls, clients: int) -> "Fresh":
        """Of sessions of which nothing comes again."""
        ones: Floats = np.broadcast_to(1.0, clients)
        return cls(ones, ones)

    def at(self, which: Any) -> "Fresh":
        """Some of the clients."""
        return Fresh(self.samples[which], self.parts[which])


def _sizes(profile: Profile, name: str, *, down: bool) -> Floats:
    """Bits of a sample, and of a message, at every cut under one codec: smashed data, or its gradients."""
    sizes: Floats
    if name == "fp32":
        plain = profile.column("gradient_bits" if down else "smashed_bits")
        sizes = np.array([plain, np.zeros_like(plain)])
    else:
        codec, (kinds, at) = find_codec(name), profile.crossings
        of_kinds = [(0, 0) if kind is None else crossing_size(kind, codec, down=down) for kind in kinds]
        sizes = np.array(of_kinds, dtype=np.float64)[at].T
    sizes[:, -1] = 0.0
    return sizes


def _known(profile: Profile, wire: Wire, places: Places) -> Bools:
    plain = wire.up == wire.down == "fp32"
    kinds, at = profile.crossings
    told = np.array([plain or kind is not None for kind in kinds])[at]
    told[-1] = True
    known: Bools = told[places.first - 1] & (~places.pairs | told[places.second - 1])
    return known
