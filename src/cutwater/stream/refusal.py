"""Why an end of the stream says no: a status that both ends understand and one sentence."""

from enum import Enum

from cutwater.base.errors import EngineError


class Status(Enum):
    """The gRPC status codes in use, by name, so that the checks know nothing of gRPC."""

    INVALID_ARGUMENT = "what was sent is malformed or does not fit the plan"
    RESOURCE_EXHAUSTED = "what was sent is larger than the plan allows"
    UNAUTHENTICATED = "the opening carries no valid ticket"
    PERMISSION_DENIED = "the ticket is valid, but not for this"
    FAILED_PRECONDITION = "the part or count does not follow what came before"
    DEADLINE_EXCEEDED = "the session's time is over"
    ABORTED = "the session was ended by the server's half or by the round"
    UNAVAILABLE = "the other end can't be reached"
    INTERNAL = "the server's half failed"


class RefusedError(EngineError):
    """A frame, message, ticket or session that was refused, and on what grounds."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason} ({self.status.name})"


def invalid(reason: str) -> RefusedError:
    """What is malformed or does not fit the plan: the commonest refusal."""
    return RefusedError(Status.INVALID_ARGUMENT, reason)


def precondition(reason: str) -> RefusedError:
    """What does not follow from what came before."""
    return RefusedError(Status.FAILED_PRECONDITION, reason)


def denied(reason: str) -> RefusedError:
    """A ticket that is not for this."""
    return RefusedError(Status.PERMISSION_DENIED, reason)
