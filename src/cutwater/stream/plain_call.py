"""A connection of a device by gRPC's public, blocking interface: slower than ``fast_call``, with any grpcio.

gRPC takes what is to be sent from an iterator, in a thread of its own, and hands over what arrives from
another.
"""

import threading

import grpc

from cutwater.stream.call_end import CallEnd
from cutwater.stream.limits import METHOD, Limits
from cutwater.stream.messages import Assembler, Message
from cutwater.stream.pace import Frames
from cutwater.stream.ticket import Metadata


class PlainCall:
    """See :class:`cutwater.stream.connection.Connection`."""

    def __init__(self, channel: grpc.Channel, limits: Limits, metadata: Metadata, seconds: float) -> None:
        self._channel, self._frame_bytes = channel, limits.frame_bytes
        self._outbox = _Outbox()
        frames = iter(self._outbox.take, None)
        self._call = channel.stream_stream(METHOD)(frames, metadata=metadata, timeout=seconds)
        if not self._call.add_callback(self._outbox.close):
            self._outbox.close()
        self.received = 0

    def send(self, frames: Frames, *, alone: bool = False) -> None:
        """Hand the frames over as gRPC takes them; if it no longer does, :meth:`receive` knows why."""
        for frame in frames(self._frame_bytes):
            if not self._outbox.put(frame):
                return

    def receive(self, assembler: Assembler) -> Message:
        """The next message, when it is there."""
        while True:
            message = assembler.feed(self._frame())
            if message is not None:
                return message

    def close(self) -> None:
        """Hang up; whoever waits for a message is told that the connection is lost."""
        self._outbox.close()
        self._call.cancel()
        self._channel.close()

    def _frame(self) -> bytes:
        try:
            frame: bytes = next(self._call)
            return frame
        except StopIteration:
            end = CallEnd("OK", "", ())
        except grpc.RpcError:
            end = CallEnd.of(self._call)
        raise end.verdict()


class _Outbox:
    """The frame that gRPC takes next: none is made further ahead than one is taken."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._frame: bytes | None = None
        self._closed = False

    def put(self, frame: bytes) -> bool:
        """Hand a frame over, once the one before was taken; whether there is anybody to take it."""
        with self._turn:
            self._turn.wait_for(lambda: self._frame is None or self._closed)
            if self._closed:
                return False
            self._frame = frame
            self._turn.notify_all()
            return True

    def close(self) -> None:
        """There is nothing more to take, or nobody to take it."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def take(self) -> bytes | None:
        """The frame that is next, when it is there; None if there is none any more."""
        with self._turn:
            self._turn.wait_for(lambda: self._frame is not None or self._closed)
            frame, self._frame = self._frame, None
            self._turn.notify_all()
            return None if self._closed else frame
