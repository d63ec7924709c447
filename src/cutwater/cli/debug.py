"""Whether mistakes are told with their traceback: by --debug of a command, or CUTWATER_DEBUG=1."""

import os
from typing import Any

_asked = [False]


def on(_context: Any, _option: Any, wanted: bool) -> None:
    """What --debug does."""
    _asked[0] = _asked[0] or wanted


def off() -> None:
    """Before a command, nobody has asked."""
    _asked[0] = False


def is_on() -> bool:
    """Whether somebody asked for tracebacks."""
    return _asked[0] or os.environ.get("CUTWATER_DEBUG", "0") not in ("", "0")
