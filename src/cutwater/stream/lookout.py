"""Whether the way to the server is there: tells a partition that is over from a server that takes its time.

TCP tries what was lost again after pauses that double, so that half a minute after the network is back
nothing may have moved yet. While nothing comes, a second connection is tried now and then. If that could not
be made and then can, the first is given up and the session goes on over a new one, which takes milliseconds.
"""

import socket
import threading
import time
from collections.abc import Callable

QUIET = 3.0
"""Seconds without a word from the server after which the way is looked at."""
EVERY = 1.5
"""Seconds between two looks, and that one may take."""


class Lookout:
    """Looks at the way to an address from a thread of its own, until it is closed."""

    def __init__(
        self,
        address: str,
        heard: Callable[[], float],
        back: Callable[[], None],
        *,
        quiet: float = QUIET,
        every: float = EVERY,
    ) -> None:
        """``heard`` tells when something last came, ``back`` is called when a partition is over."""
        host, _, port = address.rpartition(":")
        self._where = (host.strip("[]"), int(port))
        self._heard, self._back, self._quiet, self._every = heard, back, quiet, every
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cutwater-lookout", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no further."""
        self._closed.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        cut = False
        while not self._closed.wait(self._every):
            if time.monotonic() - self._heard() < self._quiet:
                cut = False
            elif not self._reaches():
                cut = True
            elif cut:
                cut = False
                self._back()

    def _reaches(self) -> bool:
        try:
            socket.create_connection(self._where, self._every).close()
        except OSError:
            return False
        return True
