"""What the server does with a connection: lets it in by its ticket, and ends it with a verdict."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import grpc

from cutwater.stream.conversation import Conversation, Ending, OpenCall
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.lease import HostedLease
from cutwater.stream.limits import LEASE, METHOD, VERDICT, Limits
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import StepTrainer
from cutwater.stream.ticket import TicketKey

log = logging.getLogger(__name__)
_MAX_REASON = 500


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets connections in by their tickets and talks with them; lives in one event loop."""

    def __init__(
        self, trainer: StepTrainer | None, key: TicketKey, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self.trainer, self.key, self.limits, self.clock = trainer, key, limits, clock
        self.hosted: dict[str, HostedSession] = {}
        self.let_in: Callable[[str], None] = lambda peer: None
        """Is told of connections that showed a ticket."""
        self.leases: dict[str, HostedLease] = {}

    def service(self, details: Any) -> Any:
        """What gRPC asks for every call."""
        method = {METHOD: self._call, LEASE: self._lease}.get(details.method)
        return grpc.stream_stream_rpc_method_handler(method) if method is not None else None

    async def _call(self, _: object, call: OpenCall) -> None:
        try:
            hosted, ending, have = self._admit(call)
        except RefusedError as refusal:
            await self._abort(call, refusal)
            return
        conversation = Conversation(hosted, ending, call, self.limits.frame_bytes, self.clock)
        talk = asyncio.create_task(conversation.hold(have))
        try:
            either: set[asyncio.Future[Any]] = {talk, ending}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            ending.cancel()  # the connection is lost; the session stays, its client may come back
            raise
        finally:
            if not hosted.runs_in(talk):
                talk.cancel()
                await asyncio.wait({talk})
        verdict = ending.result() if ending.done() else _refusal_of(talk)
        if verdict is not None:
            if not ending.done():
                hosted.fail(verdict)
            await self._abort(call, verdict)

    async def _lease(self, _: object, call: OpenCall) -> None:
        try:
            claims = (opening := self.key.verify(call.invocation_metadata())).claims
            if (lease := self.leases.get(claims.id)) is None:
                reason = f"client {claims.client!r} has no lease here"
                raise RefusedError(Status.PERMISSION_DENIED, reason)
            ending = lease.admit(opening)
            self.let_in(call.peer())
        except RefusedError as refusal:
            await self._abort(call, refusal)
            return
        talk = asyncio.create_task(lease.hold(call, ending))
        try:
            either: set[asyncio.Future[Any]] = {talk, ending}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            talk.cancel()
            await asyncio.wait({talk})
        verdict = ending.result() if ending.done() else _refusal_of(talk)
        if verdict is not None:
            await self._abort(call, verdict)

    def _admit(self, call: OpenCall) -> tuple[HostedSession, Ending, int]:
        opening = self.key.verify(call.invocation_metadata())
        hosted = self.hosted.get(opening.claims.id)
        if hosted is None:
            reason = f"round {opening.claims.round} is over for client {opening.claims.client!r}"
            raise RefusedError(Status.PERMISSION_DENIED, reason)
        ending = hosted.admit(opening)
        self.let_in(call.peer())
        return hosted, ending, opening.have

    async def _abort(self, call: OpenCall, refusal: RefusedError) -> None:
        code = grpc.StatusCode[refusal.status.name]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.keepalive_timeout):
                await call.abort(code, refusal.reason[:_MAX_REASON], ((VERDICT, refusal.status.name),))
        # The status waits behind data that the client does not read. It had its chance.
        raise asyncio.CancelledError


def _refusal_of(talk: "asyncio.Task[None]") -> RefusedError | None:
    error = None if talk.cancelled() else talk.exception()
    if isinstance(error, RefusedError):
        return error
    if error is not None:
        log.debug("a connection of the stream ended", exc_info=error)
    return None
