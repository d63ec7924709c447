"""What the server does with a connection: lets it in by its ticket and talks with it, step by step."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import grpc

from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.expectation import Gate
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import METHOD, VERDICT, Limits
from cutwater.stream.messages import Assembler, Message, Packed, Packer
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import StepTrainer
from cutwater.stream.ticket import Metadata, TicketKey

log = logging.getLogger(__name__)
Ending = asyncio.Future[RefusedError]
"""Of a connection: done when it is to end, and why; cancelled when it was lost."""


class OpenCall(Protocol):
    """What is used of gRPC's context of a call."""

    def invocation_metadata(self) -> Metadata:
        """What the client opened the call with."""

    async def read(self) -> bytes:
        """The next message; ``grpc.aio.EOF`` when there are no more."""

    async def write(self, message: bytes) -> None:
        """Send a message, once flow control lets it."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> NoReturn:
        """End the call with this status."""


_PLAIN = Packer({FrameKind.WELCOME: Gate(), FrameKind.FINISHED: Gate()})
_MAX_REASON = 500


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Lets connections in by their tickets and talks with them; lives in one event loop."""

    def __init__(
        self, trainer: StepTrainer, key: TicketKey, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self.trainer, self.key, self.limits, self.clock = trainer, key, limits, clock
        self.hosted: dict[str, HostedSession] = {}

    def service(self, details: Any) -> Any:
        """What gRPC asks for every call."""
        return grpc.stream_stream_rpc_method_handler(self._call) if details.method == METHOD else None

    async def _call(self, _: object, call: OpenCall) -> None:
        try:
            hosted, ending, have = self._admit(call)
        except RefusedError as refusal:
            await self._abort(call, refusal)
            return
        talk = asyncio.create_task(self._talk(hosted, ending, have, call))
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

    def _admit(self, call: OpenCall) -> tuple[HostedSession, Ending, int]:
        opening = self.key.verify(call.invocation_metadata())
        hosted = self.hosted.get(opening.claims.id)
        if hosted is None:
            reason = f"round {opening.claims.round} is over for client {opening.claims.client!r}"
            raise RefusedError(Status.PERMISSION_DENIED, reason)
        return hosted, hosted.admit(opening), opening.have

    async def _talk(self, hosted: HostedSession, ending: Ending, have: int, call: OpenCall) -> None:
        received = hosted.received
        await self._send(hosted, _PLAIN.pack(FrameKind.WELCOME, received), call)
        if received > have:
            await self._answer(hosted, ending, await hosted.reply(), call)
        # The half works on copies, so a step can stay where gRPC has put it.
        assembler = Assembler(hosted.expect.at_server(), borrow=True)
        while await self._turn(hosted, ending, assembler, call):
            pass

    async def _turn(
        self, hosted: HostedSession, ending: Ending, assembler: Assembler, call: OpenCall
    ) -> bool:
        """One message of the client and what it calls for; whether more may come."""
        message = await self._receive(hosted, assembler, call)
        # What comes over a connection that was replaced comes again over the new one.
        if message is None or ending.done():
            return False
        if message.kind is FrameKind.FINISH:
            hosted.finish(message.step)
            # Said when it is true: whoever is told so may count on what the session has left.
            record = await hosted.ended()
            if record.failure is not None:
                raise record.failure
            await self._send(hosted, _PLAIN.pack(FrameKind.FINISHED, message.step), call)
            return False
        reply = await hosted.take(message)
        del message  # its memory is free for the next step
        try:
            await self._answer(hosted, ending, reply, call)
        finally:
            hosted.do_the_rest()
        return not ending.done()

    async def _receive(self, hosted: HostedSession, assembler: Assembler, call: OpenCall) -> Message | None:
        started = None
        while (data := await call.read()) is not grpc.aio.EOF:
            started = started or self.clock()
            hosted.bytes_up += len(data)
            message = assembler.feed(data)
            if message is not None:
                hosted.seconds["up"] += self.clock() - started
                return message
        return None

    async def _answer(
        self, hosted: HostedSession, ending: Ending, reply: Packed | None, call: OpenCall
    ) -> None:
        if reply is None or ending.done():
            return
        started = self.clock()
        await self._send(hosted, reply, call)
        hosted.seconds["down"] += self.clock() - started

    async def _send(self, hosted: HostedSession, packed: Packed, call: OpenCall) -> None:
        for frame in packed.frames(self.limits.frame_bytes):
            # Returns when HTTP/2 flow control has taken it: a client that does not read stops us here.
            await call.write(frame)
            hosted.bytes_down += len(frame)

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
