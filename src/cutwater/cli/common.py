"""What the commands share: options, and where tables, JSON, progress and complaints go."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, ConsoleDimensions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cutwater.base.errors import CutwaterError, PlanError

ScenarioFile = Annotated[
    Path, typer.Argument(help="A TOML file: model or profile, server, session, clients.")
]
PlannerOptions = Annotated[
    list[str] | None, typer.Option(help="Of the planner, such as leftover=none; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MOST = 40
"""Clients that a table shows."""
BUILDING = "loading data, building and profiling the model"
"""What is going on while a study is made."""


class _Out(Console):
    """A console that never cuts a cell of a table short: half a number is another number.

    In a pipe it has no width to keep to; in a terminal that is too narrow, lines go on in the next.
    """

    _least = 0

    @property
    def size(self) -> ConsoleDimensions:
        limited = self.is_terminal or "COLUMNS" in os.environ
        width, height = super().size if limited else (200, 25)
        return ConsoleDimensions(max(width, self._least), height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with room for what can't be wrapped."""
        tables = [each for each in objects if isinstance(each, Table)]
        self._least = max((self._room(table) for table in tables), default=0)
        try:
            super().print(*objects, **options)
        finally:
            self._least = 0

    def on_broken_pipe(self) -> None:
        """Whoever reads the results hung up."""
        seen_enough()

    def _room(self, table: Table) -> int:
        """The width at which no column of a table that must not be wrapped is cut short."""
        total = 0
        for column in table.columns:
            sizes = [self.measure(cell) for cell in (column.header, *column.cells)]
            total += max(size.maximum if column.no_wrap else size.minimum for size in sizes)
            total += table.padding[1] + table.padding[3]
        return total


out = _Out(highlight=False, emoji=False)
"""Results for people."""
err = Console(stderr=True, highlight=False, emoji=False)
"""Progress and complaints: never mixed into results."""


def results_table(texts: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """An empty table of results: columns of text, then columns of numbers."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title in texts:
        table.add_column(title, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def print_json(data: Any) -> None:
    """Results for programs: JSON alone on standard output."""
    print_pieces([json.dumps(data, indent=2, allow_nan=False), "\n"])


def print_pieces(pieces: Iterable[str]) -> None:
    """The same, where it is made piece by piece."""
    try:
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
    except BrokenPipeError:
        seen_enough()


def seen_enough() -> NoReturn:
    """End well: the reader (head, less) has seen enough, and that is no error of ours."""
    say_no_more()
    sys.exit(0)


def say_no_more() -> None:
    """Nobody takes what is written to standard output any more, nor what is left in its buffers."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_option(text: str, example: str, refused: type[CutwaterError]) -> tuple[str, Any]:
    """An --option as name=value; a value that is JSON is read as such, any other is text.

    >>> read_option("leftover=none", "", CutwaterError), read_option("depth=24", "", CutwaterError)
    (('leftover', 'none'), ('depth', 24))
    """
    key, equals, value = text.partition("=")
    if not (key.isidentifier() and equals):
        raise refused(f"option {text!r} can't be read: write name=value, such as {example}")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):  # not JSON, or a number or nesting that Python gives up on
        return key, value


def planner_options(given: list[str] | None) -> dict[str, Any]:
    """A planner's options, each as name=value."""
    return dict(read_option(text, "leftover=none", PlanError) for text in given or ())


def say(text: str, *, to: Console = out, style: str | None = None) -> None:
    """A text as it stands: brackets in it are no markup, and a terminal alone breaks its lines."""
    to.print(text, style=style, markup=False, soft_wrap=True)


def complain(error: CutwaterError) -> None:
    """One sentence on stderr."""
    say(f"cutwater: {error}", to=err, style="red")


def progress() -> Progress:
    """A progress bar on stderr that leaves nothing behind when done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, transient=True)
