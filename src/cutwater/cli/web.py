"""`cutwater web`: the planner page."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from cutwater.base.errors import CutwaterError
from cutwater.cli.common import out as console
from cutwater.cli.common import say
from cutwater.web import NO_WEB_SERVER


def web(
    scenario: Annotated[
        Path | None, typer.Argument(help="A scenario to open with.", show_default="the paper's ten clients")
    ] = None,
    *,
    runs: Annotated[Path | None, typer.Option(help="A folder of runs to list, report and follow.")] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(help="A folder of saved profiles (cutwater profile … --out) to choose from."),
    ] = None,
    port: Annotated[int, typer.Option(help="0 takes any free one.", min=0, max=65535)] = 8710,
    host: Annotated[
        str | None,
        typer.Option(help="Listen there instead of on this machine alone; visitors then need the token."),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Edit a fleet, drag the server's compute, and see cuts, water level and phases change at once.

    Plans come from the same exact planner as cutwater plan. Nothing is fetched from a network, only the
    folders given here are read, and a link to the page holds the whole scenario.

    Example: cutwater web examples/paper-ten.toml --runs runs
    """
    try:
        from cutwater.web.serve import listen, make_site, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "anyio"):
            raise
        raise CutwaterError(NO_WEB_SERVER) from error
    from cutwater.runs.confined import Folder
    from cutwater.scenario.file import load_scenario

    for folder in (runs, profiles):
        if folder is not None and not folder.is_dir():
            raise CutwaterError(f"{folder} is no folder: name one that exists")
    site = make_site(
        load_scenario(scenario) if scenario else None,
        Folder(runs) if runs else None,
        Folder(profiles) if profiles else None,
    )
    listening = listen(host, port)

    def started() -> None:
        say(f"The planner page is at {listening.url}")
        console.print("End it with Ctrl-C.", style="dim")
        if browser:
            webbrowser.open(listening.url)

    serve(site, listening, started)
