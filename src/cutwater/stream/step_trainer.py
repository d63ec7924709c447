"""Who trains the server's halves, as the stream sees it: what it is asked, what it answers, how it went."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from cutwater.stream.refusal import RefusedError
from cutwater.train.step import Part, Tensors


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
    """G, one for each expected gradient; kept for a resend, so not to be written to."""
    loss: float
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
    """Of all parts: ``up`` from a part's first frame to its last, ``server`` in its half, ``down``."""
    failure: RefusedError | None
    """Why it did not finish, if it did not."""


class StepTrainer(Protocol):
    """Trains the server's halves of all sessions; called in the server's event loop."""

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        """Forward and backward, and after the last part of a mini-batch the update (eqs. (6), (7)).

        Blocking work belongs into a queue, not here. Called once for each part, in order; where parts
        overlap, perhaps before the one before has returned, which is to be done first all the same. The
        smashed tensors require gradients where they are expected. They may be kept, but not written to: they
        lie in what arrived.
        """

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        """The session is over, one way or another; called once, after its last part has returned."""
