"""The server's end of the activation stream: a grpc.aio service in a thread of its own.

grpc.aio because a thread pool starves once idle streams fill it; a thread of its own because those who run
rounds (a Flower ServerApp, a test) are not asynchronous.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar, Unpack

import grpc

from cutwater.base.errors import EngineError
from cutwater.stream.door import Door
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.expectation import Expectation
from cutwater.stream.lease import Events, HostedLease
from cutwater.stream.limits import Limits
from cutwater.stream.move import Move
from cutwater.stream.office import Office
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.service import Service
from cutwater.stream.step_trainer import SessionRecord, StepTrainer
from cutwater.stream.ticket import Claimed, Claims, Ticket, TicketKey
from cutwater.stream.tls import Certificate

log = logging.getLogger(__name__)
T = TypeVar("T")
_LONG = 365 * 86_400.0
"""Seconds of a lease: it ends with its run."""
_FAREWELL = 30.0
"""Seconds in which the holder of a lease that is over may still come to hear it."""


class StreamServer:
    """Hosts the server's half of sessions; a context manager, called from any thread but its own.

    ``issue`` a ticket, hand it to its client, ``wait`` for the session, ``revoke`` the ticket when its round
    is over: until then the session's record is kept, afterwards nothing is. Without a trainer it has leases,
    and sessions that bring their own.
    """

    def __init__(
        self,
        trainer: StepTrainer | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        certificate: Certificate | None = None,
        key: TicketKey | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self.events: Events = SimpleQueue()
        """What happens to leases."""
        self.certificate = certificate or Certificate.self_signed()
        self._trainer, self._service = trainer, Service(key or TicketKey(), self.limits, clock)
        self._office = Office(self._service.key, self.certificate, advertise or host, port)
        self._host = host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._main, name="cutwater-stream", daemon=True)

    def __enter__(self) -> "StreamServer":
        self._thread.start()
        self._office.port = self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._office.port

    @property
    def address(self) -> str:
        """Where clients find it: what tickets say; the host to advertise, with a port of its own or ours."""
        return self._office.address

    def issue(
        self,
        *,
        expect: Expectation,
        open_seconds: float = 60.0,
        session_seconds: float = 600.0,
        rate_down: float = 0.0,
        trainer: StepTrainer | None = None,
        **claimed: Unpack[Claimed],
    ) -> Ticket:
        """A ticket for one session of one client; both times count from now.

        It is sent ``rate_down`` bits per second at most; 0 is as fast as its link is. Its half may have a
        ``trainer`` that is not the server's own.
        """
        half = trainer or self._trainer
        if half is None:
            raise EngineError("this stream's server has no half of its own: name the session's trainer")
        ticket = self._office.issue(open_seconds=open_seconds, session_seconds=session_seconds, **claimed)
        self._do(lambda: self._host_session(ticket.claims, expect, rate_down, half))
        return ticket

    def lease(self, *, run: str, client: str, most: int, open_seconds: float) -> Ticket:
        """A ticket for one lease of one client, which writes letters of so many bytes at most."""
        ticket = self._office.issue(
            run=run, round=0, client=client, cut=0, open_seconds=open_seconds, session_seconds=_LONG
        )
        self._do(lambda: self._host_lease(ticket.claims, most))
        return ticket

    def post(self, lease: Ticket, body: bytes) -> int:
        """Write a letter to the holder of a lease; its number. It is kept until it has arrived."""
        return self._do(lambda: self._leased(lease).post(body))

    def took(self, lease: Ticket, number: int) -> float | None:
        """Seconds that a letter took to its holder, if it has arrived."""
        return self._do(lambda: self._leased(lease).took(number))

    def end(self, lease: Ticket) -> None:
        """A lease is over: its holder is told so if it is there, and a moment later it is forgotten."""
        self._do(lambda: self._end_lease(lease))

    def wait(self, ticket: Ticket, timeout: float | None = None) -> SessionRecord:
        """The record of a session that has ended, when it has; TimeoutError if it has not by then."""
        return self._hosted(ticket.claims.id).over.result(timeout)

    def record_of(self, session: str) -> SessionRecord | None:
        """The record of a session that has ended, one way or another; None if it goes on."""
        over = self._hosted(session).over
        return over.result() if over.done() else None

    def propose(self, session: str, move: Move) -> None:
        """Have the cut of a session moved after the mini-batch that it is at; one that is over stays."""

        def propose() -> None:
            hosted = self._service.hosted.get(session)
            if hosted is not None:
                hosted.propose(move)

        self._do(propose)

    def revoke(self, ticket: Ticket, reason: str = "the round is over") -> SessionRecord:
        """End the session if it has not ended, forget it, and return its record; its ticket is worthless."""
        return self._in_loop(self._drop(self._hosted(ticket.claims.id), reason))

    def records(self) -> tuple[SessionRecord, ...]:
        """All sessions whose tickets were not revoked, as they stand."""
        hosted = self._service.hosted
        return self._do(lambda: tuple(each.record() for each in hosted.values()))

    def close(self) -> None:
        """End all sessions, close all connections, stop the thread."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _hosted(self, session: str) -> HostedSession:
        hosted = self._service.hosted.get(session)
        if hosted is None:
            raise EngineError(f"session {session} is not one of this server's, or was revoked")
        return hosted

    def _do(self, work: Callable[[], T]) -> T:
        """What comes of something that is done in the loop."""

        async def done() -> T:
            return work()

        return self._in_loop(done())

    def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or not self._thread.is_alive():
            coroutine.close()
            raise EngineError("the stream's server is not running: use it inside its with block")
        assert threading.current_thread() is not self._thread, "this would wait for itself"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _host_session(
        self, claims: Claims, expect: Expectation, rate_down: float, trainer: StepTrainer
    ) -> None:
        service = self._service
        service.hosted[claims.id] = HostedSession(claims, expect, trainer, service.clock, rate_down)

    def _host_lease(self, claims: Claims, most: int) -> None:
        self._service.leases[claims.id] = HostedLease(
            claims, most, self.events, self.limits, self._service.clock
        )

    def _end_lease(self, lease: Ticket) -> None:
        self._leased(lease).leave()
        loop = asyncio.get_running_loop()
        loop.call_later(_FAREWELL, self._service.leases.pop, lease.claims.id, None)

    def _leased(self, lease: Ticket) -> HostedLease:
        found = self._service.leases.get(lease.claims.id)
        if found is None:
            raise EngineError(f"lease {lease.claims.id} is not one of this server's, or is over")
        return found

    async def _drop(self, hosted: HostedSession, reason: str) -> SessionRecord:
        hosted.fail(RefusedError(Status.ABORTED, reason))
        record = await hosted.ended()
        self._service.hosted.pop(hosted.claims.id, None)
        return record

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except (Exception, asyncio.CancelledError) as error:
            if self._ready.done():
                log.exception("the stream's server stopped")
            else:
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._prepare()
        server = grpc.aio.server(options=self.limits.server())
        server.add_generic_rpc_handlers((self._service,))
        pair = (self.certificate.key, self.certificate.certificate.encode())
        where = f"{self._host}:{self.port}"
        try:
            port = server.add_secure_port(where, grpc.ssl_server_credentials((pair,)))
        except RuntimeError as error:
            raise EngineError(f"{where} can't be listened on: choose another port") from error
        await server.start()
        door = Door(port, 2 * self.limits.handshake)
        self._service.let_in = door.let_in
        door.start()
        self._ready.set_result(port)
        await self._stop.wait()
        door.close()
        await self._shut_down(server)

    async def _prepare(self) -> None:
        """What must be done before anybody can connect."""

    async def _shut_down(self, server: grpc.aio.Server) -> None:
        for hosted in list(self._service.hosted.values()):
            await self._drop(hosted, "the server is shutting down")
        await server.stop(grace=0.2)
