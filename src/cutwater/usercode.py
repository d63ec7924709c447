"""Code of the user's own: found by name, and what it raises told in a line."""

import os
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any


def find(name: str) -> Any:
    """What "package.module:function" stands for; whatever goes wrong when it is imported is raised.

    >>> find("os.path:basename")("a/b")
    'b'
    """
    module, _, path = name.partition(":")
    # An installed command does not look in the current folder, where a user's module usually is.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return attrgetter(path)(import_module(module))


def told(error: BaseException) -> str:
    """The kind of an error and the first line of what it says.

    >>> told(ValueError("no such thing\\nand more")), told(KeyError())
    ('ValueError: no such thing', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
