"""The reference of a scenario's keys, made from their descriptions, for terminals and the documentation."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cutwater.base.schema import Field, Schema
from cutwater.scenario.sections import SECTIONS, TOP

_BLOCK = re.compile(r"(<!-- keys of ([\w-]+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


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
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows:
        cells = (f"`{row.key}`", row.default, row.allowed, row.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def refreshed(text: str, others: Mapping[str, Schema] | None = None) -> str:
    """A page of the documentation with every marked table made anew; ``others`` are no sections."""

    def table(block: re.Match[str]) -> str:
        name = block[2]
        found = [KeyRow.of(each) for each in others[name]] if others and name in others else rows(name)
        return f"{block[1]}{markdown(found)}{block[3]}"

    return _BLOCK.sub(table, text)
