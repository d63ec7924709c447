"""Whom a sentence speaks to: somebody at a command line, with a scenario file, or in Python; who tells it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Say = Callable[[str], None]
"""Tells a person what takes long, and what they should know."""


def quiet(_: str) -> None:
    """Say nothing."""


_COMMAND: ContextVar[bool] = ContextVar("at a command line", default=False)
_FILE: ContextVar[bool] = ContextVar("from a scenario file", default=False)


@contextmanager
def at_a_command_line() -> Iterator[None]:
    """Within, sentences name options of commands."""
    before = _COMMAND.set(True)
    try:
        yield
    finally:
        _COMMAND.reset(before)


@contextmanager
def from_a_file() -> Iterator[None]:
    """Within, sentences name keys of a scenario file."""
    before = _FILE.set(True)
    try:
        yield
    finally:
        _FILE.reset(before)


def by_command(option: str, argument: str) -> str:
    """An option of a command, or the argument that it is in Python.

    >>> by_command("--resume", "resume=True")
    'resume=True'
    """
    return option if _COMMAND.get() else argument


def by_file(key: str, name: str) -> str:
    """A key of a scenario, or what it is in Python.

    >>> by_file("lr in [train]", "lr of TrainSettings")
    'lr of TrainSettings'
    """
    return key if _FILE.get() or _COMMAND.get() else name
