"""Where a model may be cut, numbered: cuts 1..L, and after them the pairs of cuts, in order.

A *place* is a cut l (layers 1..l on the client, the rest at the server; at L all are on the client) or a
pair of cuts l < m < L: the head, layers 1..l, and the tail, layers m+1..L, on the client, the middle at the
server. With Λ_l = |S(l)| + |G(l)| of a cut, a session in three parts takes (cf. eq. (17))

    T = 2(|head| + |tail|)/r + N·[(Γ - Γ_middle)/f^C + Γ_middle/f^S + (Λ_l + Λ_m)/r]

and two round trips for each part. The functions below are its terms; all of them broadcast.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.profile.values import Profile, SharedWeight


@dataclass(frozen=True)
class Places:
    """All places of a model of L layers: without pairs, they are its cuts."""

    first: Ints
    """l of every place."""
    second: Ints
    """m of every place; L where there is no tail."""
    layers: int

    @classmethod
    def of(cls, layers: int, *, pairs: bool) -> "Places":
        """The places of a model of so many layers."""
        cuts = np.arange(1, layers + 1)
        first, second = np.triu_indices(layers - 1, 1) if pairs else (cuts[:0], cuts[:0])
        whole = np.full(layers, layers)
        return cls(np.r_[cuts, first + 1], np.r_[whole, second + 1], layers)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def pairs(self) -> Bools:
        """Which of them have a tail."""
        return self.second < self.layers

    def at(self, row: Ints) -> "Places":
        """Some of them."""
        return Places(self.first[row], self.second[row], self.layers)

    def cuts(self, places: ArrayLike) -> tuple[Ints, Ints]:
        """First and second cuts of some places; the second is 0 where there is no tail.

        Place 0, which is none, has cut 0.
        """
        row = np.asarray(places, dtype=np.int64) - 1
        return np.where(row >= 0, self.first[row], 0), np.where(self.pairs[row], self.second[row], 0)


def place_of(cuts: ArrayLike, second_cuts: ArrayLike, layers: int) -> Ints:
    """The numbers of places by their cuts.

    >>> place_of([3, 5, 1, 2], [0, 0, 2, 4], 5).tolist(), Places.of(5, pairs=True).cuts([6, 10])
    ([3, 5, 6, 10], (array([1, 2]), array([2, 4])))
    """
    first, second = np.asarray(cuts, dtype=np.int64), np.asarray(second_cuts, dtype=np.int64)
    if not second.any():
        return first
    before = (first - 1) * (layers - 1) - first * (first - 1) // 2
    found: Ints = np.where(second > 0, layers + before + second - first, first)
    return found


def shown_cuts(cut: int, second_cut: int = 0) -> str:
    """Cuts for people.

    >>> shown_cuts(3), shown_cuts(2, 5)
    ('cut 3', 'cuts 2-5')
    """
    return f"cut{'s' * (second_cut > 0)} {cut_text(cut, second_cut)}"


def cut_text(cut: int, second_cut: int = 0) -> str:
    """The same where the word is said already, as above a column.

    >>> cut_text(3), cut_text(2, 5)
    ('3', '2-5')
    """
    return f"{cut}-{second_cut}" if second_cut else str(cut)


def on_client(so_far: Floats, places: Places) -> Floats:
    """Head and tail together, of an amount that is told for layers 1..l: |w|, F or B."""
    head: Floats = so_far[places.first - 1]
    tail: Floats = so_far[-1] - so_far[places.second - 1]
    return head + tail


def at_server(so_far: Floats, places: Places) -> Floats:
    """The layers between: Γ_middle, or its forward or backward part."""
    middle: Floats = so_far[places.second - 1] - so_far[places.first - 1]
    return middle


def sent_up(smashed: Floats, gradient: Floats, places: Places) -> Floats:
    """|S(l)|, and |G(m)| where there is a tail."""
    up: Floats = smashed[..., places.first - 1]
    return np.where(places.pairs, up + gradient[..., places.second - 1], up)


def sent_down(smashed: Floats, gradient: Floats, places: Places) -> Floats:
    """|G(l)|, and |S(m)| where there is a tail."""
    down: Floats = gradient[..., places.first - 1]
    return np.where(places.pairs, down + smashed[..., places.second - 1], down)


def used_elsewhere(
    shared: Iterable[SharedWeight], places: Places, head: ArrayLike = 0, tail: ArrayLike | None = None
) -> Floats:
    """What fixed weights that several layers use add to a sum over layers which has each with its first.

    The sum is over the client's layers, but for those up to ``head`` and after ``tail``, whose fixed weights
    its device holds. A weight that the middle is the first to use, and the tail uses as well, is missing
    there; one that a layer after ``tail`` uses as well is there, though the device has it.
    """
    first, second = places.first, places.second
    head, tail = np.asarray(head), np.asarray(places.layers if tail is None else tail)
    found: Floats = np.zeros(())
    for weight in shared:
        if not weight.learns:
            begin, end = weight.layers[0], weight.layers[-1]
            summed = (begin > head) & (begin <= tail) & ((begin <= first) | (begin > second))
            needed = (begin > head) & (end <= tail) & ((begin <= first) | (end > second))
            found = found + (needed.astype(np.float64) - summed) * weight.bits
    return found


def ruled_out(profile: Profile, places: Places) -> Bools:
    """Places that would have both sides train a weight that layers share."""
    torn = np.array([cut.ruled_out is not None for cut in profile.cuts])
    if profile.shared is None:  # an older profile does not tell which layers: both cuts must be good
        either: Bools = torn[places.first - 1] | (places.pairs & torn[places.second - 1])
        return either
    found: Bools = torn[places.first - 1] & ~places.pairs
    for weight in profile.shared if places.pairs.any() else ():
        if weight.learns:
            layers = np.array(weight.layers)[:, None]
            inside = (places.first < layers) & (layers <= places.second)
            found |= places.pairs & (inside.any(axis=0) != inside.all(axis=0))
    return found
