"""What a node sends when it can't do what it was asked to. Light: it needs no torch."""

from flwr.app import ConfigRecord, Message, RecordDict

from cutwater.base.errors import CutwaterError, EngineError

_MOST = 300
"""Characters of a reason that are passed on."""


class ForgottenError(EngineError):
    """A device lacks weights that the server believes it to hold."""


def failure(error: CutwaterError) -> RecordDict:
    """The reason, and whether the device lacks weights that it was believed to hold."""
    forgot = isinstance(error, ForgottenError)
    return RecordDict({"failure": ConfigRecord({"reason": str(error), "forgot": forgot})})


def failure_of(message: Message) -> str | None:
    """Why a node could not do what it was asked to, as Flower or its app says; None if it could."""
    if message.has_error():
        return str(message.error.reason or "no reason given")[:_MOST]
    return str(message.content["failure"].get("reason"))[:_MOST] if "failure" in message.content else None
