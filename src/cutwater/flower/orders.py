"""Orders of a round: what a node is told to train, with a ticket for its session if its model is cut."""

from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict

from cutwater.base.errors import EngineError
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.serve.admission import Admission
from cutwater.serve.device import move_to
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Trained
from cutwater.serve.sessions import Sessions
from cutwater.stream.move import Move
from cutwater.stream.ticket import Ticket
from cutwater.train.aggregate import weights_sha256
from cutwater.train.movable import why_fixed, why_not
from cutwater.train.session import State, Task

_LATE = 10.0
"""Seconds that a message outlives the deadline, so that who is late is said to be, and not to have failed."""

SETTLE = 5.0
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
        self,
        study: Study,
        sessions: Sessions,
        *,
        run: str,
        identity: str,
    ) -> None:
        self.run, self._identity = run, identity
        self._study, self._job, self._sessions = study, study.job(), sessions
        self._admission = Admission(study.server.memory, study.profile)
        self._digests: dict[str, str] = {}
        self._movable: dict[tuple[object, ...], list[int]] = {}

    def place(self, task: Task, share: float, state: State, deadline: float) -> Sent:
        """Make room for the session of a task, which starts from these global weights.

        Raises a CutwaterError where there is none.
        """
        if task.cut == len(self._job.model):
            return Sent(task, None)
        expect = expectation(self._study, task)
        self._admission.admit(task, expect)
        try:
            ticket = self._sessions.open(task, expect, share, state, deadline)
        except BaseException:
            self._admission.release(task)
            raise
        return Sent(task, ticket)

    def message(self, sent: Sent, node: int, state: State, deadline: float) -> Message:
        """The order as Flower carries it."""
        records = self.records(sent, state)
        return Message(records, node, "train", ttl=deadline + _LATE, group_id=str(sent.task.round))

    def records(self, sent: Sent, state: State) -> RecordDict:
        """An order, with the client-side weights."""
        task = sent.task
        mine = self._job.traffic(task.cut, task.second_cut)
        names = [*mine.every_round, *mine.lacking(self._job.held(task))]
        ticket = sent.ticket.to_text() if sent.ticket else ""
        fixed = {name: self._digest(name, state) for name in mine.fixed}
        order = wire.Order(self.run, task, self._identity, ticket, fixed)
        return wire.order_records(order, {name: state[name] for name in names})

    def _digest(self, name: str, state: State) -> str:
        """Of a weight that does not learn: it is the same in every round, so it is made once."""
        if name not in self._digests:
            # Halves may have a tensor by different names, and a device that holds it keeps it once.
            self._digests[name] = weights_sha256({self._study.traffic.first_name(name): state[name]})
        return self._digests[name]

    def is_settled(self, sent: Sent) -> bool:
        """Whether nothing of an order is left to wait for, once its reply is here."""
        return sent.ticket is None or self._sessions.is_over(sent.ticket)

    def movable(self, sent: Sent) -> list[int]:
        """The cuts that the session of an order may move to."""
        task, job = sent.task, self._job
        if sent.ticket is None:
            return []
        # The same for all clients that are cut alike, in all rounds.
        alike = (task.cut, task.second_cut, task.once, task.up, task.down)
        if alike not in self._movable:
            others = () if why_fixed(job, task) is not None else range(1, len(job.model))
            self._movable[alike] = [cut for cut in others if why_not(job, task, cut) is None]
        return self._movable[alike]

    def move(self, sent: Sent, at: int, to: int) -> Move:
        """What a session at one cut needs to go on at another; a CutwaterError where there is no room."""
        moved = replace(sent.task, cut=to)
        move = move_to(self._study, replace(sent.task, cut=at), to)
        self._admission.admit_move(moved, move.expect, move.up + move.down)
        return move

    def collect(self, ticket: Ticket, steps: int) -> Trained:
        """What the server's half made of a session whose client says that it took so many steps."""
        record = self._sessions.record(ticket)
        if record is None:
            raise EngineError("it reports a finished session, but the server has not seen the session end")
        if record.failure is not None:
            raise EngineError(f"its session failed: {record.failure}")
        if record.steps != steps:
            raise EngineError(f"it counts {steps} steps, but {record.steps} arrived at the server")
        return self._sessions.collect(ticket)

    def end(self, sent: Sent) -> None:
        """Close the session of an order, if it still has one; nobody can go on with it."""
        if sent.ticket is not None:
            ticket, sent.ticket = sent.ticket, None
            try:
                self._sessions.end(ticket)
            finally:
                self._admission.release(sent.task)
