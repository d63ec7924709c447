"""The one reader of run folders (docs/run-folder.md): half-written, copied, damaged, or someone else's.

A report must open while a run goes on and after it was killed, so what is damaged is left out and noted,
never guessed. Every value is of its type, and all text can be shown as it is.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cutwater.base.errors import CutwaterError, FileFormatError, RunError
from cutwater.base.schema import read, read_all
from cutwater.base.text import shown
from cutwater.federate.measured import Measured, Replanned, RoundMeasured
from cutwater.federate.record import ClientRound, KeptRound, Record
from cutwater.profile.values import Profile
from cutwater.runs import layout
from cutwater.runs.confined import Folder, plain
from cutwater.runs.layout import Info
from cutwater.runs.metrics import gaps, parse

T = TypeVar("T")
Made = TypeVar("Made", KeptRound, RoundMeasured)
MOST_NOTES = 20
MOST_TEXT = 200_000
"""Characters of a scenario that are shown."""


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it."""

    folder: Folder
    info: Info
    lines: tuple[Record, ...]
    """In the order of the rounds. Where a resumed run wrote a round twice, the later line holds."""
    numbers: tuple[int, ...]
    """The rounds that :meth:`round` has."""
    notes: tuple[str, ...]
    """What is missing or damaged, in sentences."""

    def undamaged(self) -> "Run":
        """This run, or a sentence where anything is missing: for numbers that must not have gaps."""
        if self.notes:
            raise RunError(f"{shown(str(self.folder.root))} is damaged: {self.notes[0]}")
        return self

    def round(self, number: int) -> KeptRound:
        """A round client by client and what was measured beside it, or one sentence on why it can't be read.

        A client that is damaged is left out and noted.
        """
        notes: list[str] = []
        name, beside = (layout.of_round(part, number) for part in (layout.ROUNDS, layout.MEASURED))
        each = _of_round(self.folder, name, layout.ROUND_FORMAT, (KeptRound, ClientRound), number, notes)
        if each is None:
            raise FileFormatError(f"{name} is missing")
        kinds = (RoundMeasured, Measured)
        extra = _tried(
            lambda: _of_round(self.folder, beside, layout.MEASURED_FORMAT, kinds, number, notes), notes
        )
        if extra is not None:
            more = {client.name: client for client in extra.clients}
            clients = tuple(replace(client, measured=more.get(client.name)) for client in each.clients)
            each = replace(
                each,
                clients=clients,
                wall_seconds=extra.wall_seconds,
                enrolment_seconds=extra.enrolment_seconds,
                replanned=extra.replanned,
                promised_flops=extra.promised_flops,
                delivered_flops=extra.delivered_flops,
            )
        return replace(each, notes=_few(notes))

    def rounds(self) -> tuple[tuple[KeptRound, ...], tuple[str, ...]]:
        """All rounds that can be read, and what is damaged in them."""
        return gather(self.round, self.numbers)

    def profile(self) -> tuple[Profile | None, tuple[str, ...]]:
        """The cost of every cut, and a note where it is damaged."""
        notes: list[str] = []
        return _tried(lambda: _profile(self.folder), notes), tuple(notes)

    def scenario(self) -> tuple[str | None, tuple[str, ...]]:
        """The scenario as it was given, and a note where it can't be read."""
        notes: list[str] = []
        content = _tried(lambda: self.folder.read(layout.SCENARIO), notes)
        return None if content is None else content.decode("utf-8", "replace")[:MOST_TEXT], tuple(notes)


def read_run(where: str | os.PathLike[str] | Folder) -> Run:
    """A run, or one sentence where there is none, or where its metrics can't be read at all."""
    folder = where if isinstance(where, Folder) else Folder(Path(where))
    lines, damaged = read_lines(folder)
    notes: list[str] = []
    info = _tried(lambda: _info(folder), notes)
    if info is None and not notes:
        notes.append(f"{layout.RUN} is missing")
    numbers = _numbers(folder)
    if info is None and not lines and not numbers:
        path = shown(str(folder.root))
        raise RunError(f"{path} holds no run ({notes[0]}): name a folder that cutwater train --run wrote")
    return Run(folder, info or Info(), lines, numbers, _few([*notes, *damaged]))


def read_lines(folder: Folder) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The whole lines of metrics.jsonl in the order of the rounds, and what is wrong with the rest."""
    found: list[Record] = []
    notes: list[str] = []
    for number, (line, _) in enumerate(parse(folder.read(layout.METRICS) or b""), 1):
        if isinstance(line, Record):
            found.append(line)
        else:
            notes.append(shown(f"line {number} of metrics.jsonl is left out: {line}"))
    missing = gaps(found)
    by_round = {line.round: line for line in found}
    return tuple(by_round[key] for key in sorted(by_round)), (*notes, *([missing] if missing else []))


def _of_round(
    folder: Folder,
    name: str,
    format_: layout.Format,
    kinds: tuple[type[Made], type[Any]],
    number: int,
    notes: list[str],
) -> Made | None:
    """A file of a round, without the clients and changes that are damaged; None where there is none."""
    found = folder.document(name, format_)
    if found is None:
        return None
    rows, changes = found.get("clients"), found.get("replanned", [])
    if not isinstance(rows, list):
        raise FileFormatError(f"{name} has no list of clients")
    if not isinstance(changes, list):
        raise FileFormatError(f"{name} has a replanned that is no list")
    made = read(kinds[0], {**found, "round": number, "clients": [], "replanned": []}, name)
    return replace(
        made,
        clients=_sound(kinds[1], rows, f"client {{}} of {name}", notes),
        replanned=_sound(Replanned, changes, f"change {{}} of {name}", notes),
    )


def _sound(kind: type[T], rows: list[Any], each: str, notes: list[str]) -> tuple[T, ...]:
    """Those rows that are not damaged, and a note on each that is."""
    try:
        return tuple(read_all(kind, rows))
    except (ValueError, CutwaterError):  # somebody is damaged
        tried = (
            _tried(partial(read, kind, row, each.format(place)), notes) for place, row in enumerate(rows, 1)
        )
        return tuple(row for row in tried if row is not None)


def gather(
    read: Callable[[int], KeptRound], numbers: Iterable[int]
) -> tuple[tuple[KeptRound, ...], tuple[str, ...]]:
    """The rounds that can be read, and what is damaged in them."""
    notes: list[str] = []
    found = [_tried(partial(read, number), notes) for number in numbers]
    rounds = tuple(each for each in found if each is not None)
    return rounds, _few([*notes, *(note for each in rounds for note in each.notes)])


def stamp(folder: Folder) -> str:
    """Changes whenever a run has something new to show."""
    parts = (folder.stamp(layout.METRICS), folder.stamp(layout.RUN), (len(folder.entries(layout.ROUNDS)),))
    return "-".join(f"{number:x}" for part in parts for number in part)


def _tried(read: Callable[[], T], notes: list[str]) -> T | None:
    """What can be read; where it can't, None and a note on it."""
    try:
        return read()
    except CutwaterError as error:
        notes.append(shown(f"{error}; that is left out"))
        return None


def _few(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - MOST_NOTES
    return tuple(notes) if more <= 0 else (*notes[:MOST_NOTES], f"… and {more:,} more of this kind")


def _info(folder: Folder) -> Info | None:
    found = folder.document(layout.RUN, layout.RUN_FORMAT)
    if found is None:
        return None
    facts = plain(found)
    return replace(read(Info, facts, layout.RUN), facts=facts)


def _profile(folder: Folder) -> Profile | None:
    found = folder.json(layout.PROFILE)
    return None if found is None else Profile.from_json(found, layout.PROFILE)


def _numbers(folder: Folder) -> tuple[int, ...]:
    names = {f"{layout.ROUNDS}/{entry.name}" for entry in folder.entries(layout.ROUNDS)}
    found = (int(match[1]) for name in names if (match := re.search(r"/([0-9]{5,9})\.json$", name)))
    return tuple(sorted(number for number in found if layout.of_round(layout.ROUNDS, number) in names))
