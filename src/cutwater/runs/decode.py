"""JSON that anyone may have written, as frozen values: each field of its type, or a sentence on it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

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
            values[name] = _value(wanted, data[name], name, what)
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


class _Wanted(NamedTuple):
    """A field's type, taken apart."""

    kind: Any
    inner: Any
    """Of what a list or an object holds."""
    or_none: bool


@cache
def _fields(kind: Any) -> tuple[tuple[str, _Wanted, bool], ...]:
    """Name, type and whether it must be there, of each field."""
    hints = dict.fromkeys(PHASES, float) if kind is Phases else get_type_hints(kind)
    needed = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}
    return tuple((name, _wanted(hints[name]), needed[name]) for name in needed)


@cache
def _wanted(hint: Any) -> _Wanted:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind, inner = get_origin(options[0]) or options[0], get_args(options[0])
    of = {tuple: inner[:1], Mapping: inner[1:]}.get(kind, ())
    return _Wanted(kind, _wanted(of[0]) if of and of[0] is not Any else None, NoneType in options)


def _value(wanted: _Wanted, found: Any, name: str, what: str) -> Any:
    kind, inner, or_none = wanted
    if found is None and or_none:
        return None
    if kind not in _KINDS:
        return decode(kind, found, f"{name} of {what}")
    fits, word = _KINDS[kind]
    if not fits(found):
        raise FileFormatError(f"{name} of {what} is {repr(found)[:60]}, but must be {word}")
    if kind is tuple:
        return tuple(_value(inner, one, name, what) for one in found)
    if kind is Mapping:
        return {shown(key): _value(inner, one, name, what) for key, one in found.items()}
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
