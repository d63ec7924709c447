"""What the server does with a connection: lets it in by its ticket, and ends it with a verdict."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc

from cutwater.stream.conversation import Conversation, OpenCall
from cutwater.stream.entry import Ending
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.lease import HostedLease
from cutwater.stream.limits import LEASE, METHOD, VERDICT, Limits
from cutwater.stream.refusal import RefusedError, denied
from cutwater.stream.ticket import TicketKey

log = logging.getLogger(__name__)
_MAX_REASON = 500
Guest = TypeVar("Guest", HostedSession, HostedLease)


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets connections in by their tickets and talks with them; lives in one event loop."""

    def __init__(self, key: TicketKey, limits: Limits, clock: Callable[[], float]) -> None:
        self.key, self.limits, self.clock = key, limits, clock
        self.hosted: dict[str, HostedSession] = {}
        self.let_in: Callable[[str], None] = lambda peer: None
        """Is told of connections that showed a ticket."""
        self.leases: dict[str, HostedLease] = {}

    def service(self, details: Any) -> Any:
        """What gRPC asks for every call."""
        method = {METHOD: self._call, LEASE: self._lease}.get(details.method)
        return grpc.stream_stream_rpc_method_handler(method) if method is not None else None

    async def _call(self, _: object, call: OpenCall) -> None:
        over = "round {0.round} is over for client {0.client!r}"
        hosted, ending, have = await self._admitted(call, self.hosted, over)
        conversation = Conversation(hosted, ending, call, self.limits.frame_bytes, self.clock)
        talk = asyncio.create_task(conversation.hold(have))
        verdict = await _verdict(talk, ending, hosted.runs_in)
        if verdict is not None:
            if not ending.done():
                hosted.fail(verdict)
            await self._abort(call, verdict)

    async def _lease(self, _: object, call: OpenCall) -> None:
        none = "client {0.client!r} has no lease here"
        lease, ending, _have = await self._admitted(call, self.leases, none)
        verdict = await _verdict(asyncio.create_task(lease.hold(call, ending)), ending)
        if verdict is not None:
            await self._abort(call, verdict)

    async def _admitted(
        self, call: OpenCall, among: Mapping[str, Guest], otherwise: str
    ) -> tuple[Guest, Ending, int]:
        """What a call's ticket opens, how the call is told to end, and how many replies its client holds."""
        try:
            opening = self.key.verify(call.invocation_metadata())
            found = among.get(opening.claims.id)
            if found is None:
                raise denied(otherwise.format(opening.claims))
            ending = found.admit(opening)
        except RefusedError as refusal:
            await self._abort(call, refusal)
        self.let_in(call.peer())
        return found, ending, opening.have

    async def _abort(self, call: OpenCall, refusal: RefusedError) -> NoReturn:
        code = grpc.StatusCode[refusal.status.name]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.keepalive_timeout):
                await call.abort(code, refusal.reason[:_MAX_REASON], ((VERDICT, refusal.status.name),))
        # The status waits behind data that the client does not read. It had its chance.
        raise asyncio.CancelledError


async def _verdict(
    talk: "asyncio.Task[None]",
    ending: Ending,
    busy: "Callable[[asyncio.Task[None]], bool]" = lambda talk: False,
) -> RefusedError | None:
    """How a connection is to be ended, when it is; a talk that is busy then is left alone."""
    try:
        either: set[asyncio.Future[Any]] = {talk, ending}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        ending.cancel()  # the connection is lost; the session stays, its client may come back
        raise
    finally:
        if not busy(talk):
            talk.cancel()
            await asyncio.wait({talk})
    return ending.result() if ending.done() else _refusal_of(talk)


def _refusal_of(talk: "asyncio.Task[None]") -> RefusedError | None:
    error = None if talk.cancelled() else talk.exception()
    if isinstance(error, RefusedError):
        return error
    if error is not None:
        log.debug("a connection of the stream ended", exc_info=error)
    return None
