"""TOML tables into settings: every key known, every value of the right type, every complaint one sentence."""

import math
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cutwater.base.errors import ScenarioError, suggest

Settings = TypeVar("Settings")

_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    tuple: "a list of texts",
    Mapping: "a table",
}


def from_table(cls: type[Settings], table: object, section: str) -> Settings:
    """The settings of a section such as ``[train]``; what a table does not say keeps its default."""
    if not isinstance(table, Mapping):
        raise ScenarioError(f"{section} is {table!r}, but must be a table of settings")
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type] # any settings class is a dataclass
    for key in table:
        if key not in known:
            raise ScenarioError(f"{section} has no setting {key!r}; {suggest(str(key), known)}")
    return cls(**table)


def check_types(settings: Any, section: str) -> None:
    """Refuse values of the wrong type, as a settings class does first of all when it is constructed."""
    for name, wanted in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if value is not None or not _may_be_none(wanted):
            object.__setattr__(settings, name, _value(value, wanted, f"{section} {name}"))


def _value(value: Any, wanted: Any, what: str) -> Any:
    """The value, as the type that a field is annotated with."""
    choices = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    kinds = [get_origin(kind) or kind for kind in choices if kind is not NoneType]
    for kind in kinds:
        if kind is float and type(value) in (int, float):
            return _finite(float(value), what)
        if kind is tuple and isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(value)
        if kind is Mapping and isinstance(value, Mapping):
            return dict(value)
        if type(value) is kind:
            return value
    raise ScenarioError(f"{what} is {value!r}, but must be {' or '.join(_KINDS[kind] for kind in kinds)}")


def _may_be_none(wanted: Any) -> bool:
    return NoneType in get_args(wanted)


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise ScenarioError(f"{what} is {value}, but must be a finite number")
    return value


def check(good: bool, section: str, name: str, value: object, allowed: str) -> None:
    """Refuse a value of a setting, naming what is allowed."""
    if not good:
        raise ScenarioError(f"{section} {name} is {value!r}, but must be {allowed}")


def check_name(section: str, name: str, value: str, known: tuple[str, ...], *, own: bool = False) -> None:
    """Refuse a name that nothing has, naming the nearest; one's ``own`` function has a name of its own."""
    if value not in known and not (own and ":" in value):
        instead = "; your own is package.module:function" if own else ""
        raise ScenarioError(f"{section} {name} is {value!r}; {suggest(value, known)}{instead}")
