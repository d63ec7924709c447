"""Predicted against measured: what a run folder says of every round, client and phase."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import document
from cutwater.runs.reader import read_run
from cutwater.runs.summary import PhaseTotal, Summary, phase_totals, summary
from cutwater.runs.values import ClientRound, Round

FORMAT = "cutwater.audit"
VERSION = 1


@dataclass(frozen=True)
class Audit:
    """All rounds of a run, and what they come to."""

    rounds: tuple[Round, ...]
    summary: Summary
    phases: tuple[PhaseTotal, ...]
    notes: tuple[str, ...]
    """What is missing or damaged."""

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        body = {
            "summary": self.summary.to_json(),
            "phases": [asdict(phase) for phase in self.phases],
            "rounds": [_round(each) for each in self.rounds],
            "notes": self.notes,
        }
        return document(FORMAT, VERSION, body)


def audit(folder: str | os.PathLike[str]) -> Audit:
    """A run, audited."""
    run = read_run(folder)
    rounds, notes = run.rounds()
    if not rounds:
        why = "; ".join(notes) or "has no finished round yet"
        raise RunError(f"{folder} {why}")
    return Audit(rounds, summary(run.lines), phase_totals(rounds), (*run.notes, *notes))


def _round(each: Round) -> dict[str, Any]:
    body = asdict(each)
    del body["notes"]
    clients = [_client(client) for client in each.clients]
    return {**body, "deviation": each.deviation, "clients": clients}


def _client(client: ClientRound) -> dict[str, Any]:
    body = asdict(client)
    beyond: Mapping[str, Any] = body.pop("measured")
    seconds = {"planned_seconds": client.planned_seconds, "actual_seconds": client.actual_seconds}
    return {**body, **seconds, **beyond}
