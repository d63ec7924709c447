"""What a process of sessions and the one that started it tell each other: JSON, and tensors in files.

Files are safetensors that nobody but their owner can read.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.federate.measured import Moved
from cutwater.runs.checkpoint import separate
from cutwater.serve.hosting import SessionClock, Trained
from cutwater.serve.shares import Delivery
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import SessionInfo, SessionRecord
from cutwater.train.session import State


def record_to_json(record: SessionRecord) -> dict[str, Any]:
    """How a session went."""
    failure = record.failure
    told = None if failure is None else [failure.status.name, failure.reason]
    return {**asdict(replace(record, failure=None)), "failure": told}


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
    told = asdict(replace(trained, state={}))
    del told["state"]
    return told


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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write them, in place of what is there."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(to_bytes(separate(tensors)))
    except OSError as error:
        raise EngineError(
            f"weights can't be written to {path.parent} ({error.strerror or error}): make room there, or set "
            "TMPDIR to a folder that has some"
        ) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """What was written."""
    try:
        # Read rather than mapped into memory: a failing disk is then an error, not the end of the process.
        found: dict[str, Tensor] = from_bytes(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise EngineError(f"weights in {path} can't be read: {error}") from error
    return found
