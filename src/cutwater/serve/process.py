"""Sessions hosted by a process of their own: killed in a round, the next one goes on where it stood.

Whoever started it (:mod:`cutwater.serve.sessions`) talks to it in lines of JSON over a socket that both have
had from the start; weights are left in files of a folder that both were given. When the other end is gone, so
is this process, and the folder.
"""

import json
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypedDict

import torch

from cutwater.base.errors import CutwaterError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.base.schema import read
from cutwater.federate.study import Study
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.serve.told import read_tensors, record_to_json, trained_to_json, write_tensors
from cutwater.serve.turns import Turns
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.lasting import LastingServer, Session
from cutwater.stream.ticket import Claims, TicketKey
from cutwater.stream.tls import Certificate
from cutwater.train.session import State, Task


class Hosted(TypedDict):
    """What is hosted: the part of :class:`Hello` that a run knows of itself."""

    study: Mapping[str, Any]
    """Whatever the study is made of."""
    run: str
    turns: str
    """The socket by which runs on one machine take turns; empty where there are none."""
    emulate: bool
    """Whether links and devices are slowed down, so that sessions need not be paced."""


class Hello(Hosted):
    """The first line that such a process hears: the same for every one that follows another."""

    folder: str
    """Of journals and weights; nobody else can read it."""
    host: str
    port: int
    key: str
    """Of tickets, in hexadecimal digits."""
    certificate: tuple[str, str, str]
    """The server's name, its certificate and its private key."""


ASKED = ("open", "record", "records", "reshare", "collect", "end")
"""What may be asked of it afterwards: methods of :class:`SessionHost`, with their arguments."""


class SessionHost:
    """The server's halves of all sessions of a run, with journals; a context manager.

    ``over`` is told which session is over.
    """

    def __init__(
        self,
        study: Study,
        hello: Hello,
        over: Callable[[str], object],
        *,
        most_noted: int | None = None,
    ) -> None:
        self._study, self._folder, self._over = study, Path(hello["folder"]), over
        compute = study.server.compute
        turns = Turns(hello["turns"], hello["run"], compute) if hello["turns"] else None
        self._hosting = Hosting(study.job(), study.profile, compute, emulate=hello["emulate"], turns=turns)
        name, public, private = hello["certificate"]
        self._server = LastingServer(
            self._hosting,
            self._folder,
            self._make,
            most_noted=most_noted,
            host=hello["host"],
            port=hello["port"],
            certificate=Certificate(name, public, private.encode()),
            key=TicketKey(bytes.fromhex(hello["key"])),
        )
        self._weights: tuple[str, State] = ("", {})
        self._collected: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "SessionHost":
        self._server.__enter__()
        for hosted in self._server.restored:
            self._watch(hosted)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._hosting.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    @property
    def restored(self) -> int:
        """How many sessions go on that another process began."""
        return len(self._server.restored)

    def open(self, opening: Mapping[str, Any]) -> None:
        """Host a session; asked again, it is there already."""
        id_ = opening["claims"]["id"]
        if not self._server.hosts(id_):
            try:
                self._watch(self._server.open(opening))
            except BaseException:
                self._hosting.forget(id_)
                raise

    def record(self, session: str) -> dict[str, Any] | None:
        """How a session went, if it is over."""
        found = self._server.record_of(session)
        return None if found is None else record_to_json(found)

    def records(self) -> list[dict[str, Any]]:
        """All sessions as they stand."""
        return [record_to_json(record) for record in self._server.records()]

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share from now on."""
        self._hosting.reshare(session, share)

    def collect(self, session: str) -> dict[str, Any]:
        """What a session that is over has left; its weights are in the file of this name."""
        if session not in self._collected:
            trained = self._hosting.collect(session)
            write_tensors(self._folder / _trained(session), trained.state)
            self._collected[session] = {"file": _trained(session), "trained": trained_to_json(trained)}
        return self._collected[session]

    def end(self, session: str) -> None:
        """End a session and forget all of it, if it is not forgotten already."""
        if self._server.hosts(session):
            self._server.drop(session)
            self._hosting.forget(session)
            self._collected.pop(session, None)
            (self._folder / _trained(session)).unlink(missing_ok=True)

    def _make(self, opening: Mapping[str, Any]) -> Session:
        claims, task = read(Claims, opening["claims"]), Task(**opening["task"])
        name = opening["weights"]
        if self._weights[0] != name:
            self._weights = (name, read_tensors(self._folder / name))
        self._hosting.expect(claims.id, task, opening["share"], self._weights[1])
        return Session(claims, expectation(self._study, task), opening["issued"], opening["rate_down"])

    def _watch(self, hosted: HostedSession) -> None:
        hosted.over.add_done_callback(lambda _: self._over(hosted.claims.id))


def _trained(session: str) -> str:
    return f"{session}.trained"


def host_for(line: socket.socket, study_of: Callable[[Mapping[str, Any]], Study]) -> None:
    """Host sessions for whoever is at the other end of a line, until that hangs up.

    ``study_of`` makes the study of what the other end says of it.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    lock, heard = threading.Lock(), line.makefile("rb")

    def say(told: Mapping[str, Any]) -> None:
        with lock:
            line.sendall(json.dumps(told).encode() + b"\n")

    def over(session: str) -> None:
        with suppress(OSError):  # that the other end is gone is no business of the thread that says so
            say({"over": session})

    hello: Hello = json.loads(heard.readline())
    try:
        with ExitStack() as held:
            try:
                host = held.enter_context(SessionHost(study_of(hello["study"]), hello, over))
            except CutwaterError as error:
                say({"refused": str(error)})
                return
            say({"ready": host.port, "restored": host.restored})
            for request in heard:
                say(_answer(host, json.loads(request)))
    except OSError:
        pass  # the other end is gone
    shutil.rmtree(hello["folder"], ignore_errors=True)


def _answer(host: SessionHost, request: Mapping[str, Any]) -> dict[str, Any]:
    """What comes of a request; none but our own process writes any."""
    assert request["ask"] in ASKED, request["ask"]
    try:
        answer = getattr(host, request["ask"])(**request["about"])
    except CutwaterError as error:
        return {"number": request["number"], "error": str(error)}
    return {"number": request["number"], "answer": answer}
