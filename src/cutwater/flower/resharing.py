"""Looks at the sessions of a round now and then, and gives them the shares, and the cuts, that follow."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cutwater.base.errors import CutwaterError
from cutwater.federate.executor import Orders
from cutwater.federate.measured import Replanned
from cutwater.federate.study import Study
from cutwater.flower.adapting import Adapting
from cutwater.flower.orders import OrderBook, Sent
from cutwater.serve.sessions import Sessions
from cutwater.stream.move import Move
from cutwater.stream.step_trainer import SessionInfo

_LOOK = 0.25
_LOOKS_AT = 2000.0
"""Seconds between two looks at how far sessions are, and how many are looked at in a second."""
Propose = Callable[[str, Move], None]
"""Has the cut of a session moved."""


class Resharing:
    """The shares of one round at the server, and its cuts where somebody can ``propose`` others."""

    def __init__(
        self,
        study: Study,
        orders: Orders,
        out: Sequence[Sent],
        deadline: float,
        sessions: Sessions,
        book: OrderBook,
        propose: Propose | None = None,
    ) -> None:
        """``out`` are the orders that were placed."""
        batches = {name: study.batch_sizes(name) for name in orders.plan.names}
        cuts = {sent.task.client: book.movable(sent) for sent in out} if propose is not None else {}
        self._adapting = Adapting(orders.plan, batches, study.session.micro_batches, deadline, cuts)
        self._out, self._sessions, self._looked = out, sessions, 0.0
        self._book, self._propose = book, propose

    def look(self, now: float, lost: str | None = None) -> Replanned | None:
        """See how far the sessions are, so many seconds after their orders, unless one just has.

        If somebody was lost, it is seen to at once.
        """
        running = {sent.ticket.claims.id: sent for sent in self._out if sent.ticket is not None}
        due = now - self._looked >= max(_LOOK, len(running) / _LOOKS_AT)
        if not running or not (due or lost):
            return None
        self._looked = now
        records = [record for record in self._sessions.records() if record.session.id in running]
        change = self._adapting.look(now, records, (lost,) if lost else ())
        if change is None:
            return None
        moving = dict[str, int]()
        for session in (record.session for record in records):
            if session.client in change.shares:
                self._sessions.reshare(session.id, change.shares[session.client])
            to = change.cuts.get(session.client)
            if to is not None and self._moves(running[session.id], session, to):
                moving[session.client] = to
        return replace(change, cuts=moving)

    def _moves(self, sent: Sent, session: SessionInfo, to: int) -> bool:
        """Have a session moved, if the server has room for it at another cut."""
        assert self._propose is not None, "nobody is to move otherwise"
        try:
            self._propose(session.id, self._book.move(sent, session.cut, to))
        except CutwaterError:
            self._adapting.stays(session.client)
            return False
        return True
