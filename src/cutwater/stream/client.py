"""The device's end of the activation stream: blocking, for a ClientApp that is an ordinary function.

:class:`StreamClient` plays the server of :func:`cutwater.train.step.train_step`: the same training loop runs
against a half in this process or one across a network. A lost connection is opened again and the session goes
on; a refusal is raised.
"""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.stream.call_end import LostError
from cutwater.stream.connection import Connection, connect
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import Limits
from cutwater.stream.messages import UNUSED, Assembler, Message, Packed, Packer
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.tensors import Memory
from cutwater.stream.ticket import Ticket, opening
from cutwater.train.step import Reply, Tensors

T = TypeVar("T")


@dataclass(frozen=True)
class StreamReply(Reply):
    """A step's gradients and loss, with what it took."""

    measures: Mapping[str, float] = field(default_factory=dict)
    """What the server's half measured; ``server_seconds`` is its whole stay there."""
    seconds: float = 0.0
    """From handing the step over to having the gradients."""


class StreamClient:
    """A session of one client; one thread at a time."""

    def __init__(
        self, ticket: Ticket, expect: Expectation, *, client: str, limits: Limits | None = None
    ) -> None:
        self._ticket, self._expect, self._client = ticket, expect, client
        self._limits = limits or Limits()
        self._nonce, self._attempt, self._have = secrets.token_bytes(16), 0, 0
        self._connection: Connection | None = None
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
        started, here = time.monotonic(), labels.is_cpu
        packed = self._packer.pack(FrameKind.STEP, step, (*smashed, labels))
        reply = self._exchange(packed, labels.shape[0], FrameKind.REPLY)
        self._have += 1
        loss = reply.scalars.pop("loss", None)
        if loss is None:
            raise invalid(f"the reply to step {step} has no loss")
        places = range(len(reply.tensors))
        return StreamReply(
            unused=tuple(place for place in places if reply.scalars.pop(f"{UNUSED}{place}", 0.0)),
            gradients=reply.tensors if here else tuple(t.to(labels.device) for t in reply.tensors),
            loss=loss,
            measures=reply.scalars,
            seconds=time.monotonic() - started,
        )

    def finish(self) -> int:
        """Tell the server that this was all; the number of steps that both ends have counted."""
        packed = self._packer.pack(FrameKind.FINISH, self._have)
        return self._exchange(packed, 1, FrameKind.FINISHED).step

    def close(self) -> None:
        """Close the connection; unfinished, the session stays open at the server until its deadline."""
        self._closed.set()
        self._hang_up()

    def _exchange(self, packed: Packed, rows: int, want: FrameKind) -> Message:
        def once() -> Message:
            connection, assembler = self._connected(), self._assembler(rows)
            if packed.kind is not FrameKind.STEP or connection.received == packed.step:
                connection.send(packed)
                connection.received = packed.step + 1
            assembler.make_room()
            return connection.receive(assembler)

        reply = self._persist(once, self._deadline)
        if reply.kind is not want or reply.step != packed.step:
            raise invalid(f"a {want.name} to step {packed.step} was due, but a {reply.kind.name} came")
        return reply

    def _persist(self, attempt: Callable[[], T], until: float) -> T:
        wait = self._limits.backoff
        while True:
            try:
                return attempt()
            except LostError as lost:
                self._hang_up()
                left = until - time.monotonic()
                if left <= 0 or self._closed.wait(min(wait * (0.5 + secrets.randbelow(1000) / 1000), left)):
                    reason = f"{self._ticket.claims.address} can't be reached: {lost}"
                    raise RefusedError(Status.UNAVAILABLE, reason) from lost
                wait = min(2 * wait, 1.0)
            except BaseException:
                self._hang_up()
                raise

    def _connected(self) -> Connection:
        if self._connection is not None:
            return self._connection
        if self._closed.is_set():
            raise EngineError("the stream's client is closed: use it inside its with block")
        left = self._deadline - time.monotonic()
        if left <= 0:
            reason = f"the session's {self._ticket.claims.session_seconds:g} s are over"
            raise RefusedError(Status.DEADLINE_EXCEEDED, reason)
        self._attempt += 1
        metadata = opening(self._ticket, self._client, self._nonce, self._attempt, self._have)
        self._connection = connection = connect(self._ticket, self._limits, metadata, left)
        if self._closed.is_set():  # meanwhile, by another thread
            self._hang_up()
            raise EngineError("the stream's client is closed: use it inside its with block")
        welcome = connection.receive(self._assembler(1))
        if welcome.kind is not FrameKind.WELCOME or welcome.step not in (self._have, self._have + 1):
            raise invalid(
                f"the server says that {welcome.step} steps have arrived, but {self._have} were answered"
            )
        connection.received = welcome.step
        return connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        # Half a message of a lost connection must not meet the next one's.
        self._assemblers.clear()

    def _assembler(self, rows: int) -> Assembler:
        if rows not in self._assemblers:
            self._assemblers[rows] = Assembler(self._expect.at_client(rows), self._memory)
        return self._assemblers[rows]
