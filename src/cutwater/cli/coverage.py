"""`cutwater coverage`: which models of other libraries can be cut."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cutwater.cli.common import Json, out, print_json, progress, results_table, say

if TYPE_CHECKING:
    from cutwater.coverage.case import Result


def coverage(
    models: Annotated[
        list[str] | None, typer.Argument(help="Libraries or models, such as timm; all unless given.")
    ] = None,
    *,
    seconds: Annotated[float, typer.Option(min=1, help="The time limit of a model, in CPU seconds.")] = 180,
    page: Annotated[
        Path | None, typer.Option(help="Write a page in Markdown, such as docs/coverage.md.")
    ] = None,
    json_: Json = False,
) -> None:
    """Take models of other libraries apart and check every promise that a cut makes.

    The bits of forward, loss and gradients at three cuts, in train and in eval mode; other batch sizes,
    lengths and resolutions; the user's model unchanged; halves that join. Models are tiny and have random
    weights; nothing is downloaded. A library that is not installed is skipped; pip install
    'cutwater[coverage]' has them all.

    Example: cutwater coverage timm monai --page coverage.md
    """
    from cutwater.coverage.models import all_cases
    from cutwater.coverage.page import page as make_page
    from cutwater.coverage.run import choose, run

    chosen = choose(all_cases(), models or ())
    with progress() as bar:
        task = bar.add_task("checking", total=len(chosen))
        results = run(chosen, seconds, lambda result: bar.update(task, advance=1, description=result.name))
    if page is not None:
        page.write_text(make_page(results), encoding="utf-8")
    if json_:
        print_json([result.to_json() for result in results])
        return
    out.print(_table(results))
    for result in results:
        if result.outcome != "right":
            say(f"{result.library} {result.name}: {result.outcome}. {result.reason}")


def _table(results: "list[Result]") -> Table:
    from cutwater.coverage.case import CLASSES

    table = results_table(("Library",), CLASSES)
    for library in dict.fromkeys(result.library for result in results):
        counts = Counter(result.outcome for result in results if result.library == library)
        table.add_row(library, *(str(counts[name]) for name in CLASSES))
    return table
