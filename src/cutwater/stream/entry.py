"""Who is let in to a session or a lease: the client that came first, over one connection at a time."""

import asyncio
import hmac
from collections.abc import Callable

from cutwater.stream.refusal import RefusedError, Status, denied
from cutwater.stream.ticket import Claims, Opening

Ending = asyncio.Future[RefusedError]
"""Of a connection: done when it is to end, and why; cancelled when it was lost."""


class Entry:
    """The way in by one ticket; lives in an event loop."""

    def __init__(self, what: str, claims: Claims, issued: float, clock: Callable[[], float]) -> None:
        """``what`` the ticket opens: a session or a lease."""
        self._what, self._seconds, self._clock = what, claims.open_seconds, clock
        self._open_by = issued + claims.open_seconds
        self._nonce, self._attempt = b"", 0
        self.ending: Ending | None = None
        """Of the connection that there is."""

    def check(self, opening: Opening) -> None:
        """Refuse whoever comes too late, is not the one who came first, or says what was said before."""
        if not self._nonce:
            if self._clock() > self._open_by:
                raise denied(f"the ticket was good for {self._seconds:g} s, which are over")
        elif not hmac.compare_digest(self._nonce, opening.nonce):
            raise denied(f"the ticket was used before: it opens one {self._what}")
        if opening.attempt <= self._attempt:
            raise denied(f"opening {opening.attempt} was used before: {self._attempt} came already")

    def bind(self, nonce: bytes, attempt: int) -> None:
        """It is the client's with this nonce; this was its latest connection."""
        self._nonce, self._attempt = nonce, attempt

    def replace(self) -> Ending:
        """Another connection takes the place of the one before."""
        self.dismiss(RefusedError(Status.ABORTED, f"the {self._what} goes on over another connection"))
        self.ending = asyncio.get_running_loop().create_future()
        return self.ending

    def dismiss(self, refusal: RefusedError) -> None:
        """End the connection, if there is one."""
        if self.ending is not None and not self.ending.done():
            self.ending.set_result(refusal)
