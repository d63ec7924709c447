"""Scenario keys in pages: every one that a page writes must be one that a scenario has.

Looked at are blocks of TOML, fenced or indented, scenarios and files with [[job]] tables, and sentences that
name a key with its section: `[train] rounds`, `rounds` of `[train]`, `rounds = 3` in `[train]`.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cutwater.base.errors import suggest
from cutwater.scenario.jobs import JOB, JOBS
from cutwater.scenario.sections import SECTIONS, TOP

_BLOCK = re.compile(r"^( *)```toml([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_ANY_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^|(?<=\n\n))(?:(?: {4}[^\n]*)?\n)*(?: {4}[^\n]*)(?=\n|$)")
_HEADER = re.compile(r"^ +\[{1,2}[\w.]+\]{1,2} *(?:#.*)?$", re.MULTILINE)
"""Of a table: text that is indented and has such a line is TOML."""
_SECTION = r"`\[{1,2}(?:job\.)?(\w+)\]{1,2}"
_SECTION_FIRST = re.compile(_SECTION + r"\s(\w+)(?: = [^`]*)?`")
_KEY_FIRST = re.compile(r"`(\w+)(?: = [^`]*)?`,?\s(?:of|in|under)(?:\s[a-z\x27]+){0,2}\s" + _SECTION + "`")
_TABLES = {section.key: {field.key for field in section.schema} for section in SECTIONS.values()}
_TABLES["job"] = {field.key for field in JOB}
OTHER = "pyproject.toml"
"""A block of TOML that bears this title is no scenario."""


def unknown(page: str) -> Iterator[str]:
    """A sentence for each section or key of a page that no scenario has."""
    prose = _ANY_BLOCK.sub("", page)
    fenced = [text for _, info, text in _BLOCK.findall(page) if OTHER not in info]
    indented = [text for text in _INDENTED.findall(prose) if _HEADER.search(text)]
    for text in (*fenced, *indented):
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            yield f"a block of TOML can't be read: {error}"
            continue
        yield from _in_jobs(tables) if "job" in tables else _in_tables(tables)
    mentioned = [(key, section) for section, key in _SECTION_FIRST.findall(prose)]
    for key, section in (*mentioned, *_KEY_FIRST.findall(prose)):
        if section not in _TABLES:
            yield f"[{section}] is no section of a scenario: they are {', '.join(_TABLES)}"
        else:
            yield from _in_section(section, [key])


def _in_jobs(tables: Mapping[str, Any]) -> Iterator[str]:
    known = {field.key for field in JOBS}
    for name in tables:
        if name not in known:
            yield f"{name!r} is no key at the top of a file of jobs: {suggest(name, known)}"
    yield from _in_tables({"server": tables["server"]} if "server" in tables else {})
    for job in tables["job"] if isinstance(tables["job"], list) else [tables["job"]]:
        yield from _in_tables({name: value for name, value in job.items() if name not in _TABLES["job"]})


def _in_tables(tables: Mapping[str, Any]) -> Iterator[str]:
    known = {field.key for field in TOP}
    for name, value in tables.items():
        if name not in known:
            yield f"{name!r} is no section or key at the top of a scenario: {suggest(name, known)}"
        elif name in SECTIONS:
            for table in value if isinstance(value, list) else [value]:
                yield from _in_section(name, table)


def _in_section(section: str, keys: Collection[str]) -> Iterator[str]:
    known = _TABLES[section]
    for key in keys:
        if key not in known:
            yield f"[{section}] has no key {key!r}: {suggest(key, known)}"
