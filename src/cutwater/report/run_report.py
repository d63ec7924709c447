"""What a run report shows, as plain data: one run or several compared, finished or going on.

Everything is taken from run folders (docs/run-folder.md), which may be damaged or foreign: each value is
brought to its type or left out, so that the page can rely on what it gets.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from cutwater.base.errors import CutwaterError, RunError
from cutwater.plan.latency import PHASES
from cutwater.plan.problem import Costs
from cutwater.profile.values import Profile
from cutwater.runs.reader import Folder, read_document, read_metrics, round_numbers

Json = dict[str, Any]

MOST_SESSIONS = 20_000
"""Client sessions whose phases a report carries: about 4 MB. Of a longer run, rounds at even distances."""
MOST_TEXT = 200_000
"""Characters of a scenario that a report carries."""
_LINE = (
    "virtual_seconds",
    "wall_seconds",
    "loss",
    "test_loss",
    "accuracy",
    "bytes_up",
    "bytes_down",
    "planned_seconds",
    "actual_seconds",
)


def report_data(folders: Sequence[tuple[str, Folder]]) -> Json:
    """The data of one report; each run comes with the name that it is shown under."""
    budget = MOST_SESSIONS // max(len(folders), 1)
    return {
        "cutwater": version("cutwater"),
        "phases": list(PHASES),
        "runs": [run_data(name, folder, budget) for name, folder in folders],
    }


def run_data(name: str, folder: Folder, budget: int = MOST_SESSIONS) -> Json:
    """One run."""
    lines, notes = read_metrics(folder)
    info = read_document(folder, "run.json")
    numbers = round_numbers(folder)
    if info is None and not lines and not numbers:
        raise RunError(
            f"{folder.root} is no run folder: it holds neither run.json nor a whole line of metrics.jsonl"
        )
    if info is None:
        notes.append("run.json is missing or can't be read")
    rounds = _rounds(folder, numbers, budget)
    if len(rounds) < len(numbers):
        notes.append(f"{len(rounds)} of {len(numbers)} rounds are shown client by client")
    profile = read_document(folder, "profile.json") or {}
    rounds = _with_alone(rounds, profile)
    return {
        "name": name,
        "info": _plain(info or {}),
        "model": _text(profile.get("model")) or None,
        "input": _text(profile.get("input")) or None,
        "layers": _whole(profile.get("layers")),
        "scenario": _scenario(folder),
        "lines": [_line(line) for line in lines],
        "rounds": rounds,
        "phases": _phase_totals(rounds),
        "losses": _losses(lines),
        "notes": notes,
    }


def summary(name: str, folder: Folder) -> Json:
    """A run in one row, for a list; one that can't be read is listed, too, and its own report says why."""
    try:
        lines, _ = read_metrics(folder)
        info = read_document(folder, "run.json") or {}
    except RunError:
        lines, info = [], {}
    last = _line(lines[-1]) if lines else {}
    accuracies = [found for line in lines if (found := _number(line.get("accuracy"))) is not None]
    written, _ = folder.stamp("metrics.jsonl")
    return {
        "name": name,
        "planner": _text(info.get("planner")),
        "engine": _text(info.get("engine")),
        "rounds": last.get("round", 0),
        "accuracy": accuracies[-1] if accuracies else None,
        "virtual_seconds": last.get("virtual_seconds"),
        "written": written / 1e9,
    }


def stamp(folder: Folder) -> str:
    """Changes whenever a run has something new to show."""
    parts = (folder.stamp("metrics.jsonl"), folder.stamp("run.json"), (len(folder.entries("rounds")),))
    return "-".join(f"{number:x}" for part in parts for number in part)


def _line(line: Json) -> Json:
    return {
        "round": line["round"],
        **{key: _number(line.get(key)) for key in _LINE},
        "bottleneck": _text(line.get("bottleneck")),
        "clients": len(line["clients"]) if isinstance(line.get("clients"), list) else None,
        "lost": len(line["lost"]) if isinstance(line.get("lost"), dict) else 0,
        "failed": _text(line.get("failed")) or None,
        "sha256": _text(line.get("weights_sha256")),
    }


def _losses(lines: Iterable[Json]) -> list[Json]:
    """Who was lost, when and why."""
    found = []
    for line in lines:
        lost = line.get("lost")
        for client, reason in lost.items() if isinstance(lost, dict) else ():
            found.append({"round": line["round"], "client": _text(client), "reason": _text(reason)})
    return found


def _rounds(folder: Folder, numbers: list[int], budget: int) -> list[Json]:
    """Rounds client by client: all, or as many as the budget of sessions allows, the last one always."""
    if not numbers:
        return []
    last = _round(folder.root, numbers[-1], folder.stamp(_round_file(numbers[-1])))
    size = max(len(last["clients"]) if last else 1, 1)
    count = max(budget // size, 1)
    step = max(math.ceil(len(numbers) / count), 1)
    chosen = numbers[::-1][::step][::-1]
    read = (_round(folder.root, number, folder.stamp(_round_file(number))) for number in chosen)
    return [found for found in read if found is not None]


def _round_file(number: int) -> str:
    return f"rounds/{number:05d}.json"


@lru_cache(maxsize=2048)
def _round(root: Any, number: int, _stamp: tuple[int, int]) -> Json | None:
    """One round; kept while its file stays as it is, because a page that follows a run asks often."""
    folder = Folder(root)
    found = read_document(folder, _round_file(number))
    if found is None or not isinstance(found.get("clients"), list):
        return None
    plan = read_document(folder, f"plans/{number:05d}.json") or {}
    return {
        "round": number,
        "planner": _text(found.get("planner")),
        "planned_seconds": _number(found.get("planned_seconds")),
        "actual_seconds": _number(found.get("actual_seconds")),
        "failed": _text(found.get("failed")) or None,
        "server_compute": _number(plan.get("server_compute")),
        "lower_bound": _number(plan.get("lower_bound")) or None,
        "layers": _whole(plan.get("layers")),
        "clients": [_client(row) for row in found["clients"] if isinstance(row, dict)],
    }


def _client(row: Json) -> Json:
    return {
        "name": _text(row.get("name")),
        "cut": _whole(row.get("cut")),
        "share": _number(row.get("share")) or 0.0,
        "delivered": _number(row.get("delivered_share")),
        "split": row.get("mode") != "fedavg",
        "lost": None if row.get("outcome") == "done" else _text(row.get("outcome")) or "unknown",
        "planned": _seconds(row.get("planned")),
        "actual": _seconds(row.get("actual")),
    }


def _seconds(phases: object) -> list[float] | None:
    """Seconds in the order of the phases, short enough for a page; None where there are none."""
    if not isinstance(phases, dict):
        return None
    values = [_number(phases.get(phase)) or 0.0 for phase in PHASES]
    return [float(f"{value:.6g}") for value in values]


def _with_alone(rounds: Iterable[Json], profile: Json) -> list[Json]:
    """T̃_k of each client (eq. (19)), as its planned phases and the profile tell of device and links."""
    try:
        costs = Costs.of(Profile.from_json(profile))
    except CutwaterError:
        costs = None

    def alone(client: Json) -> Json:
        return {**client, "alone": None if costs is None else _alone(client, costs)}

    return [{**round_, "clients": [alone(client) for client in round_["clients"]]} for round_ in rounds]


def _alone(client: Json, costs: Costs) -> float | None:
    cut, seconds = client["cut"], client["planned"]
    if not seconds or cut is None or not 1 <= cut <= len(costs.bits):
        return None
    phases = dict(zip(PHASES, seconds, strict=True))
    computing = phases["client_forward"] + phases["client_backward"]
    moving = phases["model_download"] + phases["model_upload"]
    parts = ((computing, costs.client), (moving, costs.bits))
    if any(column[cut - 1] <= 0 for _, column in parts):
        return None
    return float(sum(taken * column[-1] / column[cut - 1] for taken, column in parts))


def _phase_totals(rounds: Iterable[Json]) -> list[Json]:
    """Planned and actual seconds of each phase over all sessions that made it."""
    planned, actual = Counter[str](), Counter[str]()
    for round_ in rounds:
        for client in round_["clients"]:
            if client["lost"] is None and client["planned"] and client["actual"]:
                planned.update(dict(zip(PHASES, client["planned"], strict=True)))
                actual.update(dict(zip(PHASES, client["actual"], strict=True)))
    if not planned:
        return []
    return [{"phase": phase, "planned": planned[phase], "actual": actual[phase]} for phase in PHASES]


def _scenario(folder: Folder) -> str | None:
    content = folder.read("scenario.toml")
    return None if content is None else content.decode("utf-8", "replace")[:MOST_TEXT]


def _plain(value: Any, depth: int = 4) -> Any:
    """JSON from a file, without what a page can't show: depth, length and numbers that are none."""
    if isinstance(value, dict) and depth:
        return {str(key)[:200]: _plain(one, depth - 1) for key, one in list(value.items())[:200]}
    if isinstance(value, list) and depth:
        return [_plain(one, depth - 1) for one in value[:200]]
    if isinstance(value, bool) or value is None:
        return value
    return _number(value) if isinstance(value, int | float) else _text(value)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None  # a longer whole number fits no float


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return "" if value is None else str(value)[:2000]
