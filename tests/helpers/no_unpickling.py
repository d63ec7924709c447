"""A plugin of pytest (``-p no_unpickling``): whoever unpickles in a test fails it.

numba alone may: what it keeps of compiled code on disk is its own, much as Python's is.
"""

import os
import pickle
import sys

# Before the conftest is read, which says so as well: the bits depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

_MAY = ("numba.",)


def _refused(real):
    def refuse(*args, **more):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        assert caller.startswith(_MAY), f"{caller} has unpickled something"
        return real(*args, **more)

    return refuse


def pytest_configure(config) -> None:
    """Before any test is imported."""
    for module, name in ((pickle, "load"), (pickle, "loads"), (torch, "load")):
        setattr(module, name, _refused(getattr(module, name)))
