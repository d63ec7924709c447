"""Code of the user's own: found by name, and what it raises told in a line."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

from cutwater.base.errors import CutwaterError


def find(name: str, what: str, refused: type[CutwaterError]) -> Callable[..., Any]:
    """The function or class that "package.module:function" stands for; refused, as what it is to be, if none.

    >>> find("os.path:basename", "loss", CutwaterError)("a/b")
    'b'
    """
    module, _, path = name.partition(":")
    # An installed command does not look in the current folder, where a user's module usually is.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = attrgetter(path)(import_module(module))
    except Exception as error:  # whatever a user's module does when it is imported
        raise refused(
            f"{what} {name!r} can't be imported ({told(error)}): write package.module:function, as seen "
            "from the current folder"
        ) from error
    if not callable(found):
        raise refused(f"{what} {name!r} is {type(found).__name__}, but must be a function or class")
    made: Callable[..., Any] = found
    return made


def told(error: BaseException) -> str:
    """The kind of an error and the first line of what it says.

    >>> told(ValueError("no such thing\\nand more")), told(KeyError())
    ('ValueError: no such thing', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
