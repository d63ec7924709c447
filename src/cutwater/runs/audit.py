"""Predicted against measured: what a run folder says of every round, client and phase."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError, RunError
from cutwater.base.jsonfile import check_document, document, read_json

FORMAT = "cutwater.audit"
VERSION = 1


@dataclass(frozen=True)
class ClientAudit:
    """One client in one round."""

    name: str
    cut: int
    mode: str
    outcome: str
    predicted: Mapping[str, float]
    """Seconds by phase, as planned."""
    measured: Mapping[str, float]
    """Seconds by phase, as measured."""
    predicted_seconds: float
    measured_seconds: float
    promised_share: float
    """f^S of the plan in FLOPS."""
    delivered_share: float | None
    """FLOPs over the seconds that the session asked for them."""
    promised_part: float | None
    """Of the server's compute while the session had work for it."""
    delivered_part: float | None
    message_seconds: float | None
    """What Flower's messages and starting the app took on top."""
    model_timed: bool | None
    """Whether the model's transfer was measured; if not, it is counted as planned."""


@dataclass(frozen=True)
class RoundAudit:
    """One round."""

    round: int
    planner: str
    failed: str | None
    emulated: bool | None
    """Whether devices and links were emulated; None where nothing was measured beyond the phases."""
    predicted_seconds: float
    measured_seconds: float
    wall_seconds: float | None
    """From handing out the orders to the last update that counts, messages included."""
    clients: tuple[ClientAudit, ...]

    @property
    def deviation(self) -> float:
        """Measured over predicted seconds of the round, less one."""
        return self.measured_seconds / self.predicted_seconds - 1 if self.predicted_seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {**asdict(self), "deviation": self.deviation}


def audit(folder: str | Path) -> tuple[RoundAudit, ...]:
    """All rounds of a run."""
    path = Path(folder)
    if not (path / "run.json").exists():
        raise RunError(f"{path} holds no run: name the folder that a run was kept in")
    files = sorted((path / "rounds").glob("*.json"))
    if not files:
        raise RunError(f"{path} has no finished round yet")
    return tuple(_round(file, path / "measured" / file.name) for file in files)


def audit_json(rounds: tuple[RoundAudit, ...]) -> dict[str, Any]:
    """The versioned JSON document of an audit."""
    return document(FORMAT, VERSION, {"rounds": [each.to_json() for each in rounds]})


def _round(file: Path, beside: Path) -> RoundAudit:
    body = check_document(read_json(file), "cutwater.round", 1, str(file))
    extra: dict[str, Any] = {"clients": []}
    if beside.exists():
        extra = check_document(read_json(beside), "cutwater.measured", 1, str(beside))
    try:
        more = {client["name"]: client for client in extra["clients"]}
        return RoundAudit(
            round=body["round"],
            planner=body["planner"],
            failed=body["failed"],
            emulated=extra.get("emulated"),
            predicted_seconds=body["planned_seconds"],
            measured_seconds=body["actual_seconds"],
            wall_seconds=extra.get("wall_seconds"),
            clients=tuple(_client(client, more.get(client["name"], {})) for client in body["clients"]),
        )
    except (KeyError, TypeError) as error:
        raise FileFormatError(f"{file} lacks or misspells a field: {error}") from error


def _client(client: Mapping[str, Any], more: Mapping[str, Any]) -> ClientAudit:
    return ClientAudit(
        name=client["name"],
        cut=client["cut"],
        mode=client["mode"],
        outcome=client["outcome"],
        predicted=client["planned"],
        measured=client["actual"],
        predicted_seconds=client["planned_seconds"],
        measured_seconds=client["actual_seconds"],
        promised_share=client["share"],
        delivered_share=client["delivered_share"],
        promised_part=more.get("promised_part"),
        delivered_part=more.get("delivered_part"),
        message_seconds=more.get("message_seconds"),
        model_timed=more.get("model_timed"),
    )
