"""Code of the user's own: found by name, and what it raises told in a line."""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from typing import Any

from cutwater.base.errors import CutwaterError

_OURS = str(Path(__file__).parents[1])
_beside: list[str] = []
"""Where the scenario is that was read last, if one was."""


def look_beside(folder: str | os.PathLike[str]) -> None:
    """From now on, look for modules in this folder first (a scenario's, which names them)."""
    _beside[:] = [os.path.abspath(folder)]


def find(name: str, what: str, refused: type[CutwaterError]) -> Callable[..., Any]:
    """The function or class that "package.module:function" stands for; refused, as what it is to be, if none.

    It is looked for beside the scenario, then in the current folder, then where Python looks.

    >>> find("os.path:basename", "loss", CutwaterError)("a/b")
    'b'
    """
    module, _, path = name.partition(":")
    # An installed command looks in neither of these folders, where a user's modules usually are.
    folders = [*_beside, os.getcwd()]
    if sys.path[: len(folders)] != folders:
        sys.path[:] = [*folders, *(place for place in sys.path if place not in folders)]
    try:
        found = attrgetter(path)(import_module(module))
    except Exception as error:  # whatever a user's module does when it is imported
        raise refused(
            f"{what} {name!r} can't be imported ({told(error)}): write package.module:function, as seen "
            "from the scenario's folder or the current one"
        ) from error
    _check_is_the_one(name, what, module, refused)
    if not callable(found):
        raise refused(f"{what} {name!r} is {type(found).__name__}, but must be a function or class")
    made: Callable[..., Any] = found
    return made


def _check_is_the_one(name: str, what: str, module: str, refused: type[CutwaterError]) -> None:
    """Python imports a name once: another scenario's module of the same name would pass for this one's."""
    top = module.partition(".")[0]
    held = getattr(sys.modules.get(top), "__file__", None)
    meant = next((file for place in _beside if (file := Path(place, f"{top}.py")).is_file()), None)
    if held and meant and os.path.exists(held) and not os.path.samefile(held, meant):
        raise refused(
            f"{what} {name!r} is meant to be in {meant}, but {top} was imported from {held} before: give "
            "one of them another name, or use a process for each"
        )


@contextmanager
def blamed(refused: type[CutwaterError], sentence: Callable[[str], str]) -> Iterator[None]:
    """Within, whatever a user's code raises is told in one sentence, made of what :func:`told` says of it."""
    try:
        yield
    except CutwaterError:
        raise  # it is one already
    except Exception as error:
        raise refused(sentence(told(error))) from error


def told(error: BaseException) -> str:
    """The kind of an error, the first line of what it says, and where in the user's code it came from.

    >>> told(ValueError("no such thing\\nand more")), told(KeyError())
    ('ValueError: no such thing', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    place = where(error)
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"{text}, at {place}" if place else text


def where(error: BaseException) -> str | None:
    """File and line of the last step of an error that is in the user's own code; None where none is."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return f"{_short(error.filename)}:{error.lineno}"
    steps = [step for step in extract_tb(error.__traceback__) if _is_users(step.filename)]
    return f"{_short(steps[-1].filename)}:{steps[-1].lineno}" if steps else None


def _is_users(file: str) -> bool:
    installed = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return os.path.isfile(file) and not os.path.abspath(file).startswith((_OURS, *installed))


def _short(file: str) -> str:
    path = os.path.abspath(file)
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)
