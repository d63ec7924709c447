"""A connection of a device, driven by the thread that trains: gRPC's own core, without its threads.

gRPC's blocking interface gives a stream two threads, one that sends and one that receives, and hands every
message over to them and back. A step then waits for four threads to wake up and for the interpreter to change
hands as often, which takes longer than all else that is done for it in Python. What that interface is built
on has a call without threads, for whose events the caller waits; gRPC uses it for calls of one message, and
keeps it to itself. So all that knows of it is here. Where grpcio is built in another way, to import this
raises an AttributeError or ImportError; what only shows in use is an :class:`OtherGrpcError`, after which
``FastCall.works`` is False. ``connection`` does without it in either case.
"""

import threading
import time
from typing import Any, ClassVar, Final

import grpc
from grpc._cython import cygrpc

from cutwater.stream.call_end import CallEnd, LostError
from cutwater.stream.limits import METHOD, Limits
from cutwater.stream.messages import Assembler, Message
from cutwater.stream.pace import Frames
from cutwater.stream.ticket import Metadata

_STATUSES = {code.value[0]: code.name for code in grpc.StatusCode}
_PLAIN: Final = 0
"""No flags."""
_SENT = cygrpc.OperationType.send_message
_RECEIVED = cygrpc.OperationType.receive_message
_ENDED = cygrpc.OperationType.receive_status_on_client
_OTHER = (AttributeError, TypeError, ValueError)
"""What Python raises where something is built otherwise than it is used."""

if not hasattr(cygrpc.Channel, "segregated_call"):
    raise ImportError(f"grpcio {grpc.__version__} has no call without threads")


class OtherGrpcError(LostError):
    """This grpcio is built in another way than is known here: the session goes on over another connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"grpcio {grpc.__version__} is not driven as it is known here: {error}")
        FastCall.works = False


class FastCall:
    """See :class:`cutwater.stream.connection.Connection`."""

    works: ClassVar[bool] = True
    """Until it is seen that it does not."""

    def __init__(self, channel: grpc.Channel, limits: Limits, metadata: Metadata, seconds: float) -> None:
        self._channel, self._frame_bytes = channel, limits.frame_bytes
        self._driving = threading.Lock()
        self._sending = self._asked = False
        self._message: bytes | None = None
        self._end: CallEnd | None = None
        try:
            first = (
                cygrpc.SendInitialMetadataOperation(metadata, _PLAIN),
                cygrpc.ReceiveInitialMetadataOperation(_PLAIN),
                cygrpc.ReceiveStatusOnClientOperation(_PLAIN),
            )
            self._call: Any = channel._channel.segregated_call(
                cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
                METHOD.encode(),
                None,
                time.time() + seconds,
                metadata,
                None,
                tuple(((operation,), None) for operation in first),
            )
        except _OTHER as error:
            raise OtherGrpcError(error) from error
        self._due = len(first)
        """Batches of operations that were begun and not ended: one event is to come for each."""
        self.received = 0

    def send(self, frames: Frames, *, alone: bool = False) -> None:
        """Hand the frames over as gRPC takes them; if it no longer does, :meth:`receive` knows why.

        Each is made while the one before is on its way, and none further ahead: more of them would only push
        each other out of the processor's cache. That a frame which goes alone is out, and that its answer has
        come, is one event, which wakes us up once.
        """
        with self._driving:
            for frame in frames(self._frame_bytes):
                while self._sending and self._end is None:
                    self._wait()
                if self._end is not None:
                    return
                sent = cygrpc.SendMessageOperation(frame, _PLAIN)
                if alone:
                    self._begin(sent, cygrpc.ReceiveMessageOperation(_PLAIN))
                    self._asked = True
                else:
                    self._begin(sent)
                self._sending = True

    def receive(self, assembler: Assembler) -> Message:
        """The next message, when it is there."""
        with self._driving:
            while True:
                message = assembler.feed(self._frame())
                if message is not None:
                    return message

    def close(self) -> None:
        """Hang up; whoever waits for a message is told that the connection is lost."""
        self._call.cancel(grpc.StatusCode.CANCELLED.value[0], "hung up")
        with self._driving:
            while self._due:
                self._wait()
            self._channel.close()

    def _frame(self) -> bytes:
        if self._end is None and not self._asked:
            self._begin(cygrpc.ReceiveMessageOperation(_PLAIN))
            self._asked = True
        while self._asked:
            self._wait()
        frame, self._message = self._message, None
        if frame is not None:
            return frame
        while self._end is None:
            self._wait()
        raise self._end.verdict()

    def _begin(self, *operations: Any) -> None:
        self._call.operate(operations, None)
        self._due += 1

    def _wait(self) -> None:
        """Wait for the next event."""
        try:
            event = self._call.next_event()
        except BaseException:  # a signal's: gRPC has given the call up
            self._give_up("interrupted")
            raise
        self._due -= 1
        try:
            self._note(event)
        except _OTHER as error:
            self._give_up(str(error))
            raise OtherGrpcError(error) from error

    def _give_up(self, why: str) -> None:
        self._due, self._asked = 0, False
        self._end = CallEnd("CANCELLED", why, ())

    def _note(self, event: Any) -> None:
        if not event.batch_operations:  # another kind of grpcio, which would have us wait for ever
            raise ValueError("gRPC tells of an event without operations")
        for operation in event.batch_operations:
            kind = operation.type()
            if kind == _SENT:
                self._sending = False
            elif kind == _RECEIVED:
                self._asked, self._message = False, operation.message()
            elif kind == _ENDED:
                status = _STATUSES.get(operation.code(), "UNKNOWN")
                self._end = CallEnd(status, operation.details() or "", operation.trailing_metadata() or ())
