"""``metrics.jsonl``: one line of JSON a round, appended before the round's checkpoint is committed.

So the file is never behind the checkpoint. After a kill it may be ahead of it, or end within a line: resuming
cuts it back to the checkpoint's round, and readers pass over a last line that is torn.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.jsonfile import parse_json
from cutwater.runs.confined import read_plain
from cutwater.runs.decode import decode


@dataclass(frozen=True)
class Line:
    """A round as its line tells it (docs/run-folder.md)."""

    round: int
    virtual_seconds: float
    wall_seconds: float
    loss: float | None
    accuracy: float | None
    bytes_up: int
    bytes_down: int
    weights_sha256: str
    test_loss: float | None = None
    planned_seconds: float | None = None
    actual_seconds: float | None = None
    bottleneck: str = ""
    clients: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    failed: str | None = None

    @property
    def deviation(self) -> float | None:
        """How far the round was from its plan; None for one that failed."""
        return None if self.failed else deviation(self.planned_seconds, self.actual_seconds)


FIELDS = tuple(f.name for f in fields(Line) if f.default is MISSING and f.default_factory is MISSING)
"""What every line has; it may have more."""


def deviation(planned: float | None, actual: float | None) -> float | None:
    """How far something was from its plan: actual over planned seconds, less one.

    The plan is what was promised, so it is what is measured against. None where one of them is not known, or
    the plan is no time at all.

    >>> deviation(10.0, 5.0), deviation(10.0, None)
    (-0.5, None)
    """
    found = ratio(actual, planned)
    return None if found is None else found - 1


def ratio(above: float | None, below: float | None) -> float | None:
    """A quotient that can be shown; None where there is none."""
    if above is None or below is None or below <= 0:
        return None
    found = above / below
    return found if math.isfinite(found) else None


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


def read(path: str | Path) -> list[Line]:
    """The lines of all rounds; a last line that is torn is passed over, any other damage refused."""
    return [line for line, _ in _whole(Path(path))]


def parse(content: bytes) -> Iterator[tuple[Line | str, int]]:
    """Each line that has an end, or what is wrong with it, and where it ends in the file.

    A last line without an end is still being written, or was when its writer was killed: it does not count.
    """
    end = 0
    for text in content.split(b"\n")[:-1]:
        end += len(text) + 1
        try:
            yield decode(Line, parse_json(text, "the line"), "the line"), end
        except CutwaterError as error:
            yield str(error), end


def gaps(lines: Sequence[Line]) -> str | None:
    """A sentence where the lines are not those of rounds 1, 2, … in order; None where they are."""
    numbers = [line.round for line in lines]
    if numbers == list(range(1, len(numbers) + 1)):
        return None
    return (
        f"metrics.jsonl has {len(numbers)} lines for the {max(numbers)} rounds so far, not one for each in "
        "order: traffic and lost updates are of the lines that are there"
    )


def cut_back(path: str | Path, round_: int) -> None:
    """Forget every round after this one, and a torn last line, as resuming from its checkpoint needs."""
    target = Path(path)
    if not target.exists():
        return
    end = max((end for line, end in _whole(target) if line.round <= round_), default=0)
    try:
        with target.open("r+b") as file:
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"{path} can't be written: {error.strerror or error}") from error


def _whole(path: Path) -> list[tuple[Line, int]]:
    """(line, where it ends in the file) for every whole line; only the very last may be damaged."""
    try:
        content = read_plain(os.open(path, os.O_RDONLY | os.O_NONBLOCK), str(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror or error}") from error
    found = []
    for number, (line, end) in enumerate(parse(content), 1):
        if isinstance(line, Line):
            found.append((line, end))
        elif end < len(content):
            raise RunError(f"{path}, line {number} is damaged; mend or remove that line ({line})")
    return found
