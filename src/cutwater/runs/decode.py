"""JSON that anyone may have written, as frozen values: each field of its type, or a sentence on it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cutwater.base.errors import FileFormatError
from cutwater.plan.latency import PHASES, Phases
from cutwater.runs.confined import shown

T = TypeVar("T")
MOST = 2**53
"""The largest whole number that every reader of JSON has."""


def decode(kind: type[T], data: object, what: str) -> T:
    """A value of a frozen dataclass; unknown fields are passed over, those with a default may be missing."""
    if not isinstance(data, dict):
        raise FileFormatError(f"{what} is no JSON object")
    values = {}
    for name, wanted, needed in _fields(kind):  # type: ignore[arg-type]
        if name in data:
            values[name] = _value(wanted, data[name], f"{name} of {what}")
        elif needed:
            raise FileFormatError(f"{name} of {what} is missing")
    return kind(**values)


def plain(value: Any, depth: int = 4) -> Any:
    """JSON that can be shown as it is: no endless depth, length or number, no character that is none."""
    if isinstance(value, dict) and depth:
        return {shown(str(key))[:200]: plain(one, depth - 1) for key, one in list(value.items())[:200]}
    if isinstance(value, list) and depth:
        return [plain(one, depth - 1) for one in value[:200]]
    if isinstance(value, bool) or value is None or _is_number(value):
        return value
    return None if isinstance(value, int | float) else shown(str(value))


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it must be there, of each field."""
    hints = dict.fromkeys(PHASES, float) if kind is Phases else get_type_hints(kind)
    needed = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
    return tuple((name, hints[name], needed[name]) for name in needed)


def _value(wanted: Any, found: Any, what: str) -> Any:
    options = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    kind, inner = get_origin(options[0]) or options[0], get_args(options[0])
    if found is None and NoneType in options:
        return None
    if is_dataclass(kind):
        return decode(kind, found, what)  # type: ignore[arg-type]
    fits, word = _KINDS[kind]
    if not fits(found):
        raise FileFormatError(f"{what} is {repr(found)[:60]}, but must be {word}")
    if kind is tuple:
        return tuple(_value(inner[0], one, what) for one in found)
    if kind is Mapping:
        return {shown(key): _value(inner[1], one, what) for key, one in found.items()}
    return shown(found) if kind is str else found


def _is_number(value: object) -> bool:
    # Python reads NaN and Infinity from JSON, and whole numbers that no float holds.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


_KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    str: (lambda found: isinstance(found, str), "text"),
    bool: (lambda found: isinstance(found, bool), "true or false"),
    int: (lambda found: type(found) is int and 0 <= found <= MOST, "a whole number"),
    float: (_is_number, "a finite number"),
    tuple: (lambda found: isinstance(found, list), "a list"),
    Mapping: (lambda found: isinstance(found, dict), "an object"),
}
"""For each type, what fits it, and what it is called."""
