"""Loops as machine code, for what numpy can't do in one pass."""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit

_strict: Callable[..., Any] = partial(njit, nogil=True, error_model="numpy")
"""Strict floating point: how sums are regrouped depends on how they are compiled, and a result must have the
same bits in every process."""


def compiled(function: Callable[..., Any]) -> Any:
    """A loop as machine code without the interpreter's lock, kept beside its source or in the user's cache.

    What is kept is made anew when the file of the loop changes, and only then: a loop may call those of its
    own file, none of another.
    """
    try:
        return _strict(cache=True)(function)
    except RuntimeError:
        # Neither can be written to, as in many a container: every process compiles for itself.
        return _strict()(function)
