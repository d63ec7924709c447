"""Predicted against measured: what a run folder says of every round, client and phase."""

import os
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import document
from cutwater.federate.record import KeptRound
from cutwater.runs.reader import read_run
from cutwater.runs.summary import PhaseTotal, Summary, phase_totals, summary

FORMAT = "cutwater.audit"
VERSION = 1


@dataclass(frozen=True)
class Audit:
    """All rounds of a run, and what they come to."""

    rounds: tuple[KeptRound, ...]
    summary: Summary
    phases: tuple[PhaseTotal, ...]
    notes: tuple[str, ...]
    """What is missing or damaged."""

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        body = {
            "summary": asdict(self.summary),
            "phases": [asdict(phase) for phase in self.phases],
            "rounds": [
                {**asdict(each), "deviation": each.deviation, "emulated": each.emulated}
                for each in self.rounds
            ],
            "notes": self.notes,
        }
        return document(FORMAT, VERSION, body)


def audit(folder: str | os.PathLike[str]) -> Audit:
    """A run, audited."""
    run = read_run(folder)
    rounds, notes = run.rounds()
    if not rounds:
        why = f"has no round that can be read: {notes[0]}" if notes else "has no finished round yet"
        raise RunError(f"{folder} {why}")
    return Audit(rounds, summary(run.lines), phase_totals(rounds), (*run.notes, *notes))
