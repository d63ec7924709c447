"""A move of a session's cut: what crosses for it, and what both ends expect from then on.

The server says in the reply to the last part of a mini-batch which cut is next. The client answers with a
MOVE before anything else, which counts as a part: it is numbered with them, takes effect when it has arrived
in full, its answer is kept, and either is sent again if it got lost. So a move happens on both sides or on
none, wherever a connection breaks.
"""

from dataclasses import dataclass
from typing import Final

import torch

from cutwater.stream.expectation import Expectation, Gate
from cutwater.stream.frames import FrameKind
from cutwater.stream.tensors import Form

TO: Final = "move"
"""A reply says by this number which cut is next."""
_LAYERS: Final = "layers"


@dataclass(frozen=True, slots=True)
class Move:
    """A cut that a session moves to."""

    start: int
    """The cut that it has until then."""
    cut: int
    expect: Expectation
    """What crosses from then on."""
    up: int
    """Bytes of the layers that the server gains, at most; 0 if it gains none."""
    down: int
    """The same of the client."""

    def at_server(self, rows: int) -> dict[FrameKind, Gate]:
        """What a client may send that was told of the move."""
        return {FrameKind.MOVE: _gate(self.up), FrameKind.FINISH: Gate(), FrameKind.PING: Gate()}

    def at_client(self, rows: int) -> dict[FrameKind, Gate]:
        """What the server may send to a client that has asked for it."""
        return {FrameKind.WELCOME: Gate(), FrameKind.MOVED: _gate(self.down), FrameKind.PONG: Gate()}


def _gate(most: int) -> Gate:
    form = Form(_LAYERS, torch.uint8, (most,), None, codec=_LAYERS, at_most=True)
    return Gate((form,) if most else ())
