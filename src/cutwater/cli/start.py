"""Where the `cutwater` command begins: with next to nothing imported, so that it can be stopped at once."""

import os
import sys


def main() -> None:
    """Run the command line; whoever interrupts it early gets no traceback either."""
    try:
        _open_what_is_closed()
        from cutwater.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _open_what_is_closed() -> None:
    """A stream that was closed (`>&-`) is none at all: what is written to it is for nobody."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
