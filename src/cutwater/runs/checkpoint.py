"""The committed model of a round on disk: safetensors with a checksum, written atomically, the last two kept.

A reader finds the old checkpoint or the new one, never half of one: the file is written beside its place,
synced and renamed. What is damaged all the same is noticed by its checksum, and the round before it is used.
Nothing is ever unpickled.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from cutwater.base.errors import FileFormatError, RunError
from cutwater.base.jsonfile import write_atomically
from cutwater.train.aggregate import weights_sha256

FORMAT = "cutwater.checkpoint"
VERSION = "2"
KEPT = 2
"""The newest, and the one before it to fall back on."""
BEST = "best.safetensors"
"""The best model so far, where a run keeps it: a checkpoint without what only going on needs."""
_MEMORY = "memory/"
"""What the names of an aggregator's tensors begin with in the file; weights have their own."""
_NAME = re.compile(r"round-(\d{6,})\.safetensors")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a run needs to go on after a round. There is no random state: draws follow from the seed."""

    round: int
    """The last round that is in the weights; 0 is the initial model."""
    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]
    """What else goes on from here, as JSON: ``virtual_seconds`` so far, estimates, who holds what …"""
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    """What the aggregator remembers."""

    @property
    def weights_sha256(self) -> str:
        """The hash of the weights, as in ``metrics.jsonl``."""
        return weights_sha256(self.weights)


@dataclass(frozen=True, eq=False)
class Found:
    """The newest checkpoint that is whole."""

    checkpoint: Checkpoint
    notes: tuple[str, ...]
    """A sentence for every newer one that is damaged and was passed over."""


def save(folder: str | Path, checkpoint: Checkpoint) -> Path:
    """Commit a checkpoint and drop those that are no longer needed; on failure the old ones stay."""
    path = Path(folder) / f"round-{checkpoint.round:06d}.safetensors"
    try:
        write_atomically(path, _content(checkpoint))
    except FileFormatError as error:
        raise RunError(
            f"the checkpoint of round {checkpoint.round} can't be saved ({error}); the one before it is "
            "intact: make room and resume"
        ) from error
    _clean(Path(folder), checkpoint.round)
    return path


def save_best(folder: str | Path, checkpoint: Checkpoint) -> Path:
    """Put the best model so far in the place of the one before it, as safely as a checkpoint."""
    path = Path(folder) / BEST
    try:
        write_atomically(path, _content(checkpoint))
    except FileFormatError as error:
        raise RunError(
            f"the best model, of round {checkpoint.round}, can't be saved ({error}); the checkpoint before "
            "it is intact: make room and resume"
        ) from error
    return path


def load_best(folder: str | Path) -> Checkpoint | None:
    """The best model so far, or None where none was kept."""
    path = Path(folder) / BEST
    return load(path) if path.exists() else None


def load_newest(folder: str | Path) -> Found | None:
    """The newest whole checkpoint of a folder, or None where there is none yet."""
    notes: list[str] = []
    for round_, path in _all(Path(folder)):
        try:
            checkpoint = load(path)
            if checkpoint.round != round_:
                raise FileFormatError(f"{path} holds round {checkpoint.round}")
            return Found(checkpoint, tuple(notes))
        except FileFormatError as error:
            notes.append(f"{error}; falling back to the checkpoint before it")
    if notes:
        raise RunError(f"no checkpoint in {folder} is whole: {'; '.join(notes)}")
    return None


def load(path: str | Path) -> Checkpoint:
    """A checkpoint from a file, checked from the first to the last bit."""
    try:
        # Read rather than mapped into memory: a failing disk is then an error, not the end of the process.
        content = Path(path).read_bytes()
        tensors: dict[str, Tensor] = from_bytes(content)
        header = _metadata(content)
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise FileFormatError(f"{path} is damaged ({error})") from error
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise FileFormatError(f"{path} is not a checkpoint that this release reads")
    if header.get("sha256") != _digest(header.get("body", ""), tensors):
        raise FileFormatError(f"{path} is damaged (its checksum does not match)")
    body = json.loads(header["body"])
    memory = {name: tensors.pop(_MEMORY + name) for name in body["memory"]}
    return Checkpoint(body["round"], tensors, body["state"], memory)


def _metadata(content: bytes) -> dict[str, str]:
    """The texts in the header of a safetensors file: its length in eight bytes, then JSON."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return found


def _content(checkpoint: Checkpoint) -> bytes:
    told = {"round": checkpoint.round, "state": checkpoint.state, "memory": sorted(checkpoint.memory)}
    body = json.dumps(told, allow_nan=False, sort_keys=True)
    tensors = {**checkpoint.weights, **{_MEMORY + name: t for name, t in checkpoint.memory.items()}}
    header = {"format": FORMAT, "version": VERSION, "body": body, "sha256": _digest(body, tensors)}
    content: bytes = to_bytes(separate(tensors), header)
    return content


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share no memory (tied weights do), which safetensors insists on."""
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        apart[name] = plain.clone() if storage in seen else plain
        seen.add(storage)
    return apart


def _digest(body: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{body}\n{weights_sha256(tensors)}".encode()).hexdigest()


def _all(folder: Path) -> Iterator[tuple[int, Path]]:
    """(round, path) of all checkpoints, the newest first."""
    if not folder.is_dir():
        return
    found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    yield from sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def _clean(folder: Path, newest: int) -> None:
    """Remove old checkpoints, and what a kill in the middle of writing left behind."""
    older = [path for round_, path in _all(folder) if round_ <= newest][KEPT:]
    for path in (*older, *folder.glob(".round-*"), *folder.glob(f".{BEST}.*")):
        path.unlink(missing_ok=True)
