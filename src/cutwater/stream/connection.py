"""One connection of a device: a channel, and a call on it that the training thread drives by itself.

gRPC's blocking interface gives a stream two threads, one that sends and one that receives, and hands every
message over to them and back. A step then waits for four threads to wake up and for the interpreter to change
hands as often, which takes longer than all else that is done for it in Python. What that interface is built
on has a call without threads, for whose events the caller waits; gRPC uses it for calls of one message, and
keeps it to itself. So all that knows of it is here.
"""

import threading
import time
from typing import Any, Final, NamedTuple

import grpc
from grpc._cython import cygrpc

from cutwater.base.errors import EngineError
from cutwater.stream.limits import METHOD, VERDICT, Limits
from cutwater.stream.messages import Assembler, Message, Packed
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.ticket import Metadata, Ticket

_BROKEN = {"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED"}
"""What gRPC calls a connection that broke; with our verdict attached, the same names are final."""
_MISTRUST = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification", "Peer name")
"""Words of gRPC's when a server shows another certificate than the ticket's: no use to try again."""
_STATUSES = {code.value[0]: code.name for code in grpc.StatusCode}
_PLAIN: Final = 0
"""No flags."""
_SENT = cygrpc.OperationType.send_message
_RECEIVED = cygrpc.OperationType.receive_message
_ENDED = cygrpc.OperationType.receive_status_on_client


class LostError(Exception):
    """The connection is gone; the session need not be."""


class _End(NamedTuple):
    """How a call ended."""

    status: str
    details: str
    metadata: Metadata


class Line:
    """A connection; one thread at a time, but any may close it."""

    def __init__(self, ticket: Ticket, limits: Limits, metadata: Metadata, seconds: float) -> None:
        credentials = grpc.ssl_channel_credentials(root_certificates=ticket.certificate.encode())
        options = limits.client(ticket.claims.server_name)
        self._channel = grpc.secure_channel(ticket.claims.address, credentials, options)
        self._frame_bytes = limits.frame_bytes
        self._driving = threading.Lock()
        self._sending = self._asked = False
        self._message: bytes | None = None
        self._end: _End | None = None
        first = (
            cygrpc.SendInitialMetadataOperation(metadata, _PLAIN),
            cygrpc.ReceiveInitialMetadataOperation(_PLAIN),
            cygrpc.ReceiveStatusOnClientOperation(_PLAIN),
        )
        try:
            self._call: Any = self._channel._channel.segregated_call(
                cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
                METHOD.encode(),
                None,
                time.time() + seconds,
                metadata,
                None,
                tuple(((operation,), None) for operation in first),
            )
        except (AttributeError, TypeError) as error:
            self._channel.close()
            raise EngineError(
                f"grpcio {grpc.__version__} opens streams in another way than this release knows ({error}): "
                "install one from 1.70 to 1.85"
            ) from error
        self._due = len(first)
        """Operations that were begun and have not ended: while there are none, no event will ever come."""
        self.received = 0
        """Steps that have arrived at the server, as far as we know."""

    def send(self, packed: Packed) -> None:
        """Hand the frames over as gRPC takes them; if it no longer does, :meth:`receive` knows why.

        Each is made while the one before is on its way, and none further ahead: more of them would only push
        each other out of the processor's cache.
        """
        with self._driving:
            for frame in packed.frames(self._frame_bytes):
                while self._sending and self._end is None:
                    self._wait()
                if self._end is not None:
                    return
                self._begin(cygrpc.SendMessageOperation(frame, _PLAIN))
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
        if self._end is None:
            self._begin(cygrpc.ReceiveMessageOperation(_PLAIN))
            self._asked = True
        while self._asked:
            self._wait()
        frame, self._message = self._message, None
        if frame is not None:
            return frame
        while self._end is None:
            self._wait()
        raise _verdict(self._end)

    def _begin(self, operation: Any) -> None:
        self._call.operate((operation,), None)
        self._due += 1

    def _wait(self) -> None:
        """Wait for the next event."""
        try:
            event = self._call.next_event()
        except BaseException:  # a signal's: gRPC has given the call up
            self._due, self._asked = 0, False
            self._end = _End("CANCELLED", "interrupted", ())
            raise
        self._due -= 1
        (operation,) = event.batch_operations
        kind = operation.type()
        if kind == _SENT:
            self._sending = False
        elif kind == _RECEIVED:
            self._asked, self._message = False, operation.message()
        elif kind == _ENDED:
            status = _STATUSES.get(operation.code(), "UNKNOWN")
            self._end = _End(status, operation.details() or "", operation.trailing_metadata() or ())


def _verdict(end: _End) -> Exception:
    """What the end of a call means: the server's refusal, or a connection that broke."""
    status, details, metadata = end
    ours = any(name == VERDICT for name, _ in metadata)
    if any(words in details for words in _MISTRUST):
        return RefusedError(Status.UNAUTHENTICATED, f"the server is not the one of the ticket: {details}")
    if status == "OK":
        return LostError("the server closed the connection")
    if not ours and status in _BROKEN:
        return LostError(details)
    known = status if status in Status.__members__ else "INTERNAL"
    return RefusedError(Status[known], details)
