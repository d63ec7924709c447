"""A table of fields, each described once beside the attribute that holds it.

::

    @described("[train]", ScenarioError)
    @dataclass(frozen=True, kw_only=True)
    class TrainSettings:
        rounds: Annotated[int, Whole(1), "rounds of global training"] = 60

        def __post_init__(self) -> None:
            check(self)

From the description follow how a table of a file is read (:func:`read`), what construction in Python refuses
(:func:`check`), the sentence for each mistake, the reference in the documentation and a JSON Schema.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, InitVar, dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from cutwater.base.errors import CutwaterError, suggest
from cutwater.base.kinds import JsonSchema, Kind, Refused, quote
from cutwater.base.speech import by_file, from_a_file

Made = TypeVar("Made")
Ways = tuple[tuple[str, ...], ...]
"""Keys of which one group must be given, and nothing of the other groups."""
NO_DEFAULT: Any = object()


@dataclass(frozen=True)
class Told:
    """How the default of a field is told where it is not a value that a file could write."""

    words: str


@dataclass(frozen=True)
class Field:
    """One key of a table."""

    key: str
    """As a file writes it."""
    kind: Kind
    meaning: str
    """What it is, for people."""
    default: Any = NO_DEFAULT
    told: str = ""
    """The default in words, where it is not a value that a file could write."""
    may_be_none: bool = False
    only_read: bool = False
    """Whether it is an argument that no attribute holds."""

    @cached_property
    def name(self) -> str:
        """The attribute that holds it."""
        return self.key.replace("-", "_")

    @property
    def needed(self) -> bool:
        """Whether a table must have it."""
        return self.default is NO_DEFAULT and not self.told

    def column(self, values: Sequence[Any]) -> list[Any]:
        """This key's values in many tables."""
        if not self.may_be_none or None not in values:
            return self.kind.parse_all(values)
        missing = None if self.needed else self.default
        return [missing if value is None else self.kind.parse(value) for value in values]

    def json_schema(self) -> JsonSchema:
        """The field as JSON Schema says it."""
        plain = isinstance(self.default, bool | int | float | str) and not self.told
        return {"description": self.meaning} | (
            self.kind.json_schema() | ({"default": self.default} if plain else {})
        )


@dataclass(frozen=True)
class Schema:
    """All keys of a table."""

    where: str
    """What sentences call the table, where nobody says otherwise."""
    refused: Refused
    fields: tuple[Field, ...]
    either: tuple[Ways, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    """Keys that people look for here, each with the reason why there is none and what to use."""
    open: bool = False
    """Whether other keys are passed over, as in files that a later release or somebody else may write."""

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def read(self, table: object, where: str | None = None, refused: Refused | None = None) -> dict[str, Any]:
        """The values of a table in a file, by attribute; those that it does not have are left out."""
        values, mistakes = self.sift(table, where, refused)
        if mistakes:
            raise mistakes[0]
        return values

    def sift(
        self, table: object, where: str | None = None, refused: Refused | None = None
    ) -> tuple[dict[str, Any], list[CutwaterError]]:
        """The values of a table, and everything that is wrong with it."""
        where, refused = where or self.where, refused or self.refused
        values: dict[str, Any] = {}
        mistakes: list[CutwaterError] = []
        if not isinstance(table, Mapping):
            return {}, [refused(f"{where} is {quote(table)}, but must be a table of keys and values")]
        # What is misspelt comes first: it is why something else is lacking.
        if not (self.open or self._by_key.keys() >= table.keys()):
            mistakes += map(refused, self.unknown(table, where))
        if self.either:
            mistakes += map(refused, self.ways_mixed({key for key in table if table[key] is not None}, where))
        for key, each in self._needed.items():
            if key in table:
                continue
            label, written = each.kind.label(key), each.kind.written
            mistakes.append(refused(f"{where} lacks {label}: add {label}, {written}"))
        for key, value in table.items():
            known = self._by_key.get(key)
            if known is None or (value is None and known.may_be_none and not known.needed):
                continue
            try:
                values[known.name] = None if value is None and known.may_be_none else known.kind.parse(value)
            except (ValueError, CutwaterError):
                mistakes.append(known.kind.refusal(value, f"{where} {key}", refused))
        return values, mistakes

    def read_all(self, tables: Sequence[object]) -> list[dict[str, Any]]:
        """Many tables, by columns where they are alike; some error, not the sentence, where one is bad."""
        rows = [table for table in tables if isinstance(table, dict)]
        keys = rows[0].keys() if rows else {}.keys()
        whole = keys >= self._needed.keys() and (self.open or keys <= self._by_key.keys())
        alike = len(rows) == len(tables) and all(row.keys() == keys for row in rows)
        if not (whole and alike) or self.either:
            return [self.read(table) for table in tables]
        there = [each for each in self.fields if each.key in keys]
        columns = [each.column([row[each.key] for row in rows]) for each in there]
        names = [each.name for each in there]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    @cached_property
    def _by_key(self) -> dict[str, Field]:
        return {each.key: each for each in self.fields}

    @cached_property
    def _needed(self) -> dict[str, Field]:
        return {each.key: each for each in self.fields if each.needed}

    def unknown(self, table: Iterable[str], where: str) -> Iterator[str]:
        """What is wrong with keys that nobody would read."""
        for key in table:
            if key in self.instead:
                yield f"{where} {key} can't be used: {self.instead[key]}"
            elif key not in self._by_key:
                yield f"{where} has an unknown key {quote(key)}: {suggest(str(key), self._by_key)}"

    def ways_mixed(self, given: set[str], where: str) -> Iterator[str]:
        """What is wrong where keys of two ways are given at once, or of none."""
        for ways in self.either:
            if tuple(key for way in ways for key in way if key in given) in ways:
                continue
            labels = {each.key: each.kind.label(each.key) for each in self.fields}
            has = " and ".join(labels[key] for way in ways for key in way if key in given)
            every = ", ".join(labels[key] for way in ways for key in way)
            wanted = ", or ".join(" and ".join(labels[key] for key in way) for way in ways)
            yield f"{where} has {has or f'none of {every}'}: give either {wanted}"

    def json_schema(self) -> JsonSchema:
        """The table as JSON Schema says it."""
        schema: JsonSchema = {
            "type": "object",
            "properties": {each.key: each.json_schema() for each in self.fields},
            "additionalProperties": self.open,
        }
        if self._needed:
            schema["required"] = list(self._needed)
        if self.either:
            schema["allOf"] = [{"oneOf": [_way(way, ways) for way in ways]} for ways in self.either]
        return schema


def _way(way: tuple[str, ...], ways: Ways) -> JsonSchema:
    others = [key for other in ways for key in other if key not in way]
    return {"required": list(way), "properties": dict.fromkeys(others, False)}


@dataclass(frozen=True)
class Nested(Kind):
    """A table inside a table: its values by key or, of a described class, an object."""

    of: Schema | type

    @property
    def schema(self) -> Schema:
        """Its keys."""
        return self.of if isinstance(self.of, Schema) else _SCHEMAS[self.of]

    def _allowed(self) -> str:
        return f"a table with {', '.join(each.key for each in self.schema)}"

    def parse(self, value: Any) -> Any:
        """The values or the object."""
        values = self.schema.read(value)
        return values if isinstance(self.of, Schema) else self.of(**values)

    def parse_all(self, values: Sequence[Any]) -> list[Any]:
        """All of them."""
        rows = self.schema.read_all(values)
        return rows if isinstance(self.of, Schema) else [self.of(**row) for row in rows]

    def write(self, value: Any) -> Any:
        """A table; None where there is none."""
        return value if value is None or isinstance(self.of, Schema) else table(value)

    def refusal(self, value: Any, what: str, refused: Refused) -> CutwaterError:
        """The first mistake, told by its own key."""
        _, mistakes = self.schema.sift(value, what, refused)
        return mistakes[0] if mistakes else super().refusal(value, what, refused)

    def json_schema(self) -> JsonSchema:
        """A table."""
        return self.schema.json_schema()


_SCHEMAS: dict[type, Schema] = {}


def described(
    where: str,
    refused: Refused,
    *,
    either: tuple[Ways, ...] = (),
    instead: Mapping[str, str] | None = None,
    dashes: bool = False,
    open: bool = False,
) -> Callable[[type[Made]], type[Made]]:
    """Make a dataclass one whose fields are described; ``dashes`` are how a file writes ``_`` in keys.

    ``open`` tables may have other keys, which are passed over.

    A field is ``name: Annotated[type, kind, "what it is"]``, with a :class:`Told` where its default needs
    words; fields that are not annotated so are no part of a file.
    """

    def register(cls: type[Made]) -> type[Made]:
        hints = get_type_hints(cls, include_extras=True)
        found = tuple(
            made
            for name, hint in hints.items()
            if (made := _field(cls, name.replace("_", "-") if dashes else name, name, hint)) is not None
        )
        _SCHEMAS[cls] = Schema(where, refused, found, either, instead or {}, open)
        return cls

    return register


def _field(cls: Any, key: str, name: str, hint: Any) -> Field | None:
    only_read = isinstance(hint, InitVar)
    hint = hint.type if isinstance(hint, InitVar) else hint
    kinds = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Kind)]
    if not kinds:
        return None
    meaning = next(one for one in hint.__metadata__ if isinstance(one, str))
    told = next((one.words for one in hint.__metadata__ if isinstance(one, Told)), "")
    held = cls.__dataclass_fields__[name]
    default = held.default if held.default_factory is MISSING else held.default_factory()
    default = NO_DEFAULT if default is MISSING else default
    optional = NoneType in get_args(hint.__origin__)
    return Field(key, kinds[0], meaning, default, told, optional, only_read)


def schema_of(cls: type) -> Schema:
    """The description of a class's fields."""
    return _SCHEMAS[cls]


def read(cls: type[Made], table: object, where: str | None = None, refused: Refused | None = None) -> Made:
    """An object of a described class from a table of a file, or one sentence on what is wrong with it."""
    values = _SCHEMAS[cls].read(table, where, refused)
    with from_a_file():
        return cls(**values)


def called(made: Any) -> str:
    """What a sentence calls an object of a described class: its table in a file, or its class in Python."""
    schema = _SCHEMAS[type(made)]
    return by_file(schema.where, type(made).__name__) if schema.where.startswith("[") else schema.where


def read_all(cls: type[Made], tables: Sequence[object]) -> list[Made]:
    """The same of many tables; an error, and not the sentence, if one is bad."""
    return [cls(**row) for row in _SCHEMAS[cls].read_all(tables)]


def table(made: Any) -> dict[str, Any]:
    """The table of an object of a described class, for a file: what :func:`read` reads back."""
    fields = (each for each in _SCHEMAS[type(made)] if not each.only_read)
    return {each.key: each.kind.write(getattr(made, each.name)) for each in fields}


def check(made: Any, where: str | None = None, given: set[str] | None = None) -> None:
    """Refuse values that a described class may not hold, and bring the others into their form.

    ``given`` are the keys that were, where that is not the attributes that are not None.
    """
    schema = _SCHEMAS[type(made)]
    where = where or called(made)
    if schema.either:
        held = {each.key for each in schema.fields if getattr(made, each.name) is not None}
        for mistake in schema.ways_mixed(held if given is None else given, where):
            raise schema.refused(mistake)
    for each in schema.fields:
        if each.only_read:
            continue
        value = getattr(made, each.name)
        if value is None and each.may_be_none:
            continue
        try:
            taken = each.kind.take(value)
        except ValueError:
            taken = each.kind.check(value, f"{where} {each.key}", schema.refused)
        if taken is not value:
            object.__setattr__(made, each.name, taken)
