"""What a process of sessions and the one that started it tell each other, as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cutwater.federate.measured import Moved
from cutwater.serve.hosting import SessionClock, Trained
from cutwater.serve.shares import Delivery
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import SessionInfo, SessionRecord
from cutwater.train.session import State


def record_to_json(record: SessionRecord) -> dict[str, Any]:
    """How a session went."""
    failure = record.failure
    told = {name: getattr(record, name) for name in record.__slots__}
    return {
        **told,
        "session": asdict(record.session),
        "seconds": dict(record.seconds),
        "failure": None if failure is None else [failure.status.name, failure.reason],
        "moves": [asdict(each) for each in record.moves],
    }


def record_from_json(told: Mapping[str, Any]) -> SessionRecord:
    """The same again."""
    failure = told["failure"]
    return SessionRecord(
        **{
            **told,
            "session": SessionInfo(**told["session"]),
            "failure": None if failure is None else RefusedError(Status[failure[0]], failure[1]),
            "moves": tuple(Moved(**each) for each in told["moves"]),
            "coming": tuple(told["coming"]),
        }
    )


def trained_to_json(trained: Trained) -> dict[str, Any]:
    """What a session left, but for its weights."""
    plain = {name: value for name, value in vars(trained).items() if name != "state"}
    moves = [asdict(each) for each in trained.moves]
    return {**plain, "delivery": asdict(trained.delivery), "clock": asdict(trained.clock), "moves": moves}


def trained_from_json(told: Mapping[str, Any], state: State) -> Trained:
    """The same again, with them."""
    up, down = told["rates"]
    return Trained(
        **{
            **told,
            "state": state,
            "delivery": Delivery(**told["delivery"]),
            "clock": SessionClock(**told["clock"]),
            "rates": (up, down),
            "moves": tuple(Moved(**each) for each in told["moves"]),
        }
    )
