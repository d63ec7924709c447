"""A grid that bears with a SuperLink which is too busy for a moment.

With very many nodes on a small machine, Flower's SuperLink answers a call now and then with a server error,
as its database is locked. Flower tries again where nobody answered, but not then, and the run would be over.
A message has its content's digest for a number, so one that is pushed again is the same message.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

log = logging.getLogger(__name__)
PATIENCE: Final = 60.0
"""Seconds after which a SuperLink that knows nothing but errors is believed."""
PAUSE: Final = 1.0
"""Seconds before a call is tried again."""
Found = TypeVar("Found")


class PatientGrid:
    """What rounds need of Flower's Grid, each call tried again where the SuperLink failed at it."""

    def __init__(self, grid: Grid, patience: float = PATIENCE, pause: float = PAUSE) -> None:
        self._grid, self._patience, self._pause = grid, patience, pause

    def get_nodes(self) -> Iterable[Any]:
        """The nodes that are connected."""
        return self._try(self._grid.get_nodes)

    def push_messages(self, messages: Sequence[Message]) -> Iterable[str]:
        """Send messages; their numbers."""
        return self._try(lambda: self._grid.push_messages(messages))

    def pull_messages(self, message_ids: Sequence[str]) -> Iterable[Message]:
        """The replies to messages, as far as they are there."""
        return self._try(lambda: list(self._grid.pull_messages(message_ids)))

    def _try(self, call: Callable[[], Found]) -> Found:
        until = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except Exception as error:
                if not _is_busy(error) or time.monotonic() >= until:
                    raise
                log.info("the SuperLink failed at a call, which is tried again: %s", error)
            time.sleep(self._pause)


def _is_busy(error: Exception) -> bool:
    """Whether this is a server's own error, 500 to 599, as any HTTP library tells of it."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 500 <= status <= 599
