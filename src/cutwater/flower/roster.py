"""Which Flower node is which client of the scenario.

A node that was registered under a client's name (``flwr supernode register KEY --name c1``) is that client:
the name is bound to the node's key. Any other node is asked, once; the name is then that node's as long as it
is connected, and another node that says the same is not believed.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version

from flwr.app import ConfigRecord, Message, RecordDict

from cutwater.base.speech import Say, quiet
from cutwater.flower.failures import failure_of
from cutwater.flower.patient_grid import PatientGrid
from cutwater.flower.replies import ReplyPool

POLL = 0.25
"""Seconds between two looks for a reply."""
_LOOKS = 40.0
"""Looks a second, of all: of very many nodes each is looked for less often."""
_PATIENCE = 60.0
"""Seconds in which a node says who it is, at a round's begin."""

_GLANCE = 1.0
"""Seconds for one that has not answered before."""


def exchange(
    grid: PatientGrid, messages: Sequence[Message], until: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[int, Message]]:
    """The replies alone of :func:`replies`."""
    return (found for found in replies(grid, messages, until, clock) if found is not None)


def replies(
    grid: PatientGrid, messages: Sequence[Message], until: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[int, Message] | None]:
    """Send messages; yield (index of message, reply) as replies come, each once, until all or the time is up.

    Where none came for a moment it yields None, for whoever has something else to look at.
    Only replies to these messages are asked for, so one to an older round never turns up here. One that never
    gets whole holds up neither the others nor the round (see :mod:`cutwater.flower.replies`).
    """
    waiting = {id_: index for index, id_ in enumerate(grid.push_messages(messages)) if id_}
    pool = ReplyPool(grid, waiting, max(POLL, len(waiting) / _LOOKS))
    try:
        while waiting:
            left = until - clock()
            reply = pool.get(min(left, POLL))
            if reply is None:
                if left <= 0:
                    return
                yield None
                continue
            index = waiting.pop(reply.metadata.reply_to_message_id, None)
            if index is not None:
                yield index, reply
    finally:
        pool.close()


class Roster:
    """Clients and their nodes."""

    def __init__(
        self, grid: PatientGrid, names: Sequence[str], say: Say = quiet, *, ask_all: bool = True
    ) -> None:
        self.grid, self.names, self._say = grid, list(names), say
        self._ask_all = ask_all
        """Whether nodes whose names are known are asked, too, to time an empty message."""
        self.nodes: dict[str, int] = {}
        """The node of every client that is connected."""
        self.overhead: dict[str, float] = {}
        """Seconds that an empty message takes to a client and back, its handling aside."""
        self._asked: set[int] = set()
        self._silent: set[int] = set()
        """Nodes that were asked and did not answer in time: they are asked again, but hardly waited for."""
        self._bound: set[int] = set()

    def wait(self, seconds: float) -> None:
        """Wait until all clients are there, at most so long."""
        until = time.monotonic() + seconds
        self.update(until)
        # As many as there are clients have answered: whoever is missing is not to be expected.
        while len(self._asked) < len(self.names) and time.monotonic() < until:
            time.sleep(1.0)
            self.update(until)
        missing = [name for name in self.names if name not in self.nodes]
        if missing:
            self._say(f"no node is client {', '.join(missing)}; going on without")

    def update(self, until: float | None = None) -> None:
        """See who left, and ask those who came who they are."""
        registered = {int(node.node_id): str(node.name) for node in self.grid.get_nodes()}
        there = set(registered)
        self.nodes = {name: node for name, node in self.nodes.items() if node in there}
        self._asked &= there
        self._bound &= there
        for node, name in registered.items():
            if name not in self.names or node in self._bound:
                continue
            if self.nodes.get(name) in self._bound:
                if node not in self._asked:
                    self._say(
                        f"node {node} is registered as {name!r}, as node {self.nodes[name]} is; it waits"
                    )
                self._asked.add(node)
                continue
            self.nodes[name] = node
            self._bound.add(node)
        if not self._ask_all:
            self._asked |= self._bound
        new = sorted(there - self._asked)
        if not new:
            return
        patience = _PATIENCE if set(new) - self._silent else _GLANCE
        until = time.monotonic() + patience if until is None else until
        body = RecordDict({"ask": ConfigRecord({"cutwater": version("cutwater")})})
        ttl = max(until - time.monotonic(), 1.0)
        began = time.monotonic()
        for index, reply in exchange(
            self.grid, [Message(body, node, "query", ttl=ttl) for node in new], until
        ):
            self._asked.add(new[index])
            self._note(new[index], reply, time.monotonic() - began)
        self._silent = ((self._silent | set(new)) - self._asked) & there

    def _note(self, node: int, reply: Message, seconds: float) -> None:
        reason = failure_of(reply)
        if reason is not None:
            self._say(f"node {node} can't say who it is: {reason}")
            return
        who = reply.content.get("who")
        name = who.get("client") if isinstance(who, ConfigRecord) else None
        handled = who.get("seconds") if isinstance(who, ConfigRecord) else None
        if node in self._bound:
            name = next(known for known, held in self.nodes.items() if held == node)
        if name not in self.names:
            self._say(f"node {node} says it is {name!r}, which is no client of the scenario; it is left out")
        elif self.nodes.get(name, node) != node:
            self._say(f"node {node} says it is {name!r}, but node {self.nodes[name]} is; it is left out")
        else:
            self.nodes[name] = node
            if type(handled) is float and math.isfinite(handled) and 0 <= handled <= seconds:
                self.overhead[name] = seconds - handled
