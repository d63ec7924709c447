"""The server's end of the activation stream: a grpc.aio service in a thread of its own.

grpc.aio because a thread pool starves once idle streams fill it; a thread of its own because those who run
rounds (a Flower ServerApp, a test) are not asynchronous.
"""

import asyncio
import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import grpc

from cutwater.base.errors import EngineError
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.expectation import Expectation
from cutwater.stream.limits import Limits
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.service import Service
from cutwater.stream.step_trainer import SessionRecord, StepTrainer
from cutwater.stream.ticket import Claims, Ticket, TicketKey
from cutwater.stream.tls import Certificate

log = logging.getLogger(__name__)
T = TypeVar("T")


class StreamServer:
    """Hosts the server's half of sessions; a context manager, called from any thread but its own.

    ``issue`` a ticket, hand it to its client, ``wait`` for the session, ``revoke`` the ticket when its round
    is over: until then the session's record is kept, afterwards nothing is.
    """

    def __init__(
        self,
        trainer: StepTrainer,
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
        self.certificate = certificate or Certificate.self_signed()
        self._key = key or TicketKey()
        self._service = Service(trainer, self._key, self.limits, clock)
        self._host, self._port, self._advertise = host, port, advertise or host
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._main, name="cutwater-stream", daemon=True)

    def __enter__(self) -> "StreamServer":
        self._thread.start()
        self._port = self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where clients find it: what tickets say; the host to advertise, with a port of its own or ours."""
        has_port = re.search(r"(^[^:]*|\]):[0-9]+$", self._advertise)
        return self._advertise if has_port else f"{self._advertise}:{self._port}"

    def issue(
        self,
        *,
        run: str,
        round: int,
        client: str,
        cut: int,
        expect: Expectation,
        open_seconds: float = 60.0,
        session_seconds: float = 600.0,
    ) -> Ticket:
        """A ticket for one session of one client; both times count from now."""
        if not 0 < open_seconds <= session_seconds < math.inf:
            raise EngineError(
                f"open_seconds is {open_seconds} and session_seconds {session_seconds}, but the first must "
                f"be above 0, not above the second, and both finite"
            )
        claims = Claims(
            id=secrets.token_hex(16),
            run=run,
            round=round,
            client=client,
            cut=cut,
            address=self.address,
            server_name=self.certificate.name,
            fingerprint=self.certificate.fingerprint,
            open_seconds=open_seconds,
            session_seconds=session_seconds,
        )
        self._in_loop(self._host_session(claims, expect))
        return self._key.issue(claims, self.certificate.certificate)

    def wait(self, ticket: Ticket, timeout: float | None = None) -> SessionRecord:
        """The record of a session that has ended, when it has; TimeoutError if it has not by then."""
        return self._hosted(ticket).over.result(timeout)

    def revoke(self, ticket: Ticket, reason: str = "the round is over") -> SessionRecord:
        """End the session if it has not ended, forget it, and return its record; its ticket is worthless."""
        return self._in_loop(self._drop(self._hosted(ticket), reason))

    def records(self) -> tuple[SessionRecord, ...]:
        """All sessions whose tickets were not revoked, as they stand."""
        return self._in_loop(self._records())

    def close(self) -> None:
        """End all sessions, close all connections, stop the thread."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _hosted(self, ticket: Ticket) -> HostedSession:
        hosted = self._service.hosted.get(ticket.claims.id)
        if hosted is None:
            raise EngineError(f"ticket {ticket.claims.id} is not one of this server's, or was revoked")
        return hosted

    def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or not self._thread.is_alive():
            coroutine.close()
            raise EngineError("the stream's server is not running: use it inside its with block")
        assert threading.current_thread() is not self._thread, "this would wait for itself"
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _host_session(self, claims: Claims, expect: Expectation) -> None:
        self._service.hosted[claims.id] = HostedSession(
            claims, expect, self._service.trainer, self._service.clock
        )

    async def _drop(self, hosted: HostedSession, reason: str) -> SessionRecord:
        hosted.fail(RefusedError(Status.ABORTED, reason))
        record = await hosted.ended()
        self._service.hosted.pop(hosted.claims.id, None)
        return record

    async def _records(self) -> tuple[SessionRecord, ...]:
        return tuple(hosted.record() for hosted in self._service.hosted.values())

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._ready.done():
                log.exception("the stream's server stopped")
            else:
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(options=self.limits.server())
        server.add_generic_rpc_handlers((self._service,))
        pair = (self.certificate.key, self.certificate.certificate.encode())
        try:
            port = server.add_secure_port(f"{self._host}:{self._port}", grpc.ssl_server_credentials((pair,)))
        except RuntimeError as error:
            raise EngineError(
                f"{self._host}:{self._port} can't be listened on: choose another port"
            ) from error
        await server.start()
        self._ready.set_result(port)
        await self._stop.wait()
        for hosted in list(self._service.hosted.values()):
            await self._drop(hosted, "the server is shutting down")
        await server.stop(grace=0.2)
