"""Orders of a round: what a node is told to train, with a ticket for its session if its model is cut."""

from dataclasses import dataclass

from flwr.app import Message

from cutwater.base.errors import EngineError
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.serve.device import expectation
from cutwater.serve.hosting import Hosting, Trained
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Job, State, Task

_LATE = 10.0
"""Seconds that a message outlives the deadline, so that who is late is said to be, and not to have failed."""

_SETTLE = 5.0
"""Seconds in which the server's end of a session must be over, once its client says that it is."""


@dataclass
class Sent:
    """An order that is out."""

    task: Task
    ticket: Ticket | None
    """None where the whole model is trained on the device, and once the session was ended."""


class OrderBook:
    """Writes orders to nodes, and keeps the server's end of the sessions they call for."""

    def __init__(
        self, study: Study, job: Job, stream: StreamServer, hosting: Hosting, *, run: str, identity: str
    ) -> None:
        self.run = run
        self._study, self._job = study, job
        self._stream, self._hosting, self._identity = stream, hosting, identity
        self._digests: dict[str, str] = {}

    def place(self, task: Task, share: float, state: State, deadline: float) -> Sent:
        """Make room for the session of a task, which starts from these global weights."""
        if task.cut == len(self._job.model):
            return Sent(task, None)
        ticket = self._stream.issue(
            run=self.run,
            round=task.round,
            client=task.client,
            cut=task.cut,
            expect=expectation(self._study, task),
            open_seconds=deadline,
            session_seconds=deadline,
        )
        try:
            self._hosting.expect(ticket.claims.id, task, share, state)
        except BaseException:
            self._stream.revoke(ticket)
            raise
        return Sent(task, ticket)

    def message(self, sent: Sent, node: int, state: State, deadline: float) -> Message:
        """The order as Flower carries it, with the client-side weights."""
        task = sent.task
        mine = self._job.traffic(task.cut)
        held = self._job.traffic(task.holds).fixed if task.holds else {}
        names = [*mine.every_round, *(name for name in mine.fixed if name not in held)]
        ticket = sent.ticket.to_text() if sent.ticket else ""
        fixed = {name: self._digest(name, state) for name in mine.fixed}
        order = wire.Order(self.run, task, self._identity, ticket, fixed)
        records = wire.order_records(order, {name: state[name] for name in names})
        return Message(records, node, "train", ttl=deadline + _LATE, group_id=str(task.round))

    def _digest(self, name: str, state: State) -> str:
        """Of a weight that does not learn: it is the same in every round, so it is made once."""
        if name not in self._digests:
            self._digests[name] = weights_sha256({name: state[name]})
        return self._digests[name]

    def collect(self, ticket: Ticket, steps: int) -> Trained:
        """What the server's half made of a session whose client says that it took so many steps."""
        try:
            record = self._stream.wait(ticket, timeout=_SETTLE)
        except TimeoutError:
            raise EngineError(
                "it reports a finished session, but the server has not seen the session end"
            ) from None
        if record.failure is not None:
            raise EngineError(f"its session failed: {record.failure}")
        if record.steps != steps:
            raise EngineError(f"it counts {steps} steps, but {record.steps} arrived at the server")
        return self._hosting.collect(ticket.claims.id)

    def end(self, sent: Sent) -> None:
        """Close the session of an order, if it still has one; nobody can go on with it."""
        if sent.ticket is not None:
            ticket, sent.ticket = sent.ticket, None
            self._stream.revoke(ticket)
            self._hosting.forget(ticket.claims.id)
