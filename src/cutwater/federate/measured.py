"""What a round took by real stopwatches, beyond its phases: messages, bytes, shares as delivered."""

from dataclasses import asdict, dataclass

from cutwater.base.jsonfile import document

FORMAT = "cutwater.measured"
VERSION = 1


@dataclass(frozen=True)
class Measured:
    """One client's session, beyond its phases."""

    name: str
    wall_seconds: float
    """From sending the order to having the reply."""
    session_seconds: float
    """The session itself, as the client measured it."""
    message_seconds: float
    """The rest: Flower's messages, starting the app, building the model."""
    setup_seconds: float
    """Of that, what the app itself took to get ready."""
    bytes_up: int
    bytes_down: int
    promised_share: float
    """f^S of the plan, in FLOPS."""
    delivered_share: float | None
    """FLOPs over the seconds that the session asked for them."""
    promised_part: float | None = None
    """f_k / Σf, of the compute that the server did while the session had work for it."""
    delivered_part: float | None = None
    """What the session got of it: more than promised where others left theirs unused."""
    model_timed: bool = True
    """Whether the model's transfer was; if not, its seconds are those of the plan."""
    emulated: bool = False
    """Whether device and link were slowed down to what the scenario says of them."""


@dataclass(frozen=True)
class RoundMeasured:
    """measured/00001.json of a run folder."""

    round: int
    wall_seconds: float
    """Of the whole round, as a clock on the wall shows it."""
    clients: tuple[Measured, ...]

    @property
    def emulated(self) -> bool:
        """Whether devices and links were emulated."""
        return any(client.emulated for client in self.clients)

    def to_json(self) -> dict[str, object]:
        """The versioned JSON document."""
        body = {
            "round": self.round,
            "emulated": self.emulated,
            "wall_seconds": self.wall_seconds,
            "clients": [asdict(client) for client in self.clients],
        }
        return document(FORMAT, VERSION, body)
