"""What a round took by real stopwatches, beyond its phases: messages, bytes, shares as delivered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import HUGE, Flag, ForeignText, Many, Named, Number, Whole
from cutwater.base.schema import Nested, described
from cutwater.plan.latency import SECONDS

COUNT = Whole(0, 2**53)
"""Up to the largest whole number that every reader of JSON has."""
AMOUNT = Number(0, HUGE)
"""Of FLOPS or bytes, and parts of a whole."""
TEXT = ForeignText()
SCORE = Number(-HUGE, HUGE)
"""Of a model: a loss, an accuracy, a metric."""


@described("a move of the cut", FileFormatError, open=True)
@dataclass(frozen=True)
class Moved:
    """A session's cut that moved while it ran."""

    step: Annotated[int, COUNT, "the mini-batches that were done before it"]
    cut: Annotated[int, COUNT, "where the session was cut until then"]
    to: Annotated[int, COUNT, "where it is cut from then on"]


@described("what was measured of a client", FileFormatError, open=True)
@dataclass(frozen=True)
class Measured:
    """One client's session, beyond its phases."""

    name: Annotated[str, TEXT, "the client's name"]
    wall_seconds: Annotated[float, SECONDS, "from sending the order to having the reply"]
    session_seconds: Annotated[float, SECONDS, "the session itself, as the client measured it"]
    message_seconds: Annotated[
        float,
        SECONDS,
        "the rest: the model's way there and back; by message, Flower's polling and a new process, too",
    ]
    setup_seconds: Annotated[float, SECONDS, "of that, what the app itself took to get ready"]
    bytes_up: Annotated[int, COUNT, "what crossed its link"]
    bytes_down: Annotated[int, COUNT, "the same in the other direction"]
    promised_share: Annotated[float, AMOUNT, "f_k^S of the plan in FLOPS"]
    delivered_share: Annotated[
        float | None,
        AMOUNT,
        "FLOPs over the seconds that the session asked for them; null where none is delivered",
    ]
    promised_part: Annotated[
        float | None, AMOUNT, "f_k / Σf, of the compute that the server did while the session had work for it"
    ] = None
    delivered_part: Annotated[
        float | None, AMOUNT, "what the session got of it: more than promised where others left theirs unused"
    ] = None
    promised_rate_up: Annotated[
        float | None, AMOUNT, "what the plan gives it of the uplink, in bits per second; null if not shared"
    ] = None
    delivered_rate_up: Annotated[
        float | None,
        AMOUNT,
        "as it arrived at the server while parts were on their way; null where none took more than a frame",
    ] = None
    promised_rate_down: Annotated[float | None, AMOUNT, "the same of the downlink"] = None
    delivered_rate_down: Annotated[float | None, AMOUNT, "as the server sent it"] = None
    model_timed: Annotated[
        bool, Flag(), "whether the model's transfer was timed; if not, its seconds are those of the plan"
    ] = True
    emulated: Annotated[
        bool, Flag(), "whether device and link were slowed down to what the scenario says of them"
    ] = False
    moves: Annotated[
        tuple[Moved, ...], Many(Nested(Moved)), "of its cut while the session ran, see below"
    ] = ()


@described("a change of shares", FileFormatError, open=True)
@dataclass(frozen=True)
class Replanned:
    """The server's shares, and where it pays the cuts of sessions, planned anew while a round ran."""

    at_seconds: Annotated[float, SECONDS, "when, from the round's orders"]
    why: Annotated[str, TEXT, "who was lost, late or slower than believed"]
    kept_seconds: Annotated[
        float, SECONDS, "when the sessions that are left would have been done with the shares they had"
    ]
    planned_seconds: Annotated[float, SECONDS, "when they should be done with the new ones"]
    shares: Annotated[Mapping[str, float], Named(AMOUNT), "the new f_k^S in FLOPS, by client"]
    cuts: Annotated[
        Mapping[str, int],
        Named(COUNT),
        "the new cuts of those that are to move, by client; `moves` of each has what came of it",
    ] = field(default_factory=dict)


@described("what was measured of the round", FileFormatError, open=True)
@dataclass(frozen=True)
class RoundMeasured:
    """measured/00001.json of a run folder."""

    round: Annotated[int, COUNT, "which it is"]
    wall_seconds: Annotated[
        float, SECONDS, "from its orders to its aggregate, as a clock on the wall shows it"
    ]
    clients: Annotated[tuple[Measured, ...], Many(Nested(Measured)), "those whose updates count, see below"]
    enrolment_seconds: Annotated[
        float, SECONDS, "before that, until the nodes were known, had their leases and had the model built"
    ] = 0.0
    replanned: Annotated[
        tuple[Replanned, ...],
        Many(Nested(Replanned)),
        "shares that were planned anew while it ran, see below",
    ] = ()
    promised_flops: Annotated[
        float | None,
        AMOUNT,
        "FLOPs that the run's part of a server which several runs share entitled it to, of all that the "
        "server did while the run had work for it; null where it has the server to itself",
    ] = None
    delivered_flops: Annotated[
        float | None, AMOUNT, "what it got: more than promised where others left theirs unused"
    ] = None
