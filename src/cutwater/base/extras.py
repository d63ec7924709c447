"""What is installed with an extra: whoever needs it says so in one sentence, before anything is started."""

from collections.abc import Sequence
from importlib.util import find_spec

from cutwater.base.errors import EngineError

STREAM = ("cryptography", "grpc", "xxhash")
FLOWER = ("flwr", "ray", *STREAM)
"""Both of the extra "flower"."""


def missing(modules: Sequence[str]) -> list[str]:
    """Those that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def need(what: str, modules: Sequence[str]) -> None:
    """Raise an EngineError unless all are installed that something of the extra "flower" needs."""
    if lacking := missing(modules):
        raise EngineError(
            f"{what} needs {', '.join(lacking)}: install it with  pip install 'cutwater[flower]'"
        )
