"""A run in a few numbers, from the lines of its metrics.jsonl. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class EstimateError:
    """How far the planned latency of rounds was from what it turned out to be, relative to the latter."""

    mean: float
    worst: float
    worst_round: int


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    rounds: int
    failed: int
    """Rounds below their quorum, which left the model as it was."""
    lost: int
    """Updates that did not count: clients that dropped out or came late."""
    accuracy: float | None
    """Of the last round that was evaluated."""
    best_accuracy: float | None
    loss: float | None
    virtual_seconds: float
    wall_seconds: float
    bytes_up: int
    bytes_down: int
    weights_sha256: str | None
    estimate: EstimateError | None

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class Reached:
    """When a run first had an accuracy."""

    round: int
    virtual_seconds: float
    wall_seconds: float


def summary(rows: Sequence[Row]) -> Summary:
    """The numbers of a run; of one that has no round yet, zeros and None."""
    accuracies = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    return Summary(
        rounds=len(rows),
        failed=sum(bool(row.get("failed")) for row in rows),
        lost=sum(len(row.get("lost", ())) for row in rows),
        accuracy=accuracies[-1] if accuracies else None,
        best_accuracy=max(accuracies, default=None),
        loss=losses[-1] if losses else None,
        virtual_seconds=rows[-1]["virtual_seconds"] if rows else 0.0,
        wall_seconds=rows[-1]["wall_seconds"] if rows else 0.0,
        bytes_up=sum(row["bytes_up"] for row in rows),
        bytes_down=sum(row["bytes_down"] for row in rows),
        weights_sha256=rows[-1]["weights_sha256"] if rows else None,
        estimate=estimate_error(rows),
    )


def estimate_error(rows: Sequence[Row]) -> EstimateError | None:
    """Mean and worst of |planned - actual| / actual over the rounds.

    >>> estimate_error([{"round": 1, "planned_seconds": 9.0, "actual_seconds": 10.0}])
    EstimateError(mean=0.1, worst=0.1, worst_round=1)
    """
    errors = {
        row["round"]: abs(row["planned_seconds"] - row["actual_seconds"]) / row["actual_seconds"]
        for row in rows
        if row.get("planned_seconds") is not None and row.get("actual_seconds")
    }
    if not errors:
        return None
    worst = max(errors, key=lambda number: errors[number])
    return EstimateError(sum(errors.values()) / len(errors), errors[worst], worst)


def time_to(rows: Sequence[Row], accuracy: float) -> Reached | None:
    """The first round at which a run has this accuracy, or None."""
    for row in rows:
        if row["accuracy"] is not None and row["accuracy"] >= accuracy:
            return Reached(row["round"], row["virtual_seconds"], row["wall_seconds"])
    return None
