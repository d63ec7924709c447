"""What a run report shows, as plain data: one run or several compared, finished or going on.

All numbers are those of :mod:`cutwater.runs`; the page draws and words them.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from cutwater.base.errors import RunError
from cutwater.base.schema import table
from cutwater.base.text import shown
from cutwater.federate.record import ClientRound, KeptRound, Record, score_text
from cutwater.plan.latency import PHASES, Phases
from cutwater.report.crossings import Crossings
from cutwater.runs import layout
from cutwater.runs.confined import Folder
from cutwater.runs.reader import Run, gather, read_run
from cutwater.runs.summary import (
    Compared,
    compare,
    last_value,
    main_goal,
    overlap_totals,
    phase_totals,
    summary,
)

Json = dict[str, Any]

MOST_SESSIONS = 20_000
"""Client sessions whose phases a report carries: about 4 MB. Of a longer run, rounds at even distances."""
MOST_MEASURES = 8
"""Figures of metrics that a report draws."""
MOST_KEPT = 16
"""Runs whose rounds are kept between two looks at them."""


def report_data(folders: Sequence[tuple[str, Folder]]) -> Json:
    """The data of one report; each run comes with the name that it is shown under."""
    budget = MOST_SESSIONS // max(len(folders), 1)
    compared = compare([read_run(folder) for _, folder in folders])
    return {
        "cutwater": version("cutwater"),
        "phases": list(PHASES),
        "target": compared.target and compared.target.to_json(),
        "measures": measures([row.run.lines for row in compared.runs]),
        "runs": [_run_data(name, row, budget) for (name, _), row in zip(folders, compared.runs, strict=True)],
    }


def measures(runs: Sequence[Sequence[Record]]) -> list[Json]:
    """What a page draws of the models: the metric that runs are told apart by first, then what else there is.

    Accuracy is spoken of only where there is one.
    """
    lines = [line for some in runs for line in some]
    there = dict.fromkeys((main_goal(runs).metric, *(name for line in lines for name in line.scores)))
    known = {"accuracy": "Test accuracy", "test_loss": "Test loss"}
    # How each is called and written; its values are in the lines, or in their ``metrics``.
    return [
        {"key": name, "title": known.get(name, name), "percent": name == "accuracy"}
        for name in list(there)[:MOST_MEASURES]
    ]


def list_entry(name: str, folder: Folder) -> Json:
    """A run in one row, for a list; one that can't be read is listed, too, and its own report says why."""
    try:
        run = read_run(folder)
        about = {"planner": run.info.planner, **asdict(summary(run.lines))}
        metric = main_goal([run.lines]).metric
        value = last_value(run.lines, metric)
        score = None if value is None else score_text(metric, value)
    except RunError:
        about, score = {"planner": "", **asdict(summary(()))}, None
    written, _ = folder.stamp(layout.METRICS)
    return {"name": name, "written": written / 1e9, "score": score, **about}


def _run_data(name: str, row: Compared, budget: int) -> Json:
    run = row.run
    rounds, damaged = _rounds(run, budget)
    profile, unprofiled = run.profile()
    scenario, unread = run.scenario()
    notes = [*run.notes, *damaged, *unprofiled, *unread]
    if len(rounds) < len(run.numbers):
        notes.append(f"{len(rounds)} of {len(run.numbers)} rounds are shown client by client")
    crossings = Crossings.of(rounds)
    return {
        "name": name,
        "crossing": crossings.sentence,
        "lossy": crossings.lossy,
        "wires": crossings.texts,
        "info": run.info.facts,
        "planner": run.info.planner,
        "model": None if profile is None else shown(profile.model),
        "input": None if profile is None else shown(profile.input),
        "layers": None if profile is None else len(profile),
        "scenario": scenario,
        "summary": row.to_json(),
        "lines": [_line(line) for line in run.lines],
        "rounds": [_round(each, run.info.server_compute, crossings) for each in rounds],
        "phases": [asdict(phase) for phase in phase_totals(rounds)],
        "overlap": [asdict(row) for row in overlap_totals(rounds)],
        "losses": [
            {"round": line.round, "client": client, "reason": reason}
            for line in run.lines
            for client, reason in line.lost.items()
        ],
        "notes": notes,
    }


def _line(line: Record) -> Json:
    about = {"clients": len(line.clients), "lost": len(line.lost), "deviation": line.deviation}
    return {**table(line), **about}


_kept: dict[Folder, dict[tuple[int, ...], KeptRound]] = {}
"""The rounds that the last report of a run held, because a page that follows a run asks often."""


def _rounds(run: Run, budget: int) -> tuple[tuple[KeptRound, ...], tuple[str, ...]]:
    """Rounds client by client: all, or as many as the budget of sessions allows, the last one always."""
    before, fresh = _kept.pop(run.folder, {}), dict[tuple[int, ...], KeptRound]()

    def read(number: int) -> KeptRound:
        files = (layout.of_round(part, number) for part in (layout.ROUNDS, layout.MEASURED))
        key = (number, *(part for file in files for part in run.folder.stamp(file)))
        fresh[key] = before.get(key) or run.round(number)
        return fresh[key]

    last, _ = gather(read, run.numbers[-1:])
    size = max([1, *(len(each.clients) for each in last)])
    count = max(budget // size, 1)
    step = max(math.ceil(len(run.numbers) / count), 1)
    found = gather(read, run.numbers[::-1][::step][::-1])
    _kept[run.folder] = fresh
    for old in list(_kept)[:-MOST_KEPT]:
        _kept.pop(old, None)
    return found


def _round(each: KeptRound, compute: float | None, crossings: Crossings) -> Json:
    sharing = [client.share for client in each.clients if client.share > 0]
    return {
        "round": each.round,
        "planner": each.planner,
        "planned_seconds": each.planned_seconds,
        "actual_seconds": each.actual_seconds,
        "deviation": each.deviation,
        "failed": each.failed,
        "server_compute": compute or sum(sharing) or 1.0,
        "sharing": len(sharing),
        "lost": sum(not client.done for client in each.clients),
        "delivered": each.delivered,
        "clients": [_client(client, each, crossings.place(client)) for client in each.clients],
    }


def _client(client: ClientRound, each: KeptRound, wire: int | None) -> Json:
    return {
        "name": client.name,
        "cut": client.cut,
        "second_cut": client.second_cut,
        "share": client.share,
        "delivered": client.delivered_share,
        "split": client.mode != "fedavg",
        "wire": wire,
        "lost": None if client.done else client.outcome,
        "counts": client.done and not each.failed,
        "planned": _seconds(client.planned),
        "actual": _seconds(client.actual),
        "planned_overlap": _short(client.planned.overlap),
        "actual_overlap": _short(client.actual.overlap),
        "planned_seconds": _short(client.planned_seconds),
        "actual_seconds": _short(client.actual_seconds),
        "alone": None if client.alone_seconds is None else _short(client.alone_seconds),
    }


def _seconds(phases: Phases[float]) -> list[float]:
    """Seconds in the order of the phases."""
    return [_short(value) for value in phases]


def _short(value: float) -> float:
    """Short enough for a page that holds many."""
    return float(f"{value:.6g}")
