"""Rounds over Flower: hands a round's orders to nodes and yields what comes back, until the deadline.

Whoever's update is not in by then, or does not count (``updates``), is lost by name; the others are
unaffected.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from cutwater.base.errors import CutwaterError
from cutwater.execute.local import LocalTrainer
from cutwater.federate.executor import Arrival, Lost, Orders
from cutwater.federate.study import Study
from cutwater.flower.orders import OrderBook, Sent
from cutwater.flower.roster import Roster, exchange
from cutwater.flower.updates import read_update
from cutwater.flower.wire import ForgottenError
from cutwater.serve.hosting import Hosting
from cutwater.stream.server import StreamServer
from cutwater.train.scores import Score
from cutwater.train.session import State

Clock = Callable[[], float]
_SPARE = 600.0
"""Seconds that a round without a deadline waits beyond five times its plan; the dead are told of sooner."""


class FlowerExecutor:
    """Carries out the rounds of one study on a grid of nodes, by the clock on the wall."""

    def __init__(
        self,
        study: Study,
        grid: Grid,
        stream: StreamServer,
        hosting: Hosting,
        *,
        run: str,
        identity: str,
        emulate: bool = False,
        say: Callable[[str], None] = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        job = study.job()
        self.roster = Roster(grid, study.fleet.names, say, ask_all=not emulate)
        self._study, self._grid, self._clock, self._emulate = study, grid, clock, emulate
        self._trainer = LocalTrainer(job, study.test())
        self._book = OrderBook(study, job, stream, hosting, run=run, identity=identity)
        self._began = self._ended = clock()

    def absent(self, clients: Sequence[str]) -> Mapping[str, str]:
        """See :class:`cutwater.federate.executor.Executor`."""
        self.roster.update()
        self._began = self._ended = self._clock()
        missing = (name for name in clients if name not in self.roster.nodes)
        return dict.fromkeys(missing, "no node of this client is connected")

    def carry_out(self, orders: Orders) -> Iterator[Arrival]:
        """See :class:`cutwater.federate.executor.Executor`."""
        deadline = orders.deadline or 5 * orders.plan.latency + _SPARE
        self._began = self._clock()
        out: list[Sent] = []
        try:
            for task in orders.tasks:
                # One by one, so that what was placed is ended if another can't be.
                share = orders.plan[task.client].share
                out.append(self._book.place(task, share, orders.weights, deadline))
            messages = [
                self._book.message(sent, self.roster.nodes[sent.task.client], orders.weights, deadline)
                for sent in out
            ]
            for index, reply in exchange(self._grid, messages, self._began + deadline, self._clock):
                yield self._arrival(orders, out[index], reply)
        finally:
            self._ended = self._clock()
            for sent in out:
                self._book.end(sent)

    def elapsed(self) -> float:
        """Seconds on the wall from handing out the last orders to the end of their round."""
        return self._ended - self._began

    def evaluate(self, weights: State) -> list[Score]:
        """The test set is scored here, at the server."""
        return self._trainer.evaluate(weights)

    def close(self) -> None:
        """End what was started to evaluate."""
        self._trainer.close()

    def _arrival(self, orders: Orders, sent: Sent, reply: Message) -> Arrival:
        name = sent.task.client
        try:
            return read_update(
                self._study,
                self._book,
                sent,
                reply,
                orders=orders,
                wall=self._clock() - self._began,
                overhead=self.roster.overhead.get(name),
                emulated=self._emulate,
            )
        except CutwaterError as error:
            return Lost(name, str(error), forgot=isinstance(error, ForgottenError))
        finally:
            self._book.end(sent)
