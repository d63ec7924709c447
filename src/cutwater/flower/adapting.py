"""A round that adapts while it runs: who is lost, late or slower than believed changes everybody's share.

The server's own clock is all that is believed: when a session's parts took effect, how long they were at the
server, and since when nothing has come. What is left of each session follows from that
(:mod:`cutwater.plan.again`). Shares are planned anew when somebody is lost, and whenever keeping them would
end the round noticeably later. Bits do not depend on shares, so that none of this changes a result.

Nor do they depend on cuts. So a session whose device and link can be told apart, because its parts go in turn
and the server has seen how fast they come, may go on at another cut, where the time for its layers' way to
the other side is more than made up for (:mod:`cutwater.plan.moving`).

Whoever is *late* (silent for far longer than a part should take) or can't be done by the deadline keeps its
share, but nothing is planned for it: what it leaves unused is for the others, planned as if it were lost.
When its next part is there, it counts again, as slow as it is then seen to be.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cutwater.federate.measured import Replanned
from cutwater.flower.watched import Watched
from cutwater.plan.again import Again, Rest, plan_again, seconds_by, whole_sessions
from cutwater.plan.moving import plan_cuts, ways
from cutwater.plan.value import Plan
from cutwater.stream.step_trainer import SessionRecord

_WORTH = 0.05
"""Of a round: who would be done sooner by less is left as it is."""
_SLOWER = 1.1
"""Times as long as planned, from which on a session is called slow."""


class Adapting:
    """The shares of one round as they change; knows no clock but what it is told."""

    def __init__(
        self,
        plan: Plan,
        batches: Mapping[str, Sequence[int]],
        micro_batches: int,
        deadline: float,
        cuts: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        """``batches`` has the sizes of the mini-batches of every client with a split session.

        ``cuts`` are those that sessions may move to, by client.
        """
        self.shares: dict[str, float] = {}
        """f_k of every split session that is not over, in FLOPS."""
        self._compute, self._deadline = plan.server_compute, deadline
        self._watched: dict[str, Watched] = {}
        may_move = ways(plan, cuts or {})
        for name, whole in whole_sessions(plan).items():
            phases, sizes = plan[name].phases, batches[name]
            self.shares[name] = plan[name].share
            self._watched[name] = Watched(
                replace(whole, besides=0.0),
                phases.model_download,
                phases.model_upload,
                sum(sizes),
                max(sizes),
                sum(min(size, micro_batches) for size in sizes),
                cut=plan[name].cut,
                ways=may_move.get(name),
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

    def stays(self, name: str) -> None:
        """A session can't move after all, and is not to be asked again."""
        if name in self._watched:
            self._watched[name].ways, self._watched[name].to = None, 0

    def _plan(self, now: float, gone: Sequence[str]) -> Replanned | None:
        rests = {name: watched.rest(now) for name, watched in self._watched.items()}
        late = [name for name, watched in self._watched.items() if watched.is_late(now)]
        if len(late) == len(self._watched):  # it is not them, but what they have in common
            late = []
        others = {name: watched.others() for name, watched in self._watched.items()}
        too_slow = [name for name, rest in rests.items() if now + rest.least > self._deadline]
        hopeless = [name for name in too_slow if not self._in_time(now, others[name].values())]
        counted = [rest for name, rest in rests.items() if name not in late and name not in hopeless]
        if not counted or self._compute <= 0:
            return None
        kept = now + seconds_by(counted, self.shares, self._compute)
        again, cuts = self._cuts(counted, others)
        if not (gone or cuts) and kept <= (1 + _WORTH) * (now + again.seconds):
            return None
        self.shares.update(again.shares)
        why = self._why(gone, late, hopeless)
        for name, cut in cuts.items():
            self._watched[name].to = cut
        return Replanned(now, why, kept, now + again.seconds, dict(again.shares), cuts)

    def _in_time(self, now: float, rests: Iterable[Rest]) -> bool:
        """Whether one of these can be done by the deadline."""
        return any(now + rest.least <= self._deadline for rest in rests)

    def _cuts(
        self, counted: Sequence[Rest], others: Mapping[str, Mapping[int, Rest]]
    ) -> tuple[Again, dict[str, int]]:
        """New shares, and the cuts of those that had better move; ``others`` is what is left at each."""
        if not any(others[rest.name] for rest in counted):
            return plan_again(counted, self._compute), {}
        choices = [[rest, *others[rest.name].values()] for rest in counted]
        again, chosen = plan_cuts(choices, self._compute)
        pairs = zip(counted, chosen, strict=True)
        return again, {rest.name: list(others[rest.name])[place - 1] for rest, place in pairs if place}

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
