"""A running session as the server's own clock has it: how far, how fast, since when silent, what is left."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cutwater.plan.again import Rest
from cutwater.plan.moving import Pace, Ways
from cutwater.stream.step_trainer import SessionRecord

_SEEN = 2
"""Mini-batches that a session's pace is taken from: what was before them may be over."""
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
    """Of device and link, as seen last."""

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
        if mark.samples > self.done:
            self.done = mark.samples
            self.marks.append(mark)
            old = [one for one in self.marks if one.samples <= mark.samples - _SEEN * self.batch]
            self.marks = self.marks[max(len(old) - 1, 0) :]

    def _has_moved(self, cut: int) -> None:
        """The session is at another cut; how fast it is there is seen from its next parts on."""
        assert self.ways is not None, "only what may move does"
        there = self.ways.rest(cut, 1.0, Pace())
        self.whole, self.upload = replace(there, besides=0.0), there.besides
        self.cut, self.to, self.marks = cut, 0, []

    def _see(self) -> Pace | None:
        """The pace of device and link, of the last mini-batches, if these are seen apart."""
        if self.ways is None or len(self.marks) < 2:
            return self.pace
        first, last = self.marks[0], self.marks[-1]
        up, down = _rate(first.up, last.up), _rate(first.down, last.down)
        if last.samples - first.samples < _SEEN * self.batch or up is None:
            return self.pace
        away = last.stepped - first.stepped - (last.server - first.server)
        part = (last.samples - first.samples) / self.samples
        self.pace = self.ways.seen(self.cut, part, away, up, down)
        return self.pace

    @property
    def slowness(self) -> float:
        """Times as long as planned that device and link take, of the last parts; 1 before there are two."""
        if len(self.marks) < 2:
            # Not seen yet since it has moved: as its device and link were before.
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
        seen = self._see()
        # Before it is seen where it is now, it stays: what it was told last may just have come true.
        if self.ways is None or seen is None or self.to or len(self.marks) < 2 or self.done >= self.samples:
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
