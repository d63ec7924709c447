"""`cutwater reproduce`: every table and figure of the paper's experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.cli.common import Json, err, out, print_json, progress, results_table, say


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(help="Which to make, such as clients server; all unless given.")
    ] = None,
    *,
    out_: Annotated[Path, typer.Option("--out", help="Where figures, numbers and the page go.")] = Path(
        "reproduction"
    ),
    full: Annotated[
        bool, typer.Option("--full", help="At the paper's size; training takes hours and can be resumed.")
    ] = False,
    json_: Json = False,
) -> None:
    """Make the paper's tables and figures anew, and a page with each claim beside our number.

    Open DIR/index.html afterwards; DIR/claims.json has the claims, DIR/values all numbers, DIR/figures the
    figures as PNG and SVG. Without ITEM all are made, in a few minutes; an unknown one lists them.

    Example: cutwater reproduce clients server --out reproduction
    """
    from cutwater.reproduce.catalogue import choose

    chosen = choose(items or ())  # a misspelt name is found out before anything heavy is imported
    from cutwater.reproduce.runner import all_claims
    from cutwater.reproduce.runner import reproduce as make

    with progress() as bar:
        whole = bar.add_task("reproducing", total=len(chosen))
        part = bar.add_task("", total=1)
        names = [item.name for item in chosen]

        def heard(name: str, done: int, total: int) -> None:
            bar.update(whole, completed=names.index(name))
            bar.update(part, description=f"  {name}", completed=done, total=total)

        made = make(chosen, out_, full=full, progress=heard)
    claims = all_claims(made)
    if json_:
        print_json({"out": str(out_), "items": [_item(body) for body in made], "claims": claims})
    else:
        out.print(_table(claims))
        holding = sum(claim["holds"] for claim in claims)
        others = "" if holding == len(claims) else "; the page says why the others don't"
        say(f"{holding} of {len(claims)} claims hold{others}")
        say(f"Written to {out_ / 'index.html'}")
    _warn(made)


def _item(body: dict[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("item", "source", "title", "reading", "expected", "seconds")}


def _table(claims: Sequence[dict[str, Any]]) -> Table:
    table = results_table(())
    for title in ("", "Claim", "Paper", "Here"):
        table.add_column(title, overflow="fold")
    for claim in claims:
        mark = "[green]✓[/green]" if claim["holds"] else "[yellow]✗[/yellow]"
        table.add_row(mark, *(escape(claim[key]) for key in ("claim", "paper", "ours")))
    return table


def _warn(made: Sequence[dict[str, Any]]) -> None:
    """Numbers that are not what they should be are said aloud."""
    from cutwater.reproduce.item import unmet

    for body in made:
        for e in body["expected"]:
            if not e["met"]:
                say(f"{body['item']}: {unmet(e)}", to=err, style="yellow")
