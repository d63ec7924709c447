"""Leases of a run: Flower brings a node the offer, and from then on orders and updates are letters.

A message of Flower's costs a node seconds: it is looked for every so often, and each has a process of its
own, which imports torch and builds the model. A node that holds a lease pays that once. Whoever declines, or
can't reach the stream, is sent messages as before.
"""

import math
import queue
import time
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from cutwater.base.speech import Say
from cutwater.flower.failures import failure_of
from cutwater.flower.letters import to_letter
from cutwater.flower.node import LEASE
from cutwater.flower.patient_grid import PatientGrid
from cutwater.flower.replies import ReplyPool
from cutwater.stream.lease import Event, News
from cutwater.stream.letters import Letter
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket

_OFFER = 30 * 86_400.0
"""Seconds that a message which offers a lease may go unanswered: it is answered when the lease is over."""
_COMES = 60.0
"""Seconds in which a node takes up its first lease, at a round's begin."""
_AGAIN = 20.0
"""Seconds for one that has lost its lease; after so many, an offer that nobody took up is made again."""
_GLANCE = 0.2
"""Seconds for a look whether such an offer was declined."""
_LOOK = 1.0
"""Seconds between two looks for a node that declines."""


@dataclass
class _Lease:
    """What was offered to a node."""

    ticket: Ticket
    node: int
    message: str
    until: float = math.inf
    """When it is offered again, if nobody takes it up."""
    here: bool = False
    posted: int = 0
    """The number of the last letter to it."""


class Leases:
    """Who holds a lease; used by one thread."""

    def __init__(
        self, grid: PatientGrid, stream: StreamServer, *, run: str, most: int, say: Say, at_once: int = 0
    ) -> None:
        self._grid, self._stream, self._run, self._most, self._say = grid, stream, run, most, say
        self._at_once = at_once
        """Nodes that are offered a lease before the next are; all if 0."""
        self._leases: dict[str, _Lease] = {}
        self._declined: set[int] = set()
        self._known: set[str] = set()
        self._missed: set[str] = set()
        """Who was waited for in vain, and is not waited for again until it has held a lease."""

    def holds(self, client: str) -> bool:
        """Whether a client is there, by its lease."""
        return client in self._leases and self._leases[client].here

    def enrol(self, nodes: Mapping[str, int]) -> None:
        """Offer a lease to every node that has none and may want one, and wait once for it to be taken up.

        Who does not come is offered another now and then, without holding anybody up. Nodes that share a
        machine are better offered theirs a few at a time: where many start at once, each takes longer than
        Flower waits for it, which then starts another, and so on.
        """
        while self.event(0.0) is not None:  # whatever has happened since is noted
            pass
        for client in [name for name, lease in self._leases.items() if nodes.get(name) != lease.node]:
            self._end(client)
        self._withdraw()
        new = [name for name in nodes if name not in self._leases and nodes[name] not in self._declined]
        size = self._at_once or max(len(new), 1)
        for start in range(0, max(len(new), 1), size):
            for client in new[start : start + size]:
                self._offer(client, nodes[client])
            self._wait_for(nodes)

    def _wait_for(self, nodes: Mapping[str, int]) -> None:
        """Until those who were offered a lease are there, each once."""
        away = {name for name in nodes if name in self._leases and not self.holds(name)} - self._missed
        if not away:
            return
        patience = _COMES if away - self._known else _AGAIN
        self._await(away, time.monotonic() + patience)
        self._known |= away
        for name in sorted(away):
            if name in self._leases and not self.holds(name):
                self._missed.add(name)
                self._leases[name].until = time.monotonic() + _AGAIN
                self._say(f"client {name} has not taken up its lease; it is sent messages meanwhile")

    def post(self, client: str, records: RecordDict) -> None:
        """Send an order."""
        lease = self._leases[client]
        lease.posted = self._stream.post(lease.ticket, to_letter(records))

    def event(self, timeout: float) -> Event | None:
        """What happens next, in so many seconds: a letter that answers the last order, or somebody leaves."""
        try:
            return self._note(self._stream.events.get(timeout=max(timeout, 0.0)))
        except queue.Empty:
            return None

    def answers(self, client: str, letter: Letter) -> bool:
        """Whether a letter is the answer to the last order: a client answers each with one, in order."""
        return client in self._leases and self._leases[client].posted == letter.number

    def sent_in(self, client: str) -> float | None:
        """Seconds that the last order took to its client."""
        lease = self._leases[client]
        return self._stream.took(lease.ticket, lease.posted)

    def close(self) -> None:
        """End all leases."""
        for client in list(self._leases):
            self._end(client)

    def _offer(self, client: str, node: int) -> None:
        ticket = self._stream.lease(run=self._run, client=client, most=self._most, open_seconds=10 * _COMES)
        offer = ConfigRecord({"ticket": ticket.to_text(), "most": self._most})
        message = Message(RecordDict({LEASE: offer}), node, f"train.{LEASE}", ttl=_OFFER)
        (id_,) = self._grid.push_messages([message])
        until = time.monotonic() + _AGAIN if client in self._missed else math.inf
        self._leases[client] = _Lease(ticket, node, id_, until)

    def _await(self, away: set[str], until: float) -> None:
        """Until all of them are there or have declined."""
        ids = {self._leases[name].message: name for name in away}
        pool = ReplyPool(self._grid, ids, _LOOK)
        try:
            while time.monotonic() < until and not all(self.holds(name) for name in away):
                self.event(0.05)
                reply = pool.get(0.0)
                name = ids.get(reply.metadata.reply_to_message_id) if reply is not None else None
                if name is not None and name in self._leases:
                    assert reply is not None
                    self._decline(name, reply)
                    away = away - {name}
        finally:
            pool.close()

    def _withdraw(self) -> None:
        """End the offers that were made long ago and neither taken up nor declined."""
        stale = {name for name, lease in self._leases.items() if time.monotonic() >= lease.until}
        stale -= {name for name in stale if self.holds(name)}
        if stale:
            self._await(stale, time.monotonic() + _GLANCE)
        for name in stale:
            if name in self._leases and not self.holds(name):
                self._end(name)

    def _decline(self, client: str, reply: Message) -> None:
        lease = self._leases[client]
        self._end(client)
        self._declined.add(lease.node)
        reason = failure_of(reply)
        if reason is not None:
            self._say(f"client {client} can't hold a lease ({reason}); it is sent messages")

    def _note(self, event: Event) -> Event:
        lease = self._leases.get(event.client)
        if lease is not None and event.news is not News.LETTER:
            lease.here = event.news is News.HERE
            self._missed.discard(event.client)
            if event.news is News.AWAY:
                # Its process is gone, or it has given up: whoever comes back does so with another lease.
                self._end(event.client)
        return event

    def _end(self, client: str) -> None:
        lease = self._leases.pop(client)
        self._stream.end(lease.ticket)
