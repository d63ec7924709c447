"""What the commands share: where tables, JSON, progress and complaints go."""

import json
import os
import sys
from typing import Any

from rich.console import Console, ConsoleDimensions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cutwater.errors import CutwaterError


class _Out(Console):
    """A console that, in a pipe, has no width to keep to: no cell of a table may be cut short there."""

    @property
    def size(self) -> ConsoleDimensions:
        limited = self.is_terminal or "COLUMNS" in os.environ
        return super().size if limited else ConsoleDimensions(200, 25)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


out = _Out(highlight=False)
"""Results for people."""
err = Console(stderr=True, highlight=False)
"""Progress and complaints: never mixed into results."""


def print_json(data: Any) -> None:
    """Results for programs: JSON alone on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def complain(error: CutwaterError) -> None:
    """One sentence on stderr."""
    err.print(f"cutwater: {error}", style="red", markup=False, soft_wrap=True)


def progress() -> Progress:
    """A progress bar on stderr that leaves nothing behind when done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, transient=True)
