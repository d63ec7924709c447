"""Weights that do not learn, kept at a device from one round to the next: known by digest, and checked.

A file holds the raw bytes of one tensor and has its digest for a name, which is of name, type, shape and
bytes. What no run has asked for in a month is removed.
"""

import time
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.base.folders import cache_folder
from cutwater.base.jsonfile import write_atomically
from cutwater.flower.failures import ForgottenError
from cutwater.train.aggregate import weights_sha256
from cutwater.train.expected import from_raw, to_raw

_UNUSED = 30 * 24 * 3600.0
"""Seconds after which a file that nobody asked for is removed."""


class FixedWeights:
    """The tensors that a device holds."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "weights"

    def keep(self, name: str, tensor: Tensor, digest: str) -> bool:
        """Take in a tensor that was sent, if it is the one that was announced; whether it is held now."""
        if weights_sha256({name: tensor}) != digest:
            raise EngineError(f"the weights {name!r} arrived with another digest than the order has")
        try:
            write_atomically(self.folder / digest, to_raw(tensor))
        except FileFormatError:
            return False  # a device whose disk is full trains all the same, and is sent the weights again
        return True

    def find(self, name: str, like: Tensor, digest: str) -> Tensor:
        """A tensor that is held, checked from the first to the last bit, or a ForgottenError."""
        path = self.folder / digest
        try:
            content = path.read_bytes()
            path.touch()
        except OSError:
            content = b""
        if len(content) == like.numel() * like.element_size():
            tensor = from_raw(content, like)
            if weights_sha256({name: tensor}) == digest:
                return tensor
            path.unlink(missing_ok=True)
        raise ForgottenError(f"the device no longer holds the weights {name!r}, which are sent only once")

    def remove_unused(self, now: float | None = None) -> None:
        """Make room: what was not asked for in a month goes."""
        now = time.time() if now is None else now
        with suppress(OSError):  # there may be no folder
            for path in self.folder.iterdir():
                with suppress(OSError):
                    if path.is_file() and now - path.stat().st_mtime > _UNUSED:
                        path.unlink()
