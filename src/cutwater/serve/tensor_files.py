"""Tensors that one process leaves for another: safetensors in a file that nobody but its owner can read."""

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.runs.checkpoint import separate


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
