"""Looks at the sessions of a round now and then, and gives them the shares that follow."""

from collections.abc import Sequence

from cutwater.federate.executor import Orders
from cutwater.federate.measured import Replanned
from cutwater.federate.study import Study
from cutwater.flower.adapting import Adapting
from cutwater.flower.orders import Sent
from cutwater.serve.sessions import Halves, Tickets

_LOOK = 0.25
_LOOKS_AT = 2000.0
"""Seconds between two looks at how far sessions are, and how many are looked at in a second."""


class Resharing:
    """The shares of one round at the server."""

    def __init__(
        self, study: Study, orders: Orders, deadline: float, stream: Tickets, hosting: Halves
    ) -> None:
        batches = {name: study.batch_sizes(name) for name in orders.plan.names}
        self._adapting = Adapting(orders.plan, batches, study.session.micro_batches, deadline)
        self._stream, self._hosting, self._looked = stream, hosting, 0.0

    def look(self, now: float, out: Sequence[Sent], lost: str | None = None) -> Replanned | None:
        """See how far the sessions of these orders are, so many seconds after them, unless one just has.

        If somebody was lost, it is seen to at once.
        """
        running = {sent.ticket.claims.id for sent in out if sent.ticket is not None}
        due = now - self._looked >= max(_LOOK, len(running) / _LOOKS_AT)
        if not running or not (due or lost):
            return None
        self._looked = now
        records = [record for record in self._stream.records() if record.session.id in running]
        change = self._adapting.look(now, records, (lost,) if lost else ())
        if change is not None:
            for session in (record.session for record in records):
                if session.client in change.shares:
                    self._hosting.reshare(session.id, change.shares[session.client])
        return change
