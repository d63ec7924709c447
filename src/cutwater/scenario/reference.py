"""The reference of a scenario's keys, made from their descriptions, for terminals and the documentation."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cutwater.base.schema import Field, Schema
from cutwater.scenario.sections import SECTIONS, TOP

_BLOCK = re.compile(r"(<!-- (keys|fields) of ([\w-]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


class KeyRow(NamedTuple):
    """One key, as people read it."""

    key: str
    default: str
    allowed: str
    meaning: str

    @classmethod
    def of(cls, field: Field) -> "KeyRow":
        """What the description of a key says."""
        if field.needed:
            default = "needed"
        elif field.told:
            default = field.told
        else:
            default = "none" if field.default is None else f"`{json.dumps(field.default)}`"
        return cls(field.key, default, field.kind.written, field.meaning)


def rows(section: str) -> list[KeyRow]:
    """The keys of a section; of "top" those above all sections."""
    schema: Iterable[Field] = SECTIONS[section].schema if section != "top" else TOP
    return [KeyRow.of(each) for each in schema if section != "top" or each.key not in SECTIONS]


def markdown(rows: Iterable[KeyRow]) -> str:
    """A table for the documentation."""
    return _table(
        ("key", "default", "allowed", "meaning"),
        ((f"`{row.key}`", row.default, row.allowed, row.meaning) for row in rows),
    )


def fields(schema: Schema) -> str:
    """The table of a format that programs write: what kind of JSON each key has, and its meaning."""
    return _table(("key", "holds", "meaning"), ((f"`{e.key}`", _holds(e), e.meaning) for e in schema))


def _holds(field: Field) -> str:
    kind = str(field.kind.json_schema()["type"])
    return f"{kind} or null" if field.may_be_none else kind


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows)
    return f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n" + "".join(f"| {line} |\n" for line in lines)


def refreshed(text: str, others: Mapping[str, Schema]) -> str:
    """A page of the documentation with every marked table made anew; ``others`` are no sections."""

    def table(block: re.Match[str]) -> str:
        schema = others.get(block[3])
        if schema is not None and block[2] == "fields":
            made = fields(schema)
        else:
            made = markdown(rows(block[3]) if schema is None else map(KeyRow.of, schema))
        return f"{block[1]}{made}{block[4]}"

    return _BLOCK.sub(table, text)
