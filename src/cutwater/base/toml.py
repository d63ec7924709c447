"""Scenarios as TOML: reading any, and writing the few kinds of value that they hold."""

import json
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from cutwater.base.errors import FileFormatError, ScenarioError


def parse_toml(content: str, source: str) -> dict[str, Any]:
    """The tables of a TOML document, all of which a sentence can quote."""
    try:
        tables = tomllib.loads(content.removeprefix("\ufeff"))  # the byte order mark of some editors
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


def check_characters(content: str, what: str) -> None:
    """Refuse half of a UTF-16 pair, which JSON can write down but no file and no answer can hold."""
    try:
        content.encode()
    except UnicodeEncodeError as error:
        half = content[error.start]
        raise ScenarioError(f"{what} holds {half!r}, half of a character: leave it out") from error


def to_toml(tables: Mapping[str, Any]) -> str:
    """A TOML document: plain keys first, then a table for each mapping, then lists of tables."""
    return "\n".join(_lines(tables, "")).lstrip("\n") + "\n"


def _lines(tables: Mapping[str, Any], above: str) -> list[str]:
    """The lines of the tables below one, whose name with a dot is ``above``."""
    lines = _pairs({key: value for key, value in tables.items() if not _is_table(value)})
    for key, value in tables.items():
        name = f"{above}{_key(key)}"
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *_pairs(value)]
        elif _is_table(value):
            for row in value:
                lines += ["", f"[[{name}]]", *_lines(row, f"{name}.")]
    return lines


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
    )


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if value is not None]


def _key(key: str) -> str:
    plain = key and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in key)
    return key if plain else _text(key)


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}" if value else "{}"
    raise ScenarioError(f"{value!r} can't be written in a scenario")


def _text(value: str) -> str:
    # JSON's escapes are also TOML's, but for DEL, which TOML wants escaped as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
