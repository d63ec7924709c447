"""Letters: what the two ends of a lease write to each other, exactly once, over connections that may break.

Letters of each direction are numbered from 1 and sent one after the other, in chunks. Whoever receives says
from time to time how far it has come, and at the beginning of every connection; whoever sends goes on from
there, and keeps a letter until all of it has arrived. So no byte is sent twice that was known to have
arrived, and no letter is handed over twice. A letter's head is a frame of its own and holds its SHA-256: with
it, time begins to count.
"""

import hmac
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from cutwater.stream.frames import Frame, FrameKind, seal
from cutwater.stream.refusal import RefusedError, Status, invalid

CHUNK: Final = 1 << 14
"""Bytes of a letter in a frame: so few that a link of 10 kB/s brings one in less than two seconds, and nobody
who sends a letter is taken for silent."""
TOLD: Final = 1 << 20
"""Bytes after which a receiver says how far it has come."""
Clock = Callable[[], float]


class Place(NamedTuple):
    """How far letters have come: bytes of a letter, all before it in full."""

    number: int
    offset: int


class Letter(NamedTuple):
    """A letter that has arrived."""

    number: int
    body: bytes
    seconds: float
    """From its head to its last byte."""
    began: float = 0.0
    """When its head came, by the clock of this end."""
    after: float | None = None
    """Seconds from when the other end was known to have the letter of the same number that was sent to it."""


@dataclass(slots=True)
class _Written:
    number: int
    body: bytes
    digest: bytes
    began: float | None = None


class Outbox:
    """Letters to be sent; one thread or task at a time. With a clock, they are timed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._letters: deque[_Written] = deque()
        self._last = 0
        self._next = 0
        """Bytes of the first letter that were sent over the present connection; its head counts as -1."""
        self._begin = True
        self.took: dict[int, float] = {}
        """Seconds from the head of a letter to hearing that all of it has arrived."""
        self.arrived: dict[int, float] = {}
        """When that was heard."""

    def post(self, body: bytes) -> int:
        """Have a letter sent; its number."""
        self._last += 1
        self._letters.append(_Written(self._last, body, sha256(body).digest()))
        return self._last

    def frame(self) -> bytes | None:
        """What is to be sent next, if anything."""
        if not self._letters:
            return None
        letter = self._letters[0]
        total, start = len(letter.body), self._next
        if self._begin:
            self._begin = False
            if self._clock is not None:
                letter.began = letter.began or self._clock()
            return seal(FrameKind.LETTER, letter.number, total, start, letter.digest, ())
        if start >= total:
            return None  # not until it has arrived
        chunk = memoryview(letter.body)[start : start + CHUNK]
        self._next = start + len(chunk)
        return seal(FrameKind.LETTER, letter.number, total, start, b"", (chunk,))

    def told(self, place: Place, *, opening: bool = False) -> None:
        """The other end says how far it has come; at a connection's opening, sending goes on from there."""
        first = self._letters[0].number if self._letters else self._last + 1
        if not first <= place.number <= self._last + 1 or (place.number > self._last and place.offset):
            raise invalid(f"letter {place.number} is said to be next, but {first} to {self._last + 1} can be")
        while self._letters and self._letters[0].number < place.number:
            self._arrived(self._letters.popleft())
        if opening:
            self._next, self._begin = place.offset, True

    def _arrived(self, letter: _Written) -> None:
        if self._clock is not None and letter.began is not None:
            self.arrived[letter.number] = self._clock()
            self.took[letter.number] = self.arrived[letter.number] - letter.began
        self._next, self._begin = 0, True


class Inbox:
    """Letters that arrive, up to so many bytes each; one thread or task at a time."""

    def __init__(self, most: int, clock: Clock = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._number, self._body = 1, bytearray()
        self._digest: bytes | None = None
        self._total = 0
        self._began: float | None = None
        self._told = 0
        self._headed = False

    def begin_anew(self) -> None:
        """Another connection: a head comes first."""
        self._headed = False

    def feed(self, frame: Frame) -> Letter | None:
        """The letter that a frame completes, if it does."""
        if frame.number != self._number or frame.offset != len(self._body):
            raise invalid(
                f"byte {frame.offset} of letter {frame.number} came, but byte {len(self._body)} of letter "
                f"{self._number} is next"
            )
        if frame.head:
            self._head(frame)
        if not self._headed or frame.total != self._total or len(self._body) + len(frame.part) > self._total:
            raise invalid(f"letter {frame.number} has another length than its head says")
        self._body += frame.part
        return self._complete() if len(self._body) == self._total else None

    @property
    def due(self) -> bool:
        """Whether the other end should hear how far letters have come."""
        return len(self._body) - self._told >= TOLD

    def tell(self) -> bytes:
        """What it hears."""
        self._told = len(self._body)
        return seal(FrameKind.HAVE, self._number, 0, len(self._body), b"", ())

    def _head(self, frame: Frame) -> None:
        digest = bytes(frame.head)
        if frame.total > self._most:
            raise RefusedError(
                Status.RESOURCE_EXHAUSTED,
                f"a letter of {frame.total} bytes is announced, but at most {self._most} are expected",
            )
        if len(digest) != sha256().digest_size or (self._digest is not None and digest != self._digest):
            raise invalid(f"letter {frame.number} has another digest than before")
        self._digest, self._total, self._headed = digest, frame.total, True
        self._began = self._began or self._clock()

    def _complete(self) -> Letter:
        body, digest, began = bytes(self._body), self._digest, self._began
        assert digest is not None
        assert began is not None
        if not hmac.compare_digest(sha256(body).digest(), digest):
            raise invalid(f"letter {self._number} is not what its digest says")
        letter = Letter(self._number, body, self._clock() - began, began)
        self._number += 1
        self._body, self._digest, self._began, self._told = bytearray(), None, None, 0
        self._headed = False
        return letter
