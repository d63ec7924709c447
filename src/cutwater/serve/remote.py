"""Sessions in a process of their own, seen from the one that hands out their tickets.

The process is watched: when it dies it is started again, at the same port, with the same key and certificate,
so that tickets hold and clients find it. Whoever asks something of it meanwhile waits, and is answered by the
next one, which has every session as far as it had come.
"""

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutwater.base.speech import Say, quiet
from cutwater.serve.hosting import Trained
from cutwater.serve.minded import MindedProcess
from cutwater.serve.told import read_tensors, record_from_json, trained_from_json, write_tensors
from cutwater.stream.expectation import Expectation
from cutwater.stream.office import Office
from cutwater.stream.step_trainer import SessionRecord
from cutwater.stream.ticket import Claims, Ticket, TicketKey
from cutwater.stream.tls import Certificate
from cutwater.train.session import State, Task


@dataclass(frozen=True)
class _Issued:
    """A ticket whose session is yet to be opened."""

    claims: Claims
    rate_down: float
    at: float


class RemoteSessions:
    """What an order book needs of the stream's server and of its halves, both in another process.

    ``command`` starts the process, which calls :func:`cutwater.serve.process.host_for`; ``about`` says what
    it is to host. A context manager.
    """

    def __init__(
        self,
        command: Sequence[str],
        about: Mapping[str, Any],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        say: Say = quiet,
    ) -> None:
        self._say = say
        key, certificate = secrets.token_bytes(32), Certificate.self_signed()
        self._office = Office(TicketKey(key), certificate, advertise or host, port)
        self._folder = Path(tempfile.mkdtemp(prefix="cutwater-sessions-"))
        pair = (certificate.name, certificate.certificate, certificate.key.decode())
        self._about = {**about, "folder": str(self._folder), "key": key.hex(), "certificate": pair}
        self._about["host"] = host
        self._news = threading.Condition()
        self._over: set[str] = set()
        self._issued: dict[str, _Issued] = {}
        self._weights: tuple[str, State | None] = ("", None)
        self._users: dict[str, set[str]] = {}
        """Sessions that start from weights, by the file of these."""
        self.process = MindedProcess("the stream's sessions", command, self._hello, self._told, say)

    def __enter__(self) -> "RemoteSessions":
        try:
            self.process.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and remove what it has left."""
        self.process.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # As of the stream's server

    @property
    def address(self) -> str:
        """Where clients find their sessions."""
        return self._office.address

    def issue(self, *, expect: Expectation, rate_down: float = 0.0, **what: Any) -> Ticket:
        """See :meth:`cutwater.stream.server.StreamServer.issue`.

        What crosses the cut the process finds out by itself.
        """
        claims = self._office.session(**what)
        self._issued[claims.id] = _Issued(claims, rate_down, time.monotonic())
        return self._office.ticket(claims)

    def is_over(self, ticket: Ticket) -> bool:
        """Whether a session has ended, one way or another."""
        return ticket.claims.id in self._over

    def wait(self, ticket: Ticket, timeout: float | None = None) -> SessionRecord:
        """The record of a session that has ended, when it has; TimeoutError if it has not by then.

        Not counted is the time in which the process is started again.
        """
        session = ticket.claims.id
        told = self.process.ask("record", session=session)
        if told is None:
            with self._news:
                if not self._news.wait_for(lambda: session in self._over, timeout):
                    raise TimeoutError(f"session {session} goes on")
            told = self.process.ask("record", session=session)
        return record_from_json(told)

    def records(self) -> list[SessionRecord]:
        """All sessions that were opened and not revoked, as they stand."""
        return [record_from_json(told) for told in self.process.ask("records")]

    def revoke(self, ticket: Ticket, reason: str = "the round is over") -> SessionRecord | None:
        """End the session if it has not ended, and forget it; its ticket is worthless."""
        session = ticket.claims.id
        if self._issued.pop(session, None) is not None:
            return None
        told = self.process.ask("end", session=session, reason=reason)
        self._over.discard(session)
        self._give_up_weights(session)
        return None if told is None else record_from_json(told)

    # As of the halves

    def expect(self, session: str, task: Task, share: float, state: State) -> None:
        """Have the process host a session whose ticket was issued."""
        issued = self._issued[session]
        name = self._weights_of(state)
        self._users.setdefault(name, set()).add(session)
        opening = {
            "claims": asdict(issued.claims),
            "task": task.to_json(),
            "share": share,
            "weights": name,
            "issued": issued.at,
            "rate_down": issued.rate_down,
        }
        try:
            self.process.ask("open", opening=opening)
        except BaseException:
            self._give_up_weights(session)
            raise
        del self._issued[session]

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share; a process that is started again begins with the planned ones."""
        self.process.ask("reshare", session=session, share=share)

    def collect(self, session: str) -> Trained:
        """What a session that is over has left; until it is revoked, it can be asked for again."""
        told = self.process.ask("collect", session=session)
        return trained_from_json(told["trained"], read_tensors(self._folder / told["file"]))

    def forget(self, session: str) -> None:
        """Nothing: what is revoked is forgotten."""

    def _weights_of(self, state: State) -> str:
        """The file of the weights that sessions start from, written once for all of a round."""
        name, held = self._weights
        if held is not state:
            name = f"weights-{secrets.token_hex(8)}"
            write_tensors(self._folder / name, state)
            before, self._weights = self._weights[0], (name, state)
            self._remove_unused(before)
        return name

    def _give_up_weights(self, session: str) -> None:
        for name in [name for name, users in self._users.items() if session in users]:
            self._users[name].discard(session)
            self._remove_unused(name)

    def _remove_unused(self, name: str) -> None:
        if name and name != self._weights[0] and not self._users.get(name):
            self._users.pop(name, None)
            (self._folder / name).unlink(missing_ok=True)

    def _hello(self) -> Mapping[str, Any]:
        return {**self._about, "port": self._office.port}

    def _told(self, told: Mapping[str, Any]) -> None:
        if "ready" in told:
            self._office.port = told["ready"]
            if told["restored"]:
                self._say(f"{told['restored']} sessions go on from their journals")
        else:
            with self._news:
                self._over.add(told["over"])
                self._news.notify_all()
