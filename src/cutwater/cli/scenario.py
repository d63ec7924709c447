"""`cutwater scenario`: the keys of a scenario file, and what is wrong with one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import ScenarioError, suggest
from cutwater.cli.common import Json, complain, print_json, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.scenario.reference import KeyRow


def scenario(
    section: Annotated[
        str | None, typer.Argument(help="One section, such as train; all if not given.")
    ] = None,
    *,
    check: Annotated[
        Path | None, typer.Option(help="Name every mistake in this file instead, and exit with 2 if any.")
    ] = None,
    json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of scenario files, for editors.")
    ] = False,
    json_: Json = False,
) -> None:
    """What a scenario file may say: every key of every section, its default, and what is allowed.

    Example: cutwater scenario train

    Example: cutwater scenario --check examples/digits.toml
    """
    from cutwater.scenario import reference, sections

    names = ["top", *sections.SECTIONS]
    if section is not None and section not in names:
        raise ScenarioError(f"there is no section {section!r}: {suggest(section, names)}")
    if check is not None:
        _check(check, as_json=json_)
    elif json_schema:
        print_json(sections.json_schema())
    elif json_:
        chosen = names if section is None else [section]
        print_json({name: [row._asdict() for row in reference.rows(name)] for name in chosen})
    else:
        for name in names if section is None else [section]:
            title = sections.SECTIONS[name].title if name != "top" else "at the top of the file"
            about = f": {sections.SECTIONS[name].meaning}" if name != "top" else ""
            say(f"{title}{about}", style="bold")
            console.print(_table(reference.rows(name)), "")


def _check(path: Path, *, as_json: bool) -> None:
    from cutwater.scenario.jobs import mistakes

    found = mistakes(path)
    if as_json:
        print_json({"scenario": str(path), "mistakes": [str(mistake) for mistake in found]})
    else:
        for mistake in found:
            complain(mistake)
        if not found:
            say(f"{path} is a scenario without mistakes")
    if found:
        raise typer.Exit(2)


def _table(rows: "list[KeyRow]") -> Table:
    table = results_table(["Key"])
    for title in ("Default", "Allowed", "Meaning"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell.replace("`", "")) for cell in row))
    return table
