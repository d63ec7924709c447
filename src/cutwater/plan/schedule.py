"""A step whose parts overlap: how long it takes, in closed form.

The parts of a mini-batch pass five stations in order: client forward, link up, server, link down, client
backward. Every station works on one part at a time, and the client begins with its backward passes when it is
done with all forward ones. Parts come in two sizes at most, the larger ones first, so that n₁ parts take
t₁..t₅ at the stations and then n₂ parts take t₁'..t₅'. Such a step is over when the longest path through
parts and stations is: a path goes from the first part at the first station to the last part at the last, one
part or one station at a time. It goes over from the larger parts to the smaller at some station i, and spends
all its other changes of part at the slowest station that it passes:

    T = max( c₁ + c₂,  rtt + max over i of  Σ_{j≤i} t_j + (n₁-1)·max_{j≤i} t_j
                                          + Σ_{j≥i} t'_j + (n₂-1)·max_{j≥i} t'_j ),

where c₁ + c₂ is all that the client computes. The round trip is a delay and keeps no station busy. A step in
turn takes the sum of all stations and a round trip for each part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.plan.session import last_of_pass

STATIONS = ("client_forward", "smashed_upload", "server", "gradient_download", "client_backward")
"""What a part passes, in order."""
_AT_SERVER = STATIONS.index("server")


@dataclass(frozen=True)
class Batches:
    """The mini-batches of one size in the sessions of many clients, and their parts."""

    count: Floats
    """How many a session has; may be 0."""
    larger: Floats
    """n₁."""
    larger_size: Floats
    """Samples of each of them."""
    smaller: Floats
    """n₂; 0 where a mini-batch is one part."""
    smaller_size: Floats

    @classmethod
    def of(cls, count: Floats, size: Ints, micro_batches: int) -> "Batches":
        """Mini-batches of these sizes, divided as :func:`cutwater.plan.session.part_sizes` does it."""
        parts = np.maximum(np.minimum(size, micro_batches), 1)
        least, more = np.divmod(size, parts)
        # Parts that are all alike count as all but one and one, which makes the same sum.
        larger = np.where(more > 0, more, np.maximum(parts - 1, 1))
        columns = (count, larger, least + (more > 0), parts - larger, np.where(parts > larger, least, 0))
        return cls(*(column.astype(np.float64) for column in columns))

    @property
    def parts(self) -> Floats:
        """Of all of them in a session."""
        return self.count * (self.larger + self.smaller)

    @property
    def last_size(self) -> Floats:
        """Samples of the last part of each."""
        return np.where(self.smaller > 0, self.smaller_size, self.larger_size)


@dataclass(frozen=True)
class Steps:
    """The mini-batches of every client's session: the full ones, and those that end a pass."""

    full: Batches
    other: Batches

    @classmethod
    def of(cls, epochs: Ints, steps: Ints, samples: Ints, batch_size: Ints, micro_batches: int) -> "Steps":
        """By passes over the samples, or, where ``steps`` is above 0, by so many mini-batches."""
        full, left = last_of_pass(samples, batch_size)
        by_steps = steps > 0
        return cls(
            Batches.of(np.where(by_steps, steps, 1.0 * epochs * full), batch_size, micro_batches),
            Batches.of(np.where(by_steps | (left == 0), 0.0, epochs), left, micro_batches),
        )

    @property
    def kinds(self) -> tuple[Batches, Batches]:
        """Both kinds of mini-batches."""
        return self.full, self.other

    @property
    def count(self) -> Floats:
        """Mini-batches of a session."""
        return self.full.count + self.other.count

    @property
    def parts(self) -> Floats:
        """Parts of a session: messages, each way."""
        return self.full.parts + self.other.parts


def overlapped_step(
    larger: Sequence[Floats], smaller: Sequence[Floats], counts: tuple[Floats, Floats], rtt: Floats
) -> Floats:
    """Seconds of a step (see above) from what the larger and the smaller parts take at each station."""
    n1, n2 = counts
    client = n1 * (larger[0] + larger[4]) + n2 * (smaller[0] + smaller[4])
    rest = [np.sum(smaller[i:], axis=0) + _more(n2 - 1, np.max(smaller[i:], axis=0)) for i in range(5)]
    so_far, slowest = np.zeros_like(client), np.zeros_like(client)
    longest = np.zeros_like(client)
    for i, seconds in enumerate(larger):
        so_far, slowest = so_far + seconds, np.maximum(slowest, seconds)
        longest = np.maximum(longest, so_far + _more(n1 - 1, slowest) + rest[i])
    return np.maximum(client, rtt + longest)


def _more(times: Floats, seconds: Floats) -> Floats:
    """So many times so many seconds; no time at all for no time of what never ends."""
    return np.multiply(times, seconds, out=np.zeros_like(seconds), where=times > 0)


def overlapped_lines(
    larger: Sequence[Floats], smaller: Sequence[Floats], counts: tuple[Floats, Floats], rtt: Floats
) -> tuple[Floats, Floats]:
    """The same step by the share f that its server has: the largest of lines away + work / f.

    As in :func:`overlapped_step`, but for the server's station, which has FLOPs in place of seconds. Each
    line is a path: one of those above, with its changes of part at the server or at the slowest other
    station, for the larger parts and for the smaller.
    """
    more = [np.maximum(count - 1, 0.0) for count in counts]
    away = [counts[0] * (larger[0] + larger[4]) + counts[1] * (smaller[0] + smaller[4])]
    work = [np.zeros_like(away[0])]
    for i in range(len(STATIONS)):
        sides = (
            _of_path(larger[: i + 1], _AT_SERVER, more[0]),
            _of_path(smaller[i:], _AT_SERVER - i, more[1]),
        )
        for first in sides[0]:
            for second in sides[1]:
                away.append(rtt + first[0] + second[0])
                work.append(first[1] + second[1])
    return np.array(away), np.array(work)


def _of_path(passed: Sequence[Floats], server: int, more: Floats) -> list[tuple[Floats, Floats]]:
    """Away and work of a path through stations, the server among them or not, by where it changes parts."""
    others = [seconds for place, seconds in enumerate(passed) if place != server]
    zero = np.zeros_like(more)
    along, slowest = (np.sum(others, axis=0), np.max(others, axis=0)) if others else (zero, zero)
    work = passed[server] if 0 <= server < len(passed) else zero
    found = [(along + _more(more, slowest + zero), work + zero)]
    if 0 <= server < len(passed):
        found.append((along + zero, work * (1 + more)))
    return found
