"""The device's end of the activation stream: blocking, for a ClientApp that is an ordinary function.

:class:`StreamClient` plays the server of :func:`cutwater.train.step.train_step`: the same training loop runs
against a half in this process or one across a network. A lost connection is opened again and the session goes
on; a refusal is raised.
"""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from torch import Tensor

from cutwater.engine.stream.expectation import Expectation
from cutwater.engine.stream.frames import Kind
from cutwater.engine.stream.limits import METHOD, VERDICT, Limits
from cutwater.engine.stream.messages import UNUSED, Assembler, Message, Packed, Packer
from cutwater.engine.stream.refusal import RefusedError, Status, invalid
from cutwater.engine.stream.tensors import Memory
from cutwater.engine.stream.ticket import Metadata, Ticket, opening
from cutwater.errors import EngineError
from cutwater.train.step import Reply, Tensors

T = TypeVar("T")
_BROKEN = {"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED"}
"""What gRPC calls a connection that broke; with our verdict attached, the same names are final."""
_LOOK = 0.2
"""Seconds after which one that waits to send looks whether the connection is still there."""
_MISTRUST = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification", "Peer name")
"""Words of gRPC's when a server shows another certificate than the ticket's: no use to try again."""


@dataclass(frozen=True)
class StreamReply(Reply):
    """A step's gradients and loss, with what it took."""

    measures: Mapping[str, float] = field(default_factory=dict)
    """What the server's half measured; ``server_seconds`` is its whole stay there."""
    seconds: float = 0.0
    """From handing the step over to having the gradients."""


class _LostError(Exception):
    """The connection is gone; the session need not be."""


class _Line:
    """One connection: a channel, a call on it, and a queue that the call sends from."""

    def __init__(self, ticket: Ticket, limits: Limits, metadata: Metadata, seconds: float) -> None:
        credentials = grpc.ssl_channel_credentials(root_certificates=ticket.certificate.encode())
        options = limits.client(ticket.claims.server_name)
        self._frame_bytes = limits.frame_bytes
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._receipts: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._under_way = False
        self._channel = grpc.secure_channel(ticket.claims.address, credentials, options)
        method = self._channel.stream_stream(METHOD)
        self._call: Any = method(self._frames(), timeout=seconds, metadata=metadata)
        self.received = 0
        """Steps that have arrived at the server, as far as we know."""

    def send(self, packed: Packed) -> None:
        """Hand the frames over as gRPC takes them; if it no longer does, :meth:`receive` knows why.

        Each is made while the one before is on its way, and none further ahead: more of them would only push
        each other out of the processor's cache.
        """
        for frame in packed.frames(self._frame_bytes):
            if not self.settle():
                return
            self._outbox.put(frame)
            self._under_way = True

    def settle(self) -> bool:
        """Wait until gRPC has taken the frame that is under way, if one is; False if the connection ended.

        No answer comes before all has been sent: to ask for it earlier would only keep the interpreter from
        sending.
        """
        while self._under_way:
            try:
                self._receipts.get(timeout=_LOOK)
                self._under_way = False
            except queue.Empty:
                if not self._call.is_active():
                    return False
        return True

    def _frames(self) -> Iterator[bytes]:
        while (frame := self._outbox.get()) is not None:
            yield frame
            self._receipts.put(None)  # gRPC asks for the next, so it has taken this one

    def receive(self, assembler: Assembler) -> Message:
        try:
            for data in self._call:
                message = assembler.feed(data)
                if message is not None:
                    return message
        except grpc.RpcError as error:
            raise _verdict(error) from error
        raise _LostError("the server closed the connection")

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()


def _verdict(error: Any) -> Exception:
    """What an RpcError means: the server's refusal, or a connection that broke."""
    status, details = error.code().name, error.details() or ""
    ours = any(name == VERDICT for name, _ in error.trailing_metadata() or ())
    if any(words in details for words in _MISTRUST):
        return RefusedError(Status.UNAUTHENTICATED, f"the server is not the one of the ticket: {details}")
    if not ours and status in _BROKEN:
        return _LostError(details)
    known = status if status in Status.__members__ else "INTERNAL"
    return RefusedError(Status[known], details)


class StreamClient:
    """A session of one client; one thread at a time."""

    def __init__(
        self, ticket: Ticket, expect: Expectation, *, client: str, limits: Limits | None = None
    ) -> None:
        self._ticket, self._expect, self._client = ticket, expect, client
        self._limits = limits or Limits()
        self._nonce, self._attempt, self._have = secrets.token_bytes(16), 0, 0
        self._line: _Line | None = None
        self._closed = threading.Event()
        self._deadline = time.monotonic() + ticket.claims.session_seconds
        self._packer = Packer(expect.at_server())
        self._memory = Memory()
        self._assemblers: dict[int, Assembler] = {}

    def __enter__(self) -> "StreamClient":
        try:
            self._persist(self._connected, min(self._deadline, time.monotonic() + self._limits.connect))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def openings(self) -> int:
        """Connections it took so far."""
        return self._attempt

    def step(self, step: int, smashed: Tensors, labels: Tensor) -> StreamReply:
        """Stages 2 to 5 of a mini-batch: S and labels up, G and the loss down. Steps count from 0."""
        if step != self._have:
            raise EngineError(f"step is {step}, but {self._have} is next: steps come in order, each once")
        started = time.monotonic()
        packed = self._packer.pack(Kind.STEP, step, (*smashed, labels))
        reply = self._exchange(packed, labels.shape[0], Kind.REPLY)
        self._have += 1
        loss, device = reply.scalars.pop("loss", None), labels.device
        if loss is None:
            raise invalid(f"the reply to step {step} has no loss")
        places = range(len(reply.tensors))
        return StreamReply(
            unused=tuple(place for place in places if reply.scalars.pop(f"{UNUSED}{place}", 0.0)),
            gradients=reply.tensors if device.type == "cpu" else tuple(t.to(device) for t in reply.tensors),
            loss=loss,
            measures=reply.scalars,
            seconds=time.monotonic() - started,
        )

    def finish(self) -> int:
        """Tell the server that this was all; the number of steps that both ends have counted."""
        packed = self._packer.pack(Kind.FINISH, self._have)
        return self._exchange(packed, 1, Kind.FINISHED).step

    def close(self) -> None:
        """Close the connection; unfinished, the session stays open at the server until its deadline."""
        self._closed.set()
        self._hang_up()

    def _exchange(self, packed: Packed, rows: int, want: Kind) -> Message:
        def once() -> Message:
            line = self._connected()
            if packed.kind is not Kind.STEP or line.received == packed.step:
                line.send(packed)
                line.settle()
                line.received = packed.step + 1
            return line.receive(self._assembler(rows))

        reply = self._persist(once, self._deadline)
        if reply.kind is not want or reply.step != packed.step:
            raise invalid(f"a {want.name} to step {packed.step} was due, but a {reply.kind.name} came")
        return reply

    def _persist(self, attempt: Callable[[], T], until: float) -> T:
        wait = self._limits.backoff
        while True:
            try:
                return attempt()
            except _LostError as lost:
                self._hang_up()
                left = until - time.monotonic()
                if left <= 0 or self._closed.wait(min(wait * (0.5 + secrets.randbelow(1000) / 1000), left)):
                    reason = f"{self._ticket.claims.address} can't be reached: {lost}"
                    raise RefusedError(Status.UNAVAILABLE, reason) from lost
                wait = min(2 * wait, 1.0)
            except BaseException:
                self._hang_up()
                raise

    def _connected(self) -> _Line:
        if self._line is not None:
            return self._line
        if self._closed.is_set():
            raise EngineError("the stream's client is closed: use it inside its with block")
        left = self._deadline - time.monotonic()
        if left <= 0:
            reason = f"the session's {self._ticket.claims.session_seconds:g} s are over"
            raise RefusedError(Status.DEADLINE_EXCEEDED, reason)
        self._attempt += 1
        metadata = opening(self._ticket, self._client, self._nonce, self._attempt, self._have)
        self._line = line = _Line(self._ticket, self._limits, metadata, left)
        if self._closed.is_set():  # meanwhile, by another thread
            self._hang_up()
            raise EngineError("the stream's client is closed: use it inside its with block")
        welcome = line.receive(self._assembler(1))
        if welcome.kind is not Kind.WELCOME or welcome.step not in (self._have, self._have + 1):
            raise invalid(
                f"the server says that {welcome.step} steps have arrived, but {self._have} were answered"
            )
        line.received = welcome.step
        return line

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
        # Half a message of a lost connection must not meet the next one's.
        self._assemblers.clear()

    def _assembler(self, rows: int) -> Assembler:
        if rows not in self._assemblers:
            self._assemblers[rows] = Assembler(self._expect.at_client(rows), self._memory)
        return self._assemblers[rows]
