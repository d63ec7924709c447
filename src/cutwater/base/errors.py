"""Every error a user can cause, in one tree.

::

    CutwaterError            caught by the command line: one sentence, exit code 2
    ├── UnitError            a quantity that can't be read ("4", "4 MB", "fast")
    ├── ModelError           a model that can't be built, traced, cut or counted
    ├── FileFormatError      a file (profile, plan, scenario …) that is not what it claims to be
    ├── CodecError           a tensor that a codec can't carry, bytes it can't have made, or an unknown codec
    ├── ScenarioError        a scenario whose values make no sense
    ├── PlanError            a problem no plan can solve, or an unknown planner
    ├── DataError            data that is missing, corrupt or does not fit the model
    ├── RunError             a run that can't start, go on or resume
    └── EngineError          an engine (workers, network) that failed to carry out a session

A message names the value, what is allowed and what to do, in one sentence.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class CutwaterError(Exception):
    """The root of all errors that are the input's fault, not the program's."""


class UnitError(CutwaterError):
    """A quantity that can't be read."""


class ModelError(CutwaterError):
    """A model that can't be built, traced, cut or counted."""


class FileFormatError(CutwaterError):
    """A file that is not what it claims to be."""


class CodecError(CutwaterError):
    """A tensor that a codec can't carry, bytes that it can't have made, or a codec that does not exist."""


class ScenarioError(CutwaterError):
    """A scenario whose values make no sense."""


class PlanError(CutwaterError):
    """A problem that no plan can solve, or a planner that does not exist."""


class DataError(CutwaterError):
    """Data that is missing, corrupt or does not fit the model."""


class RunError(CutwaterError):
    """A run that can't start, go on or resume."""


class EngineError(CutwaterError):
    """An engine that failed to carry out a session."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Name what exists and, where one is close, what was probably meant.

    >>> suggest("resnet81", ["resnet18", "cnn"])
    "did you mean 'resnet18'? Known: cnn, resnet18"
    >>> suggest("bert", ["resnet18", "cnn"])
    'known are cnn, resnet18'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names)
    return f"did you mean {close[0]!r}? Known: {listed}" if close else f"known are {listed}"
