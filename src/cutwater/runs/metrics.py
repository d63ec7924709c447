"""``metrics.jsonl``: one line of JSON a round, appended before the round's checkpoint is committed.

So the file is never behind the checkpoint. After a kill it may be ahead of it, or end within a line: resuming
cuts it back to the checkpoint's round, and readers pass over a last line that is torn.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutwater.base.errors import RunError

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
_NUMBERS = ("virtual_seconds", "wall_seconds", "bytes_up", "bytes_down")
_MAYBE_NUMBERS = ("loss", "test_loss", "accuracy", "planned_seconds", "actual_seconds")


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


def gaps(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """A sentence where the lines are not those of rounds 1, 2, … in order; None where they are."""
    numbers = [row["round"] for row in rows]
    if numbers == list(range(1, len(numbers) + 1)):
        return None
    return (
        f"{path} has {len(numbers)} lines for the {max(numbers)} rounds so far, not one for each in order: "
        "traffic and lost updates are of the lines that are there"
    )


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
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and _is_whole(row) else None


def _is_whole(row: Mapping[str, Any]) -> bool:
    """Whether a line has what every line has, and that and the rest are of their types."""
    return (
        type(row.get("round")) is int
        and isinstance(row.get("weights_sha256"), str)
        and all(_is_number(row.get(name)) for name in _NUMBERS)
        and all(name in row for name in FIELDS)
        and all(row.get(name) is None or _is_number(row[name]) for name in _MAYBE_NUMBERS)
        and isinstance(row.get("lost", {}), dict)
    )


def _is_number(value: object) -> bool:
    # Python reads NaN and Infinity from JSON, and whole numbers that no float holds.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
