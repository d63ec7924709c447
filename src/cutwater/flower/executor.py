"""Rounds over Flower: hands a round's orders to nodes and yields what comes back, until the deadline.

Nodes that hold a lease (``leases``) are sent letters, the others messages of Flower's. Whoever's update is
not in by the deadline, or does not count (``updates``), is lost by name, and a holder that leaves is lost at
once; the others get its share of the server (``adapting``) and are unaffected otherwise.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from queue import SimpleQueue

from flwr.app import Message

from cutwater.base.errors import CutwaterError, EngineError
from cutwater.base.speech import Say, quiet
from cutwater.execute.local import LocalTrainer
from cutwater.federate.executor import Arrival, Lost, Orders
from cutwater.federate.study import Study
from cutwater.flower.failures import ForgottenError
from cutwater.flower.leases import Leases
from cutwater.flower.letters import from_letter
from cutwater.flower.orders import SETTLE, OrderBook, Sent
from cutwater.flower.patient_grid import PatientGrid
from cutwater.flower.resharing import Propose, Resharing
from cutwater.flower.roster import Roster, replies
from cutwater.flower.updates import Reply, content_of, read_update
from cutwater.model.traffic import tensor_bytes
from cutwater.serve.sessions import Halves, Tickets
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
        stream: Tickets,
        hosting: Halves,
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
        job = study.job()
        self.roster = Roster(grid, study.fleet.names, say, ask_all=not emulate and leases_at is None)
        self._study, self._grid, self._clock, self._emulate = study, grid, clock, emulate
        self._stream, self._hosting, self._propose = stream, hosting, propose
        self._trainer = LocalTrainer(job, study.test())
        self._book = OrderBook(study, job, stream, hosting, run=run, identity=identity, emulate=emulate)
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
            self._leases.enrol({name: self.roster.nodes[name] for name in self.roster.nodes})
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
            shares = Resharing(
                self._study,
                orders,
                out,
                deadline,
                self._stream,
                self._hosting,
                self._book,
                self._propose,
            )
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
        held = {sent.task.client: place for place, sent in enumerate(out) if self._holds(sent.task.client)}
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
        with _Beside(found for found in self._exchange(messages, until) if found is not None) as beside:
            waiting = set(held.values()) | set(others)
            while waiting and self._clock() < until:
                for place, one in beside.found():
                    waiting.discard(others[place])
                    yield others[place], one
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
            try:
                overhead = self._overhead(message.metadata.src_node_id)
                yield index, Reply(content_of(message), wall, overhead)
            except CutwaterError as error:
                yield index, error

    def _overhead(self, node: int) -> float | None:
        name = next((name for name, held in self.roster.nodes.items() if held == node), "")
        return self.roster.overhead.get(name)

    def _holds(self, client: str) -> bool:
        return self._leases is not None and self._leases.holds(client)

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


class _Beside:
    """What an iterator yields, taken from it in a thread."""

    def __init__(self, source: Iterator[tuple[int, _Answer]]) -> None:
        self._source, self._over = source, False
        self._queue: SimpleQueue[tuple[int, _Answer] | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._take, name="cutwater-messages", daemon=True)

    def __enter__(self) -> "_Beside":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True

    def found(self) -> Iterator[tuple[int, _Answer]]:
        """What there is by now."""
        while not self._queue.empty():
            found = self._queue.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def _take(self) -> None:
        try:
            for found in self._source:
                self._queue.put(found)
                if self._over:
                    return
        except BaseException as error:
            self._queue.put(error)
