"""Who trains the server's halves, as the stream sees it: what it is asked, what it answers, how it went."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from cutwater.federate.measured import Moved
from cutwater.stream.refusal import RefusedError
from cutwater.train.kept_side import SideState
from cutwater.train.step import Part, Tensors
from cutwater.train.three_parts import Back


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Which session a part belongs to."""

    id: str
    run: str
    round: int
    client: str
    cut: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a trainer makes of a part."""

    gradients: Tensors
    """G, one for each expected gradient, or the output of the server's layers on the way to a tail; kept for
    a resend, so not to be written to."""
    loss: float = 0.0
    """Where labels go up."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """What the client should know besides: seconds of a stage, say."""
    unused: tuple[int, ...] = ()
    """Places of gradients that are zero because the loss does not depend on what they are gradients of."""
    rest: Callable[[], object] | None = None
    """What can wait until the reply is out: called then, but in any case before the end, and before the next
    part is handed in unless that was already."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """How a session went."""

    session: SessionInfo
    parts: int
    """Parts of mini-batches that took effect."""
    steps: int
    """Mini-batches whose last part did."""
    samples: int
    tensors_up: int
    """Bytes of the tensors of these parts as they crossed, coded where they were."""
    tensors_down: int
    bytes_up: int
    """All that crossed, resends and what surrounds tensors included."""
    bytes_down: int
    openings: int
    """Connections it took; 0 if the client never came, 1 if nothing was lost."""
    seconds: Mapping[str, float]
    """Of all parts: ``up`` from a part's first frame to its last, ``server`` in its half, ``down``; from its
    first connection, ``stepped`` to the last part that took effect and, once it is done, ``session``."""
    failure: RefusedError | None
    """Why it did not finish, if it did not."""
    norm: float | None = None
    """What the gradients of the last mini-batch came to, where they are clipped by it."""
    timed_up: int = 0
    """Bytes that arrived in the seconds ``up``: all of a part but its first frame, which begins them."""
    timed_down: int = 0
    """Bytes that were sent in the seconds ``down``."""
    coming: tuple[int, float] = (0, 0.0)
    """The same of a message that is still on its way up: bytes, and the seconds it has taken so far."""
    silent: float = 0.0
    """Seconds since the server has last had a part of it, of a session that goes on; 0 while it has one."""
    finished: bool = False
    """Whether its client has said that it is done."""
    kept_bytes: int = 0
    """Bytes of the rows that the server kept to the end, where a row goes up once."""
    moves: tuple[Moved, ...] = ()
    """Of its cut, in order; ``session`` has the last."""

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Bits per second up and down while something was on its way; None where none was timed."""
        seconds = (self.seconds.get("up", 0.0), self.seconds.get("down", 0.0))
        pairs = zip((self.timed_up, self.timed_down), seconds, strict=True)
        up, down = (8 * size / taken if size and taken > 0 else None for size, taken in pairs)
        return up, down


class StepTrainer(Protocol):
    """Trains the server's halves of all sessions; called in the server's event loop."""

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        """Forward and backward, and after the last part of a mini-batch the update (eqs. (6), (7)).

        Blocking work belongs into a queue, not here. Called once for each part, in order; where parts
        overlap, perhaps before the one before has returned, which is to be done first all the same. The
        smashed tensors require gradients where they are expected. They may be kept, but not written to: they
        lie in what arrived.
        """

    async def forward(self, session: SessionInfo, part: Part, smashed: Tensors) -> StepResult:
        """Where labels stay at the client: the output of the server's layers, whose gradients come next."""

    async def backward(self, session: SessionInfo, part: Part, back: Back, rows: int) -> StepResult:
        """From the gradients of that output to those of the smashed data of so many samples, and the update
        after the last part of a mini-batch."""

    async def move(
        self, session: SessionInfo, cut: int, layers: Tensor | None, norm: float | None
    ) -> Tensor | None:
        """Have the session at another cut from now on, between two mini-batches: take the bytes of the layers
        that the half gains, or return those of the layers that it loses.

        ``norm`` is what :meth:`step` is told with the first part of a mini-batch.
        """

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        """The session is over, one way or another; called once, after its last part has returned."""


class Keeper(Protocol):
    """Whose halves can be written down and put back; called in the server's event loop."""

    async def snapshot(self, session: SessionInfo) -> SideState | None:
        """The half as it is, with nothing left to do; its tensors hold until the next part is handed in.

        None if it can't be written down.
        """

    async def restore(self, session: SessionInfo, snapshot: SideState) -> None:
        """Have the session's half, which has seen no part yet, as it was."""
