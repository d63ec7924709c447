"""What is said over one connection, from the server's side.

Parts that come in turn are read, computed and answered one after the other, in one task: that is quickest,
and a client that sends ahead is not read. Where parts overlap, one task reads them while another sends
replies, and the session computes between the two.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn, Protocol

import grpc

from cutwater.stream.entry import Ending
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import NORM, Assembler, Message, Packed, bare
from cutwater.stream.ticket import Metadata


class OpenCall(Protocol):
    """What is used of gRPC's context of a call."""

    def invocation_metadata(self) -> Metadata:
        """What the client opened the call with."""

    def peer(self) -> str:
        """Who is at the other end, in gRPC's words."""

    async def read(self) -> bytes:
        """The next message; ``grpc.aio.EOF`` when there are no more."""

    async def write(self, message: bytes) -> None:
        """Send a message, once flow control lets it."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata) -> NoReturn:
        """End the call with this status."""


class Conversation:
    """The server's side of one connection of a session."""

    def __init__(
        self,
        hosted: HostedSession,
        ending: Ending,
        call: OpenCall,
        frame_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._hosted, self._ending, self._call = hosted, ending, call
        self._frame_bytes, self._clock = frame_bytes, clock
        self._gates = hosted.gates
        # The half works on copies, so a part can stay where gRPC has put it.
        self._assembler = Assembler(self._gates, borrow=True)

    async def hold(self, have: int) -> None:
        """Talk with a client that holds so many replies, until it is done or gone."""
        received = self._hosted.window.received
        await self._send(bare(FrameKind.WELCOME, received))
        if self._hosted.expect.window > 1:
            await self._overlapped(have)
            return
        if received > have:
            await self._reply(await self._hosted.reply(have))
        while await self._turn():
            pass

    async def _turn(self) -> bool:
        """One message of the client and what it calls for; whether more may come."""
        message = await self._receive()
        if message is None:
            return False
        if message.kind is FrameKind.FINISH:
            await self._finish(message)
            return False
        reply = await self._hosted.take(message)
        del message  # its memory is free for the next part
        try:
            await self._reply(reply)
        finally:
            self._hosted.do_the_rest()
        return not self._ending.done()

    async def _overlapped(self, have: int) -> None:
        """Read parts as they come, and meanwhile send replies as they are there."""
        replying = asyncio.create_task(self._reply_from(have))
        try:
            while (message := await self._receive()) is not None:
                if message.kind is FrameKind.FINISH:
                    await self._finish(message)
                    return
                self._hosted.queue(message)
                del message
        finally:
            replying.cancel()
            await asyncio.wait({replying})

    async def _reply_from(self, number: int) -> None:
        while (reply := await self._hosted.reply(number)) is not None:
            number += 1
            try:
                await self._reply(reply)
            finally:
                if number == self._hosted.window.answered:
                    self._hosted.do_the_rest()

    async def _finish(self, message: Message) -> None:
        self._hosted.finish(message.number, message.scalars.get(NORM))
        # Said when it is true: whoever is told so may count on what the session has left.
        record = await self._hosted.ended()
        if record.failure is not None:
            raise record.failure
        await self._send(bare(FrameKind.FINISHED, message.number))

    async def _receive(self) -> Message | None:
        """The next message; None if there are no more, or if they are another connection's business."""
        started, timed, hosted = None, 0, self._hosted
        while (data := await self._call.read()) is not grpc.aio.EOF:
            if started is None:
                started, timed = self._clock(), 0
                self._expect_next()
            else:
                timed += len(data)
            hosted.bytes_up += len(data)
            if hosted.line_up is not None:
                await self._until(hosted.line_up.passed(len(data), self._clock()))
            hosted.coming = timed, self._clock() - started
            message = self._assembler.feed(data)
            if message is None:
                continue
            seconds, hosted.coming = hosted.coming[1], (0, 0.0)
            if message.kind is FrameKind.PING:
                await self._send(bare(FrameKind.PONG, message.number))
                started = None
            else:
                hosted.seconds["up"] += seconds
                hosted.timed_up += timed
                # What comes over a connection that was replaced comes again over the new one.
                return None if self._ending.done() else message
        return None

    def _expect_next(self) -> None:
        """What may come now; it changes when the cut is to move, and when it has."""
        if self._gates is not self._hosted.gates:
            self._gates = self._hosted.gates
            self._assembler = Assembler(self._gates, borrow=True)
        self._assembler.expect(self._hosted.window.rows)

    async def _reply(self, reply: Packed | None) -> None:
        if reply is None or self._ending.done():
            return
        started, before = self._clock(), self._hosted.bytes_down
        await self._send(reply)
        self._hosted.seconds["down"] += self._clock() - started
        self._hosted.timed_down += self._hosted.bytes_down - before

    async def _send(self, packed: Packed) -> None:
        line, most = self._hosted.line_down, self._frame_bytes
        if line is not None:
            line.begin(self._clock())
            most = min(most, line.size)
        for frame in packed.frames(most):
            if line is not None:
                await self._until(line.passed(len(frame)))
            # Returns when HTTP/2 flow control has taken it: a client that does not read stops us here.
            await self._call.write(frame)
            self._hosted.bytes_down += len(frame)

    async def _until(self, moment: float) -> None:
        left = moment - self._clock()
        if left > 0:
            await asyncio.sleep(left)
