"""What a round took by real stopwatches, beyond its phases: messages, bytes, shares as delivered."""

from dataclasses import dataclass
from typing import Annotated, Any

from cutwater.base.errors import FileFormatError
from cutwater.base.jsonfile import document
from cutwater.base.kinds import HUGE, Flag, ForeignText, Many, Number, Whole
from cutwater.base.schema import Nested, described, table
from cutwater.plan.latency import SECONDS

FORMAT = "cutwater.measured"
VERSION = 1

COUNT = Whole(0, 2**53)
"""Up to the largest whole number that every reader of JSON has."""
AMOUNT = Number(0, HUGE)
"""Of FLOPS or bytes, and parts of a whole."""


@described("what was measured of a client", FileFormatError, open=True)
@dataclass(frozen=True)
class Measured:
    """One client's session, beyond its phases."""

    name: Annotated[str, ForeignText(), "the client's name"]
    wall_seconds: Annotated[float, SECONDS, "from sending the order to having the reply"]
    session_seconds: Annotated[float, SECONDS, "the session itself, as the client measured it"]
    message_seconds: Annotated[
        float, SECONDS, "the rest: Flower's messages, starting the app, building the model"
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
    model_timed: Annotated[
        bool, Flag(), "whether the model's transfer was timed; if not, its seconds are those of the plan"
    ] = True
    emulated: Annotated[
        bool, Flag(), "whether device and link were slowed down to what the scenario says of them"
    ] = False


@described("what was measured of the round", FileFormatError, open=True)
@dataclass(frozen=True)
class RoundMeasured:
    """measured/00001.json of a run folder."""

    round: Annotated[int, COUNT, "which it is"]
    wall_seconds: Annotated[
        float, SECONDS, "of the whole round, as a clock on the wall shows it, messages included"
    ]
    clients: Annotated[tuple[Measured, ...], Many(Nested(Measured)), "those whose updates count, see below"]

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        return document(FORMAT, VERSION, table(self))
