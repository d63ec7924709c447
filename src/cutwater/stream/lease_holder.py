"""A lease at the device: letters come and go over a connection that is opened again whenever it is lost."""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc

from cutwater.stream.call_end import CallEnd, LostError
from cutwater.stream.connection import channel_to
from cutwater.stream.frames import FrameKind, seal, unseal
from cutwater.stream.letters import Inbox, Letter, Outbox, Place
from cutwater.stream.limits import LEASE, Limits
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.ticket import Ticket, opening

_OVER: Final = object()
_BEAT: Final = seal(FrameKind.BEAT, 0, 0, 0, b"", ())


class LeaseHolder:
    """Holds a lease from the beginning of its with block to the end; letters are read in the caller's thread.

    One thread keeps the connection; gRPC's own sends what there is to send.
    """

    def __init__(
        self,
        ticket: Ticket,
        *,
        client: str,
        most: int,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ticket, self._client, self._clock = ticket, client, clock
        self._limits = limits or Limits()
        self._inbox, self._outbox = Inbox(most, clock), Outbox()
        self._letters: queue.SimpleQueue[Letter | object | Exception] = queue.SimpleQueue()
        self._turn = threading.Condition()
        self._said: list[bytes] = []
        self._nonce, self.openings = secrets.token_bytes(16), 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="cutwater-lease", daemon=True)
        self._heard = clock()
        self._call: grpc.Call | None = None

    def __enter__(self) -> "LeaseHolder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def letters(self) -> Iterator[bytes]:
        """Letters as they come, until the lease is over; raises if it broke for good."""
        while True:
            found = self._letters.get()
            if isinstance(found, Exception):
                raise found
            if not isinstance(found, Letter):
                return
            yield found.body

    def post(self, body: bytes) -> None:
        """Have a letter sent."""
        with self._turn:
            self._outbox.post(body)
            self._turn.notify_all()

    def close(self) -> None:
        """Give the lease up."""
        self._closed.set()
        self._wake()
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _keep(self) -> None:
        """Connections, one after the other."""
        waits, until = self._limits.waits(), self._clock() + self._limits.patience
        try:
            while not self._closed.is_set():
                before = self._heard
                try:
                    if self._connection():
                        self._letters.put(_OVER)
                        return
                except LostError as lost:
                    if self._heard > before:
                        waits, until = self._limits.waits(), self._clock() + self._limits.patience
                    if self._clock() >= until:
                        reason = f"{self._ticket.claims.address} can't be reached: {lost}"
                        raise RefusedError(Status.UNAVAILABLE, reason) from lost
                self._closed.wait(next(waits))
        except Exception as error:
            self._letters.put(error)

    def _connection(self) -> bool:
        """Talk over one connection; whether the server has ended the lease."""
        self.openings += 1
        with self._turn:
            self._inbox.begin_anew()
            self._said = [self._inbox.tell()]
        metadata = opening(self._ticket, self._client, self._nonce, self.openings, 0)
        talk = _Talk()
        hush = partial(self._hush, talk)
        with channel_to(self._ticket, self._limits) as channel:
            # gRPC takes the frames in a thread of its own.
            call = channel.stream_stream(LEASE)(iter(partial(self._next, talk), None), metadata=metadata)
            self._call = call
            if self._closed.is_set() or not call.add_callback(hush):
                hush()
            watch = _Watch(call.cancel, self._limits, self._clock)
            try:
                return self._read(call, talk, watch)
            finally:
                watch.close()
                hush()
                call.cancel()

    def _read(self, call: "grpc.Call", talk: "_Talk", watch: "_Watch") -> bool:
        try:
            for data in call:
                if self._closed.is_set():
                    return False
                watch.heard()
                self._heard = self._clock()
                if self._take(data, talk):
                    return True
        except grpc.RpcError:
            raise CallEnd.of(call).verdict() from None
        raise LostError("the server closed the connection")

    def _take(self, data: bytes, talk: "_Talk") -> bool:
        frame = unseal(data)
        with self._turn:
            if frame.kind is FrameKind.HAVE:
                self._outbox.told(Place(frame.number, frame.offset), opening=not talk.opened)
                talk.opened = True
            elif frame.kind is FrameKind.BEAT:
                self._said.append(seal(FrameKind.BEAT, frame.number, 0, 0, b"", ()))
            elif frame.kind is FrameKind.LETTER:
                letter = self._inbox.feed(frame)
                if letter is not None:
                    self._letters.put(letter)
                if letter is not None or self._inbox.due:
                    self._said.append(self._inbox.tell())
            elif frame.kind is FrameKind.LEAVE:
                return True
            else:
                raise invalid(f"a {frame.kind.name} is not expected here")
            self._turn.notify_all()
        return False

    def _next(self, talk: "_Talk") -> bytes | None:
        """What is to be sent next over a connection, when there is something; None once it is over.

        A sign of life, if nothing else: what the server sends may be queued for seconds on its way here, and
        so would be the answers to its own.
        """
        until = self._clock() + self._limits.beat
        with self._turn:
            while not talk.closed and not self._closed.is_set():
                if self._said:
                    return self._said.pop(0)
                frame = self._outbox.frame() if talk.opened else None
                if frame is not None:
                    return frame
                left = until - self._clock()
                if left <= 0:
                    return _BEAT
                self._turn.wait(left)
        return None

    def _hush(self, talk: "_Talk") -> None:
        """There is nobody to take frames of this connection."""
        talk.closed = True
        self._wake()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify_all()


@dataclass(slots=True)
class _Talk:
    """What is said over one connection."""

    opened: bool = False
    """Whether the server has said how far letters have come."""
    closed: bool = False


class _Watch:
    """Ends a connection over which nothing has come for a while.

    A thread of its own, because the one that sends may be held up by the very connection. Until the first
    word, a connection has the time of its handshake: where that takes longer than silence may last, each
    would otherwise be given up just before it opens.
    """

    def __init__(self, end: Callable[[], object], limits: Limits, clock: Callable[[], float]) -> None:
        self._end, self._limits, self._clock = end, limits, clock
        self._silence = max(limits.silence, limits.handshake)
        self._heard, self._over = clock(), threading.Event()
        threading.Thread(target=self._look, name="cutwater-lease-watch", daemon=True).start()

    def heard(self) -> None:
        """Something has come."""
        self._heard, self._silence = self._clock(), self._limits.silence

    def close(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(self._limits.silence / 10):
            if self._clock() - self._heard > self._silence:
                self._end()
                return
