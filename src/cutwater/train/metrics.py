"""``metrics.jsonl``: one line of JSON a round, appended before the round's checkpoint is committed.

So the file is never behind the checkpoint. After a kill it may be ahead of it, or end within a line: resuming
cuts it back to the checkpoint's round, and readers pass over a last line that is torn.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutwater.errors import RunError

FIELDS = (
    "round",
    "virtual_seconds",
    "wall_seconds",
    "loss",
    "accuracy",
    "bytes_up",
    "bytes_down",
    "weights_sha256",
)
"""What every line has; it may have more."""


def append(path: str | Path, row: Mapping[str, Any]) -> None:
    """Add the line of a round, safe on disk when this returns."""
    missing = [name for name in FIELDS if name not in row]
    if missing:
        raise RunError(f"the metrics of a round lack {', '.join(missing)}")
    line = json.dumps(dict(row), allow_nan=False).encode() + b"\n"
    try:
        with Path(path).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(
            f"{path} can't be written ({error.strerror or error}); the last checkpoint is intact: "
            "make room and resume"
        ) from error


def read(path: str | Path) -> list[dict[str, Any]]:
    """The lines of all rounds; a last line that is torn is passed over."""
    return [row for row, _ in _lines(Path(path))]


def cut_back(path: str | Path, round_: int) -> None:
    """Forget every round after this one, and a torn last line, as resuming from its checkpoint needs."""
    target = Path(path)
    if not target.exists():
        return
    end = max((end for row, end in _lines(target) if row["round"] <= round_), default=0)
    try:
        with target.open("r+b") as file:
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"{path} can't be written: {error.strerror or error}") from error


def _lines(path: Path) -> list[tuple[dict[str, Any], int]]:
    """(row, where its line ends in the file) for every whole line."""
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror or error}") from error
    found, end = [], 0
    for number, line in enumerate(lines, 1):
        end += len(line) + 1
        row = _row(line)
        if row is not None:
            found.append((row, end))
        elif number < len(lines) or torn:
            raise RunError(f"{path}, line {number} is damaged; mend or remove that line")
    return found


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("round"), int) else None
