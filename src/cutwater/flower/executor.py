"""Rounds over Flower: hands a round's orders to nodes and yields what comes back, until the deadline.

Nodes that hold a lease (``leases``) are sent letters, the others messages of Flower's. Whoever's update is
not in by the deadline, or does not count (``updates``), is lost by name, and a holder that leaves is lost at
once; the others get its share of the server (``adapting``) and are unaffected otherwise.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from queue import SimpleQueue

from flwr.app import Message

from cutwater.base.errors import CutwaterError, EngineError
from cutwater.base.speech import Say, quiet
from cutwater.execute.local import LocalTrainer
from cutwater.federate.executor import Arrival, Lost, Orders
from cutwater.federate.study import Study
from cutwater.flower.failures import ForgottenError, failure_of
from cutwater.flower.leases import Leases
from cutwater.flower.letters import from_letter
from cutwater.flower.orders import SETTLE, OrderBook, Sent
from cutwater.flower.patient_grid import PatientGrid
from cutwater.flower.resharing import Propose, Resharing
from cutwater.flower.roster import Roster, replies
from cutwater.flower.updates import Reply, read_update
from cutwater.model.traffic import tensor_bytes
from cutwater.serve.sessions import Sessions
from cutwater.stream.lease import Event, News
from cutwater.stream.server import StreamServer
from cutwater.train.scores import Score
from cutwater.train.session import State

Clock = Callable[[], float]
_Answer = Reply | CutwaterError
"""What a node sent back, or why nothing will come."""
_GLANCE = 0.05
"""Seconds between two looks at sessions that are about to be over."""
_SPARE = 600.0
"""Seconds that a round without a deadline waits beyond five times its plan; the dead are told of sooner."""
_ROOM = 1 << 20
"""Bytes of a letter besides its tensors."""
_BESIDE = 0.1
"""Seconds between two looks at what Flower has brought, where letters are waited for as well."""


class FlowerExecutor:
    """Carries out the rounds of one study on a grid of nodes, by the clock on the wall.

    Without a server that ``leases_at`` are held, all orders are messages; without somebody to ``propose``
    other cuts, sessions stay at those of their plan.
    """

    def __init__(
        self,
        study: Study,
        grid: PatientGrid,
        sessions: Sessions,
        *,
        run: str,
        identity: str,
        emulate: bool = False,
        leases_at: StreamServer | None = None,
        enrol_at_once: int = 0,
        propose: Propose | None = None,
        say: Say = quiet,
        clock: Clock = time.monotonic,
    ) -> None:
        self.roster = Roster(grid, study.fleet.names, say, ask_all=not emulate and leases_at is None)
        self._study, self._grid, self._clock, self._emulate = study, grid, clock, emulate
        self._sessions, self._propose = sessions, propose
        self._trainer = LocalTrainer(study.job(), study.test())
        self._book = OrderBook(study, sessions, run=run, identity=identity)
        most = tensor_bytes(study.initial.values()) + _ROOM
        self._leases = (
            None
            if leases_at is None
            else Leases(grid, leases_at, run=run, most=most, say=say, at_once=enrol_at_once)
        )
        self._began = clock()

    def absent(self, clients: Sequence[str]) -> Mapping[str, str]:
        """See :class:`cutwater.federate.executor.Executor`."""
        self.roster.update()
        if self._leases is not None:
            self._leases.enrol(dict(self.roster.nodes))
        self._began = self._clock()
        missing = (name for name in clients if name not in self.roster.nodes)
        return dict.fromkeys(missing, "no node of this client is connected")

    def carry_out(self, orders: Orders) -> Iterator[Arrival]:
        """See :class:`cutwater.federate.executor.Executor`."""
        deadline = orders.deadline or 5 * orders.plan.latency + _SPARE
        self._began = self._clock()
        out: list[Sent] = []
        with ExitStack() as placed:
            for task in orders.tasks:
                # One by one, so that what was placed is ended if another can't be placed, or ended.
                share = orders.plan[task.client].share
                try:
                    out.append(self._book.place(task, share, orders.weights, deadline))
                except CutwaterError as error:
                    yield Lost(task.client, str(error))
                else:
                    placed.callback(self._book.end, out[-1])
            shares = Resharing(self._study, orders, out, deadline, self._sessions, self._book, self._propose)
            for found in self._settled(out, self._replies(orders, out, deadline)):
                arrival = None if found is None else self._arrival(orders, *found)
                lost = arrival.client if isinstance(arrival, Lost) else None
                if (change := shares.look(self._clock() - self._began, lost)) is not None:
                    yield change
                if arrival is not None:
                    yield arrival

    def _replies(
        self, orders: Orders, out: Sequence[Sent], deadline: float
    ) -> Iterator[tuple[int, _Answer] | None]:
        """Which order was answered, and how; each once, until all were or the time is up.

        Where nothing came for a moment, it yields None.
        """
        leases, until = self._leases, self._began + deadline
        names = {sent.task.client: place for place, sent in enumerate(out)}
        held = {name: place for name, place in names.items() if leases is not None and leases.holds(name)}
        others = [place for place in range(len(out)) if place not in held.values()]
        messages = [
            self._book.message(
                out[place], self.roster.nodes[out[place].task.client], orders.weights, deadline
            )
            for place in others
        ]
        if leases is None or not held:
            for found in self._exchange(messages, until):
                yield None if found is None else (others[found[0]], found[1])
            return
        for name, place in held.items():
            leases.post(name, self._book.records(out[place], orders.weights))
        # Flower is asked in another thread, so that neither waits for the other.
        brought = _beside(found for found in self._exchange(messages, until) if found is not None)
        with closing(brought):
            waiting = set(held.values()) | set(others)
            while waiting and self._clock() < until:
                while (found := next(brought)) is not None:
                    waiting.discard(others[found[0]])
                    yield others[found[0]], found[1]
                event = leases.event(min(until - self._clock(), _BESIDE if others else 1.0))
                place = held.get(event.client, -1) if event is not None else -1
                if event is None or place not in waiting:
                    yield None
                    continue
                answered = self._heard(leases, event)
                if answered is not None:
                    waiting.discard(place)
                    yield place, answered

    def _heard(self, leases: Leases, event: Event) -> _Answer | None:
        """What somebody who holds a lease has answered, if that is what happened."""
        if event.news is News.AWAY:
            return EngineError(f"its node is gone: {event.reason}")
        if event.letter is None or not leases.answers(event.client, event.letter):
            return None
        try:
            content = from_letter(event.letter.body)
        except CutwaterError as error:
            return error
        down = leases.sent_in(event.client) or 0.0
        wall, letter = self._clock() - self._began, event.letter
        return Reply(content, wall, transfers=(down, letter.seconds), away=letter.after)

    def _exchange(self, messages: Sequence[Message], until: float) -> Iterator[tuple[int, _Answer] | None]:
        for found in replies(self._grid, messages, until, self._clock):
            if found is None:
                yield None
                continue
            index, message = found
            wall = self._clock() - self._began
            if message.has_error():
                yield index, EngineError(f"its node failed: {failure_of(message)}")
            else:
                yield index, Reply(message.content, wall, self._overhead(message.metadata.src_node_id))

    def _overhead(self, node: int) -> float | None:
        name = next((name for name, held in self.roster.nodes.items() if held == node), "")
        return self.roster.overhead.get(name)

    def elapsed(self) -> float:
        """Seconds on the wall since the last orders were handed out."""
        return self._clock() - self._began

    def evaluate(self, weights: State) -> list[Score]:
        """The test set is scored here, at the server."""
        return self._trainer.evaluate(weights)

    def close(self) -> None:
        """End all leases, and what was started to evaluate."""
        if self._leases is not None:
            self._leases.close()
        self._trainer.close()

    def _settled(
        self, out: Sequence[Sent], replied: Iterator[tuple[int, _Answer] | None]
    ) -> Iterator[tuple[Sent, _Answer] | None]:
        """Replies once the server's end of their session is over; None now and then.

        One whose session is not over waits a while beside the others, which it does not hold up.
        """
        waiting: list[tuple[Sent, _Answer, float]] = []
        for found in replied:
            now = self._clock() - self._began
            if found is not None:
                waiting.append((out[found[0]], found[1], now))
            yield from self._due(waiting, now)
            yield None
        while waiting:
            yield from self._due(waiting, self._clock() - self._began)
            if waiting:
                time.sleep(_GLANCE)

    def _due(self, waiting: list[tuple[Sent, _Answer, float]], now: float) -> Iterator[tuple[Sent, _Answer]]:
        """Take those out whose sessions are over, or whose patience is."""
        ready = [
            each
            for each in waiting
            if isinstance(each[1], CutwaterError) or self._book.is_settled(each[0]) or now - each[2] >= SETTLE
        ]
        waiting[:] = [each for each in waiting if not any(each is one for one in ready)]
        yield from ((sent, reply) for sent, reply, _ in ready)

    def _arrival(self, orders: Orders, sent: Sent, reply: _Answer) -> Arrival:
        name = sent.task.client
        try:
            if isinstance(reply, CutwaterError):
                raise reply
            return read_update(self._study, self._book, sent, reply, orders=orders, emulated=self._emulate)
        except CutwaterError as error:
            return Lost(name, str(error), forgot=isinstance(error, ForgottenError))
        finally:
            self._book.end(sent)


def _beside(source: Iterator[tuple[int, _Answer]]) -> Generator[tuple[int, _Answer] | None, None, None]:
    """What an iterator yields, taken from it in a thread; None where nothing more is there yet."""
    taken: SimpleQueue[tuple[int, _Answer] | BaseException] = SimpleQueue()
    over = threading.Event()

    def take() -> None:
        try:
            for found in source:
                taken.put(found)
                if over.is_set():
                    return
        except BaseException as error:
            taken.put(error)

    threading.Thread(target=take, name="cutwater-messages", daemon=True).start()
    try:
        while True:
            found = None if taken.empty() else taken.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        over.set()
