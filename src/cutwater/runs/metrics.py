"""``metrics.jsonl``: one line of JSON a round, appended before the round's checkpoint is committed.

So the file is never behind the checkpoint. After a kill it may be ahead of it, or end within a line: resuming
cuts it back to the checkpoint's round, and readers pass over a last line that is torn.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.jsonfile import parse_json, sync_folder
from cutwater.base.schema import read as described
from cutwater.federate.record import Record
from cutwater.runs.confined import read_file


def append(path: str | Path, record: Record) -> None:
    """Add the line of a round, safe on disk when this returns."""
    line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
    try:
        new = not Path(path).exists()
        with Path(path).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(Path(path).parent)
    except OSError as error:
        raise RunError(
            f"{path} can't be written ({error.strerror or error}); the last checkpoint is intact: "
            "make room and resume"
        ) from error


def read(path: str | Path) -> list[Record]:
    """The lines of all rounds; a last line that is torn is passed over, any other damage refused."""
    return [line for line, _ in _whole(Path(path))]


def parse(content: bytes) -> Iterator[tuple[Record | str, int]]:
    """Each line that has an end, or what is wrong with it, and where it ends in the file.

    A last line without an end is still being written, or was when its writer was killed: it does not count.
    """
    end = 0
    for text in content.split(b"\n")[:-1]:
        end += len(text) + 1
        try:
            yield described(Record, parse_json(text, "the line")), end
        except CutwaterError as error:
            yield str(error), end


def gaps(lines: Sequence[Record]) -> str | None:
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


def _whole(path: Path) -> list[tuple[Record, int]]:
    """(line, where it ends in the file) for every whole line; only the very last may be damaged."""
    try:
        content = read_file(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror or error}") from error
    found = []
    for number, (line, end) in enumerate(parse(content), 1):
        if isinstance(line, Record):
            found.append((line, end))
        elif end < len(content):
            raise RunError(f"{path}, line {number} is damaged; mend or remove that line ({line})")
    return found
