"""A round that adapts while it runs: who is lost, late or slower than believed changes everybody's share.

The server's own clock is all that is believed: when a session's parts took effect, how long they were at the
server, and since when nothing has come. What is left of each session follows from that
(:mod:`cutwater.plan.again`). Shares are planned anew when somebody is lost, and whenever keeping them would
end the round noticeably later. Bits do not depend on shares, so that none of this changes a result.

Whoever is *late* (silent for far longer than a part should take) or can't be done by the deadline keeps its
share, but nothing is planned for it: what it leaves unused is for the others, planned as if it were lost.
When its next part is there, it counts again, as slow as it is then seen to be.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cutwater.federate.measured import Replanned
from cutwater.plan.again import Rest, plan_again, seconds_by, whole_sessions
from cutwater.plan.value import Plan
from cutwater.stream.step_trainer import SessionRecord

_WORTH = 0.05
"""Of a round: who would be done sooner by less is left as it is."""
_SEEN = 2
"""Mini-batches that a session's pace is taken from: what was before them may be over."""
_PATIENCE = 3.0
_GRACE = 1.0
"""A session is late when nothing has come for so many times what a part takes, and so many seconds."""
_SLOWER = 1.1
"""Times as long as planned, from which on a session is called slow."""


class _Mark(NamedTuple):
    """How far a session was at some time."""

    samples: int
    stepped: float
    server: float


@dataclass
class _Watched:
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

    def note(self, record: SessionRecord) -> None:
        self.begun, self.silent = record.openings > 0, record.silent
        mark = _Mark(record.samples, record.seconds["stepped"], record.seconds["server"])
        if mark.samples > (self.marks[-1].samples if self.marks else 0):
            self.marks.append(mark)
            old = [one for one in self.marks if one.samples <= mark.samples - _SEEN * self.batch]
            self.marks = self.marks[max(len(old) - 1, 0) :]

    @property
    def slowness(self) -> float:
        """Times as long as planned that device and link take, of the last parts; 1 before there are two."""
        if len(self.marks) < 2:
            return 1.0
        first, last = self.marks[0], self.marks[-1]
        done = self.whole.part((last.samples - first.samples) / self.samples)
        return done.slowness(last.stepped - first.stepped, last.server - first.server)

    def rest(self, now: float) -> Rest:
        """What is left, so many seconds after the orders."""
        done = self.marks[-1].samples if self.marks else 0
        slower = self.slowness
        coming = 0.0 if self.begun else max(self.download - now, 0.0)
        left = self.whole.part(1 - done / self.samples).slower(slower)
        return replace(left, besides=slower * self.upload + coming)

    def is_late(self, now: float) -> bool:
        """Whether nothing has come for far too long."""
        silent = self.silent if self.begun else now - self.download
        usual = self.slowness * max(self.whole.away) / self.parts
        return silent > _PATIENCE * usual + _GRACE


class Adapting:
    """The shares of one round as they change; knows no clock but what it is told."""

    def __init__(
        self, plan: Plan, batches: Mapping[str, Sequence[int]], micro_batches: int, deadline: float
    ) -> None:
        """``batches`` has the sizes of the mini-batches of every client with a split session."""
        self.shares: dict[str, float] = {}
        """f_k of every split session that is not over, in FLOPS."""
        self._compute, self._deadline = plan.server_compute, deadline
        self._watched: dict[str, _Watched] = {}
        for name, whole in whole_sessions(plan).items():
            phases, sizes = plan[name].phases, batches[name]
            self.shares[name] = plan[name].share
            self._watched[name] = _Watched(
                replace(whole, besides=0.0),
                phases.model_download,
                phases.model_upload,
                sum(sizes),
                max(sizes),
                sum(min(size, micro_batches) for size in sizes),
            )

    def look(
        self, now: float, records: Iterable[SessionRecord], lost: Iterable[str] = ()
    ) -> Replanned | None:
        """What is to change, so many seconds after the orders; ``lost`` are those known to be since the last.

        ``records`` are of all sessions that the round still has.
        """
        known = {record.session.client: record for record in records}
        failed = [name for name, record in known.items() if record.failure is not None]
        gone = [name for name in dict.fromkeys((*lost, *failed)) if name in self._watched]
        for name in list(self._watched):
            if name in gone or name not in known or known[name].finished:
                del self._watched[name], self.shares[name]
            else:
                self._watched[name].note(known[name])
        return self._plan(now, gone)

    def _plan(self, now: float, gone: Sequence[str]) -> Replanned | None:
        rests = {name: watched.rest(now) for name, watched in self._watched.items()}
        late = [name for name, watched in self._watched.items() if watched.is_late(now)]
        if len(late) == len(self._watched):  # it is not them, but what they have in common
            late = []
        hopeless = [name for name, rest in rests.items() if now + rest.least > self._deadline]
        counted = [rest for name, rest in rests.items() if name not in late and name not in hopeless]
        if not counted or self._compute <= 0:
            return None
        kept = now + seconds_by(counted, self.shares, self._compute)
        again = plan_again(counted, self._compute)
        if not gone and kept <= (1 + _WORTH) * (now + again.seconds):
            return None
        self.shares.update(again.shares)
        why = self._why(gone, late, hopeless)
        return Replanned(now, why, kept, now + again.seconds, dict(again.shares))

    def _why(self, gone: Sequence[str], late: Sequence[str], hopeless: Sequence[str]) -> str:
        for names, what in ((gone, "lost"), (late, "late"), (hopeless, "too slow for the deadline")):
            if names:
                return f"{_clients(names)} {'is' if len(names) == 1 else 'are'} {what}"
        name = max(self._watched, key=lambda each: self._watched[each].slowness)
        times = self._watched[name].slowness
        if times > _SLOWER:
            return f"client {name} takes {times:.1f} times as long as believed"
        return "sessions are further than believed"


def _clients(names: Sequence[str]) -> str:
    return f"client {names[0]}" if len(names) == 1 else f"clients {', '.join(names)}"
