"""What a node sends when it can't do what it was asked to. Light: it needs no torch."""

from flwr.app import ConfigRecord, RecordDict

from cutwater.base.errors import CutwaterError


def failure(error: CutwaterError) -> RecordDict:
    """The reason, and whether the device lacks weights that it was believed to hold."""
    forgot = type(error).__name__ == "ForgottenError"  # whose module needs torch, which this one does not
    return RecordDict({"failure": ConfigRecord({"reason": str(error), "forgot": forgot})})
