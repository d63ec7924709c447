"""The `cutwater` command: one registration for each command; each has a file of its own in this folder.

Command modules import torch, matplotlib and the like inside their functions, so that `cutwater --help` and
planning from a saved profile stay quick.
"""

import sys
import traceback
from errno import ENOSPC
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from cutwater.base.errors import CutwaterError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.base.speech import at_a_command_line
from cutwater.cli.audit import audit
from cutwater.cli.command import Command, debug_off, is_debugging
from cutwater.cli.common import complain, say_no_more, seen_enough
from cutwater.cli.compare import compare
from cutwater.cli.coverage import coverage
from cutwater.cli.data import data
from cutwater.cli.evaluate import evaluate
from cutwater.cli.examples import examples
from cutwater.cli.export import export
from cutwater.cli.fleet import fleet
from cutwater.cli.jobs import jobs
from cutwater.cli.plan import plan
from cutwater.cli.predict import predict
from cutwater.cli.probe import probe
from cutwater.cli.profile import profile
from cutwater.cli.report import report
from cutwater.cli.reproduce import reproduce
from cutwater.cli.runs import runs
from cutwater.cli.scaffold import scaffold
from cutwater.cli.scenario import scenario
from cutwater.cli.size import size
from cutwater.cli.sweep import sweep
from cutwater.cli.train import train
from cutwater.cli.turns import turns
from cutwater.cli.verify import verify
from cutwater.cli.web import web
from cutwater.cli.whatif import whatif

app = typer.Typer(
    name="cutwater",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Split-federated learning: cut the model for each device, pour server compute over the slow ones.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cutwater {version('cutwater')}")
        raise typer.Exit


@app.callback()
def _root(
    version_: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for command in (
    scenario,
    profile,
    plan,
    jobs,
    compare,
    sweep,
    whatif,
    size,
    data,
    train,
    verify,
    evaluate,
    predict,
    export,
    runs,
    reproduce,
    report,
    web,
    fleet,
    audit,
    probe,
    scaffold,
    turns,
    coverage,
    examples,
):
    app.command(cls=Command)(command)


@at_a_command_line()
def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    keep_freed_memory()
    debug_off()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal has no letter for is no reason to stop
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except CutwaterError as error:
        if is_debugging():
            traceback.print_exception(error)
        complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        seen_enough()
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        say_no_more()
        complain(
            CutwaterError("nothing more can be written: there is no space left; make room and run it again")
        )
        sys.exit(2)
