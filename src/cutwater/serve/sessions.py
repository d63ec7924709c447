"""The split sessions of a run: each has a place in a stream and a half of the model, both opened and ended.

They are hosted in this process (:class:`LocalSessions`) or in one of their own (:class:`RemoteSessions`),
which is watched: when it dies it is started again, at the same port, with the same key and certificate, so
that tickets hold and clients find it. Whoever asks something of it meanwhile waits, and is answered by the
next one, which has every session as far as it had come.
"""

import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutwater.base.speech import Say, quiet
from cutwater.serve.hosting import Hosting, Trained
from cutwater.serve.minded import MindedProcess
from cutwater.serve.process import Hello, Hosted
from cutwater.serve.told import read_tensors, record_from_json, trained_from_json, write_tensors
from cutwater.stream.expectation import Expectation
from cutwater.stream.office import Office
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import SessionRecord
from cutwater.stream.ticket import Claimed, Ticket, TicketKey
from cutwater.stream.tls import Certificate
from cutwater.train.session import State, Task


def _claimed(run: str, task: Task, *, paced: bool) -> Claimed:
    """What the ticket of a task's session says."""
    return {
        "run": run,
        "round": task.round,
        "client": task.client,
        "cut": task.cut,
        "second_cut": task.second_cut,
        "rate_up": task.rate_up if paced else 0.0,
    }


class LocalSessions:
    """Hosted by a server of this process, whose halves may be those of one run among others.

    With ``paced``, both ends keep to the rates of a task. An emulated link is as slow as it should be by
    itself.
    """

    def __init__(self, stream: StreamServer, hosting: Hosting, run: str, *, paced: bool = False) -> None:
        self._stream, self._hosting, self._run, self._paced = stream, hosting, run, paced

    def open(self, task: Task, expect: Expectation, share: float, state: State, seconds: float) -> Ticket:
        """Make room for the session of a task, from these global weights on, for so long at most."""
        ticket = self._stream.issue(
            **_claimed(self._run, task, paced=self._paced),
            expect=expect,
            open_seconds=seconds,
            session_seconds=seconds,
            rate_down=task.rate_down if self._paced else 0.0,
            trainer=self._hosting,
        )
        try:
            self._hosting.expect(ticket.claims.id, task, share, state)
        except BaseException:
            self._stream.revoke(ticket)
            raise
        return ticket

    def is_over(self, ticket: Ticket) -> bool:
        """Whether a session has ended, one way or another."""
        return self.record(ticket) is not None

    def record(self, ticket: Ticket) -> SessionRecord | None:
        """The record of a session that has ended; None if it goes on."""
        return self._stream.record_of(ticket.claims.id)

    def records(self) -> Sequence[SessionRecord]:
        """All sessions that were opened and not ended, as they stand."""
        return self._stream.records()

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share from now on; one that is over in the meantime needs none."""
        self._hosting.reshare(session, share)

    def collect(self, ticket: Ticket) -> Trained:
        """What a session that is over has left; asked for once."""
        return self._hosting.collect(ticket.claims.id)

    def end(self, ticket: Ticket) -> None:
        """End a session, if it has not ended, and forget what it left; nobody can go on with it."""
        try:
            self._stream.revoke(ticket)
        finally:
            self._hosting.forget(ticket.claims.id)


class RemoteSessions:
    """The same, hosted by another process.

    ``command`` starts the process, which calls :func:`cutwater.serve.process.host_for`; ``about`` says what
    it is to host. A context manager.
    """

    def __init__(
        self,
        command: Sequence[str],
        about: Hosted,
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
        self._about: Hello = {
            **about,
            "folder": str(self._folder),
            "host": host,
            "port": port,
            "key": key.hex(),
            "certificate": pair,
        }
        self._over: set[str] = set()
        self._weights: tuple[str, State | None] = ("", None)
        self._files: dict[str, str] = {}
        """Of the weights that each session starts from."""
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

    def open(self, task: Task, expect: Expectation, share: float, state: State, seconds: float) -> Ticket:
        """Have the process host the session of a task; what crosses the cut it finds out by itself."""
        paced, issued = not self._about["emulate"], time.monotonic()
        claimed = _claimed(self._about["run"], task, paced=paced)
        ticket = self._office.issue(open_seconds=seconds, session_seconds=seconds, **claimed)
        session = ticket.claims.id
        self._files[session] = name = self._weights_of(state)
        opening = {
            "claims": asdict(ticket.claims),
            "task": task.to_json(),
            "share": share,
            "weights": name,
            "issued": issued,
            "rate_down": task.rate_down if paced else 0.0,
        }
        try:
            self.process.ask("open", opening=opening)
        except BaseException:
            self._remove_unused(self._files.pop(session))
            raise
        return ticket

    def is_over(self, ticket: Ticket) -> bool:
        """Whether a session has ended, one way or another."""
        return ticket.claims.id in self._over

    def record(self, ticket: Ticket) -> SessionRecord | None:
        """The record of a session that has ended; None if it goes on."""
        told = self.process.ask("record", session=ticket.claims.id)
        return None if told is None else record_from_json(told)

    def records(self) -> Sequence[SessionRecord]:
        """All sessions that were opened and not ended, as they stand."""
        return [record_from_json(told) for told in self.process.ask("records")]

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share; a process that is started again begins with the planned ones."""
        self.process.ask("reshare", session=session, share=share)

    def collect(self, ticket: Ticket) -> Trained:
        """What a session that is over has left; until it is ended, it can be asked for again."""
        told = self.process.ask("collect", session=ticket.claims.id)
        return trained_from_json(told["trained"], read_tensors(self._folder / told["file"]))

    def end(self, ticket: Ticket) -> None:
        """End the session if it has not ended, and forget it; its ticket is worthless."""
        session = ticket.claims.id
        self.process.ask("end", session=session)
        self._over.discard(session)
        self._remove_unused(self._files.pop(session, ""))

    def _weights_of(self, state: State) -> str:
        """The file of the weights that sessions start from, written once for all of a round."""
        name, held = self._weights
        if held is not state:
            name = f"weights-{secrets.token_hex(8)}"
            write_tensors(self._folder / name, state)
            before, self._weights = self._weights[0], (name, state)
            self._remove_unused(before)
        return name

    def _remove_unused(self, name: str) -> None:
        if name and name != self._weights[0] and name not in self._files.values():
            (self._folder / name).unlink(missing_ok=True)

    def _hello(self) -> Mapping[str, Any]:
        # The next process listens where the one before did.
        return {**self._about, "port": self._office.port}

    def _told(self, told: Mapping[str, Any]) -> None:
        if "ready" in told:
            self._office.port = told["ready"]
            if told["restored"]:
                self._say(f"{told['restored']} sessions go on from their journals")
        else:
            self._over.add(told["over"])


Sessions = LocalSessions | RemoteSessions
"""Those of a run, wherever they are hosted."""
