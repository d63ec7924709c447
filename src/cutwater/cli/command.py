"""What --help says of a command (its docstring as it stands, every argument's own line), and --debug."""

import os
from inspect import unwrap
from typing import Any, get_type_hints

from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.models import ArgumentInfo

_debugging = [False]
"""Whether --debug was given; a list, because the option's callback has nowhere else to leave it."""


def on_debug(_context: Any, _option: Any, wanted: bool) -> None:
    """What --debug does."""
    _debugging[0] |= wanted


def debug_off() -> None:
    """Before a command, nobody has asked."""
    _debugging[0] = False


def is_debugging() -> bool:
    """Whether mistakes are told with their traceback: by --debug of a command, or CUTWATER_DEBUG=1."""
    return _debugging[0] or os.environ.get("CUTWATER_DEBUG", "0") not in ("", "0")


class Command(TyperCommand):
    """A command whose help loses nothing on its way to the terminal.

    Paragraphs are wrapped anew, because lines of our source are wider than many a terminal; brackets are
    text, not markup, or a [[client]] table would vanish; and arguments keep their help, which newer releases
    of click take for their own and forget.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.append(
            TyperOption(
                param_decls=["--debug"],
                is_flag=True,
                default=False,
                expose_value=False,
                callback=on_debug,
                help="Show where in the code a mistake comes from; CUTWATER_DEBUG=1 does, too.",
            )
        )
        if self.help:
            paragraphs = self.help.split("\n\n")
            self.help = escape("\n\n".join(" ".join(text.split("\n")) for text in paragraphs))
        if self.callback is None:
            return
        hints = get_type_hints(unwrap(self.callback), include_extras=True)
        for argument in self.params:
            if isinstance(argument, TyperArgument) and argument.name in hints:
                about = getattr(hints[argument.name], "__metadata__", ())
                texts = [info.help for info in about if isinstance(info, ArgumentInfo)]
                argument.help = argument.help or next(iter(texts), None)
