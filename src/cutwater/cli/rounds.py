"""What is seen of rounds: a line and a bar while they are trained, their scores and notes in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cutwater.base.units import show_seconds
from cutwater.cli.common import err, say

if TYPE_CHECKING:
    from cutwater.execute.local import Tick
    from cutwater.federate.loop import Round
    from cutwater.federate.record import Record
    from cutwater.runs.summary import PlanDeviation


def percent(fraction: float) -> str:
    """A fraction for people.

    >>> percent(0.98123), percent(0.0)
    ('98.1 %', '0.0 %')
    """
    return f"{fraction * 100:.1f} %"


def plan_error_text(error: "PlanDeviation") -> str:
    """How far rounds were from their plans, for people."""
    worst = f"{percent(error.worst)} at worst (round {error.worst_round})"
    return f"off by {percent(error.mean)} on average, {worst}"


def scores_text(record: "Record") -> list[str]:
    """The scores of a round for people: accuracy, or else the test loss, and all metrics."""
    from cutwater.federate.record import score_text

    found = record.scores
    if "accuracy" in found:
        found.pop("test_loss", None)
    return [score_text(name, value) for name, value in found.items()]


def say_notes(notes: Sequence[str]) -> None:
    """What is missing or damaged in a run folder, on stderr."""
    for note in notes:
        say(note, to=err, style="yellow")


class Display:
    """Progress on stderr: round, virtual time, scores, who the round waited for."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[news]}"),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task = self._bar.add_task("round 1", total=float(rounds), news="")

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, note: str) -> None:
        """Something a person should know, above the bar."""
        say(note, to=err, style="yellow")

    def session(self, tick: "Tick") -> None:
        """A client is done: move the bar by its part of the round."""
        self._bar.update(
            self._task,
            description=f"round {tick.round}/{self.rounds}",
            completed=tick.round - 1 + tick.done / tick.sessions,
        )

    def round(self, done: "Round") -> None:
        """A round is done and safe on disk."""
        record = done.record
        news = [f"{show_seconds(record.virtual_seconds)} virtual"]
        news += scores_text(record)
        news.append(f"waited for {record.bottleneck}")
        if record.failed:
            news.append(f"failed: {record.failed}")
        text = " · ".join(news)
        self._bar.update(
            self._task,
            description=f"round {record.round}/{self.rounds}",
            completed=float(record.round),
            news=text,
        )
        if not err.is_terminal:
            say(f"round {record.round}/{self.rounds} · {text}", to=err)
