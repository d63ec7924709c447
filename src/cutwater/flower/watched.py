"""A running session as the server's own clock has it: how far, how fast, since when silent, what is left."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from cutwater.plan.again import Rest
from cutwater.plan.moving import Pace, Ways
from cutwater.stream.step_trainer import SessionRecord

_SEEN = 2
"""Mini-batches that a session's pace is taken from: what was before them may be over."""
_READING = 0.1
"""Seconds on its way up that a link is read from at least."""
_SURE = 0.4
"""Seconds on its way up, and two readings, that tell whether a link became slower: the best of them counts,
as a machine that stands still for a moment makes one of them slow, and not the next."""
_BECAME = 1.5
"""Times as slow as before, from which on a link has become slower."""
_PATIENCE = 3.0
_GRACE = 1.0
"""A session is late when nothing has come for so many times what a part takes, and so many seconds."""


class _Mark(NamedTuple):
    """How far a session was at some time."""

    samples: int
    stepped: float
    server: float
    up: tuple[int, float] = (0, 0.0)
    """Bytes that were timed on their way up, and seconds."""
    down: tuple[int, float] = (0, 0.0)


@dataclass
class Watched:
    """A running session, as the server's clock has it."""

    whole: Rest
    """As planned, without the model's transfer."""
    download: float
    upload: float
    samples: int
    """Of the whole session."""
    batch: int
    parts: int
    marks: list[_Mark] = field(default_factory=list)
    """Oldest first; no more than are needed."""
    silent: float = 0.0
    begun: bool = False
    done: int = 0
    """Samples."""
    cut: int = 0
    ways: Ways | None = None
    """What it would take at other cuts; None if it stays at its own."""
    to: int = 0
    """Where it was told to move, until it has."""
    pace: Pace | None = None
    """Of device and link, by the last mini-batches that these were seen apart in, or what has come since."""
    seen: bool = False
    """Whether it was seen at the cut where it is now."""
    ups: list[tuple[int, float]] = field(default_factory=list)
    """Bytes that were timed on their way up, and seconds, at the last readings; oldest first."""

    def note(self, record: SessionRecord) -> None:
        """How it stands now."""
        self.begun, self.silent = record.openings > 0, record.silent
        if record.session.cut != self.cut:
            self._has_moved(record.session.cut)
        seconds = record.seconds
        mark = _Mark(
            record.samples,
            seconds["stepped"],
            seconds["server"],
            (record.timed_up, seconds.get("up", 0.0)),
            (record.timed_down, seconds.get("down", 0.0)),
        )
        self._read((mark.up[0] + record.coming[0], mark.up[1] + record.coming[1]))
        self._notice()
        if mark.samples > self.done:
            self.done = mark.samples
            self.marks.append(mark)
            old = [one for one in self.marks if one.samples <= mark.samples - _SEEN * self.batch]
            self.marks = self.marks[max(len(old) - 1, 0) :]

    def _read(self, up: tuple[int, float]) -> None:
        """Of the link; older readings than are needed to be sure are left out."""
        if self.ups and up[1] < self.ups[-1][1]:  # a message whose connection broke comes again
            self.ups = []
        if self.ups and up[1] - self.ups[-1][1] < _READING:
            return
        old = [one for one in self.ups[:-1] if one[1] <= up[1] - _SURE]
        self.ups = [*self.ups[max(len(old) - 1, 0) :], up]

    def _has_moved(self, cut: int) -> None:
        """The session is at another cut; how fast it is there is seen from its next parts on."""
        assert self.ways is not None, "only what may move does"
        there = self.ways.rest(cut, 1.0, Pace())
        self.whole, self.upload = replace(there, besides=0.0), there.besides
        self.cut, self.to, self.marks, self.seen = cut, 0, [], False

    def _see(self) -> None:
        """Take the pace of device and link from the last mini-batches, if these are seen apart."""
        if self.ways is None or len(self.marks) < 2:
            return
        first, last = self.marks[0], self.marks[-1]
        up, down = _rate(first.up, last.up), _rate(first.down, last.down)
        if last.samples - first.samples < _SEEN * self.batch or up is None:
            return
        away = last.stepped - first.stepped - (last.server - first.server)
        part = (last.samples - first.samples) / self.samples
        self.pace, self.seen = self.ways.seen(self.cut, part, away, up, down), True

    def _notice(self) -> None:
        """Whether the link has just become slower, which is seen before a mini-batch is over.

        Then that is its pace, taken to be so both ways, and what was before says nothing of what comes.
        """
        if self.ways is None or self.pace is None or len(self.ups) < 3:
            return
        if self.ups[-1][1] - self.ups[0][1] < _SURE:
            return
        rates = [rate for first, last in pairwise(self.ups) if (rate := _rate(first, last)) is not None]
        times = self.ways.rates[0] / max(rates) if rates else 0.0
        if times >= _BECAME * self.pace.up:
            self.pace = replace(self.pace, up=times, down=max(times, self.pace.down))
            self.marks = []

    @property
    def slowness(self) -> float:
        """Times as long as planned that device and link take, of the last parts; 1 before there are two."""
        if len(self.marks) < 2:
            # Not seen yet since it has moved, or its link became slower.
            known = self.ways.rest(self.cut, 1.0, self.pace) if self.ways and self.pace else self.whole
            return known.away[0] / self.whole.away[0] if self.whole.away[0] > 0 else 1.0
        first, last = self.marks[0], self.marks[-1]
        done = self.whole.part((last.samples - first.samples) / self.samples)
        return done.slowness(last.stepped - first.stepped, last.server - first.server)

    def rest(self, now: float) -> Rest:
        """What is left, so many seconds after the orders."""
        if self.to:
            return self._at(self.to)
        slower = self.slowness
        coming = 0.0 if self.begun else max(self.download - now, 0.0)
        left = self.whole.part(1 - self.done / self.samples).slower(slower)
        return replace(left, besides=slower * self.upload + coming)

    def _at(self, cut: int) -> Rest:
        """What is left if it goes on at another cut."""
        assert self.ways is not None
        pace = self.pace or Pace()
        rest = self.ways.rest(cut, 1 - self.done / self.samples, pace)
        return replace(rest, besides=rest.besides + self.ways.transfer(self.cut, cut, pace))

    def others(self) -> dict[int, Rest]:
        """What is left at each cut that it could move to now."""
        self._see()
        # Before it is seen where it is now, it stays: what it was told last may just have come true.
        if self.ways is None or not self.seen or self.to or self.done >= self.samples:
            return {}
        return {cut: self._at(cut) for cut in self.ways.cuts.tolist() if cut != self.cut}

    def is_late(self, now: float) -> bool:
        """Whether nothing has come for far too long."""
        silent = self.silent if self.begun else now - self.download
        usual = self.slowness * max(self.whole.away) / self.parts
        if self.to and self.ways is not None:
            usual += self.ways.transfer(self.cut, self.to, self.pace or Pace())
        return silent > _PATIENCE * usual + _GRACE


def _rate(first: tuple[int, float], last: tuple[int, float]) -> float | None:
    """Bits per second between two marks; None where nothing was timed."""
    size, seconds = last[0] - first[0], last[1] - first[1]
    return 8 * size / seconds if size > 0 and seconds > 0 else None
