"""Reading checked values out of a TOML table: what is missing, misspelt or senseless is named."""

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from cutwater.base.errors import FileFormatError, ScenarioError, suggest

T = TypeVar("T")
Table = Mapping[str, Any]

MOST = 2**63 - 1
"""The largest whole number of TOML, and of a fleet's columns."""
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_SHOWN = 60


def parse_toml(content: str, source: str) -> dict[str, Any]:
    """The tables of a TOML document, all of which a sentence can quote."""
    try:
        tables = tomllib.loads(content)
        repr(tables)  # dotted keys nest without end, and hexadecimal numbers have any length
        return tables
    except RecursionError as error:
        raise FileFormatError(f"{source} is not TOML that can be read: it is nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{source} is not TOML: {error}") from error
    except ValueError as error:  # of more digits than Python reads or writes
        raise FileFormatError(
            f"{source} is not TOML: it holds a whole number of thousands of digits, but 19 are the most"
        ) from error


def check_keys(table: Table, known: Iterable[str], where: str) -> None:
    """Refuse what nobody would read, and say what was probably meant."""
    known = tuple(known)
    for key in table:
        if key not in known:
            raise ScenarioError(f"{where} has an unknown key {key!r}: {suggest(key, known)}")


def as_table(value: object, where: str) -> Table:
    """A TOML table."""
    if not isinstance(value, dict):
        raise ScenarioError(f"{where} is {value!r}, but must be a table of keys and values")
    return value


def required(table: Table, key: str, where: str, example: str) -> Any:
    """A value that must be there."""
    if key not in table or table[key] == "":
        raise ScenarioError(f"{where} lacks {key}: add one, such as {key} = {example}")
    return table[key]


def text(value: object, what: str) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ScenarioError(f"{what} is {value!r}, but must be text that is not empty")
    return value


def check_characters(value: str, what: str) -> None:
    """Refuse half of a UTF-16 pair, which JSON can write down but no file and no answer can hold."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = value[error.start]
        raise ScenarioError(f"{what} holds {half!r}, half of a character: leave it out") from error


def file_name(value: object, what: str) -> str:
    """Text that can name a file."""
    name = text(value, what)
    if "\0" in name:
        raise ScenarioError(f"{what} is {shown(value)}, but no file's name holds a NUL: leave it out")
    return name


def shown(value: object) -> str:
    """A value as a sentence quotes it: from its beginning, if it is long."""
    written = repr(value)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}…"


def whole(value: object, what: str, least: int = 1, most: int = MOST) -> int:
    """A whole number; digits in quotes are fine, because that is all a CSV file has."""
    # Not str.isdigit, which takes "²", and not all that int() takes, such as the digits of other scripts.
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        # The most is told only where it is what is wrong.
        digits = isinstance(value, str) and value.isascii() and value.isdigit()
        end = f" and at most {most:,}" if digits or (isinstance(value, int) and value > most) else ""
        raise ScenarioError(f"{what} is {shown(value)}, but must be a whole number of at least {least}{end}")
    return value


def number(value: object, what: str) -> float:
    """A finite number above zero without a unit."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ScenarioError(f"{what} is {shown(value)}, but must be a finite number above zero")
    return float(value)


def optional(table: Table, key: str, what: str, read: Callable[[object, str], T]) -> T | None:
    """A value that may be missing (or, in a CSV file, empty)."""
    value = table.get(key)
    return None if value is None or value == "" else read(value, what)
