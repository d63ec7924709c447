"""The committed model of a round on disk: safetensors with a checksum, written atomically, the last two kept.

A round that failed leaves the model as it was, and its checkpoint says so: the last two of rounds that did
not fail are kept beside it, however many fail after them.

A reader finds the old checkpoint or the new one, never half of one: the file is written beside its place,
synced and renamed. What is damaged all the same is noticed by its checksum, and the round before it is used.
The newest model of a run, or the best, is found here, too. Nothing is ever unpickled.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from cutwater.base.errors import CutwaterError, FileFormatError, RunError
from cutwater.base.jsonfile import write_atomically
from cutwater.base.kinds import Many, Table, Text, Whole
from cutwater.base.schema import described, read
from cutwater.base.speech import by_file
from cutwater.federate.record import Best
from cutwater.runs.confined import read_file
from cutwater.runs.layout import CHECKPOINTS
from cutwater.train.aggregate import weights_sha256

FORMAT = "cutwater.checkpoint"
VERSION = "2"
KEPT = 2
"""The newest, and the one before it to fall back on; and as many of rounds that did not fail."""
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


@described("the header", FileFormatError, open=True)
@dataclass(frozen=True)
class _Body:
    """What the header of a checkpoint says."""

    round: Annotated[int, Whole(0, 2**53), "the last round that is in the weights"]
    state: Annotated[Mapping[str, Any], Table(), "what else goes on from here"]
    memory: Annotated[tuple[str, ...], Many(Text()), "the names of the aggregator's tensors"] = ()


@dataclass(frozen=True, eq=False)
class Found:
    """The newest checkpoint that is whole."""

    checkpoint: Checkpoint
    notes: tuple[str, ...]
    """A sentence for every newer one that is damaged and was passed over."""


@dataclass(frozen=True, eq=False)
class KeptModel:
    """A model of a run."""

    round: int
    """The last round that is in it."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """As ``load_state_dict`` of the model takes them."""
    best: Best | None = None
    """What it is best by, if it was kept for that."""
    notes: tuple[str, ...] = ()
    """A sentence for every newer checkpoint that is damaged and was passed over."""


def save(folder: str | Path, checkpoint: Checkpoint) -> Path:
    """Commit a checkpoint and drop those that are no longer needed; on failure the old ones stay."""
    path = Path(folder) / f"round-{checkpoint.round:06d}.safetensors"
    _commit(path, checkpoint, f"the checkpoint of round {checkpoint.round}")
    # The round is safe by now: what can't be removed is in nobody's way, and tried again with the next.
    with contextlib.suppress(OSError):
        _clean(Path(folder), checkpoint.round)
    return path


def save_best(folder: str | Path, checkpoint: Checkpoint) -> Path:
    """Put the best model so far in the place of the one before it, as safely as a checkpoint."""
    path = Path(folder) / BEST
    _commit(path, checkpoint, f"the best model, of round {checkpoint.round},")
    return path


def _commit(path: Path, checkpoint: Checkpoint, what: str) -> None:
    try:
        write_atomically(path, _content(checkpoint))
    except FileFormatError as error:
        raise RunError(
            f"{what} can't be saved ({error}); the checkpoint before it is intact: make room and resume"
        ) from error


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


def load_run(folder: str | os.PathLike[str], *, best: bool = False) -> KeptModel:
    """The newest model that a run kept in its folder, or its best one."""
    checkpoints = Path(folder) / CHECKPOINTS
    if best:
        path = checkpoints / BEST
        if not path.exists():
            key = by_file("keep_best in [train]", "keep_best of TrainSettings")
            raise RunError(f"{folder} keeps no best model: {key} would have; use its newest model instead")
        found = load(path)
        told = found.state.get("best")
        return KeptModel(found.round, found.weights, None if told is None else read(Best, told))
    newest = load_newest(checkpoints)
    if newest is None:
        raise RunError(f"{folder} holds no checkpoint: name the folder of a run of which a round is done")
    return KeptModel(newest.checkpoint.round, newest.checkpoint.weights, notes=newest.notes)


def load(path: str | Path) -> Checkpoint:
    """A checkpoint from a file, checked from the first to the last bit."""
    try:
        # Read rather than mapped into memory: a failing disk is then an error, not the end of the process.
        content = read_file(path)
        tensors: dict[str, Tensor] = from_bytes(content)
        header = _metadata(content)
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except RunError as error:  # a folder or a pipe
        raise FileFormatError(str(error)) from error
    except (SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged ({error})") from error
    if (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise FileFormatError(f"{path} is not a checkpoint that this release reads")
    if header.get("sha256") != _digest(header.get("body", ""), tensors):
        raise FileFormatError(f"{path} is damaged (its checksum does not match)")
    # Whoever can write here can make a checksum, too.
    try:
        body = read(_Body, json.loads(header["body"]), "its header")
        memory = {name: tensors.pop(_MEMORY + name) for name in body.memory}
    except (CutwaterError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is no checkpoint of a run ({error})") from error
    except KeyError as error:
        raise FileFormatError(f"{path} is no checkpoint of a run (it lacks {error})") from error
    return Checkpoint(body.round, tensors, body.state, memory)


def _metadata(content: bytes) -> dict[str, str]:
    """The texts in the header of a safetensors file: its length in eight bytes, then JSON."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return found


def _failed(path: Path) -> bool:
    """Whether a checkpoint says that its round failed; one that can't be read is none to keep."""
    if not path.is_file():  # a pipe would be waited for
        return True
    try:
        with path.open("rb") as file:
            length = file.read(8)
            header = _metadata(length + file.read(int.from_bytes(length, "little")))
        return bool(json.loads(header["body"])["state"].get("failed", False))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError):
        return True


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
    there = [path for round_, path in _all(folder) if round_ <= newest]
    kept = {*there[:KEPT], *islice((path for path in there if not _failed(path)), KEPT)}
    older = (path for path in there if path not in kept)
    for path in (*older, *folder.glob(".round-*"), *folder.glob(f".{BEST}.*")):
        if path.is_dir() and not path.is_symlink():  # somebody's, in a checkpoint's place
            continue
        path.unlink(missing_ok=True)
