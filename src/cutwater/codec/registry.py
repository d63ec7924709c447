"""Codecs by name, and in words for people: one that loses something is called lossy wherever it is shown."""

from collections.abc import Iterable
from typing import Any

from cutwater.base.errors import CodecError, CutwaterError, suggest
from cutwater.base.usercode import find, told
from cutwater.codec.floats import Bf16, Fp16, Fp32
from cutwater.codec.lossless import Lossless
from cutwater.codec.quantised import Quantised
from cutwater.codec.topk import TopK
from cutwater.codec.value import Codec

_FIXED: dict[str, Codec] = {
    "fp32": Fp32(),
    "lossless": Lossless(),
    "bf16": Bf16(),
    "fp16": Fp16(),
    "int8": Quantised(8),
    "int4": Quantised(4),
}
CODECS: tuple[str, ...] = (*_FIXED, "topk")
"""Those that come with Cutwater."""


def find_codec(name: str, *, keep: float = 0.1) -> Codec:
    """The codec of this name, or what a user's "package.module:function" makes when called without arguments.

    ``keep`` is the fraction of a sample's numbers that topk keeps.

    >>> find_codec("int8").size((8, 32, 32))
    Size(sample=65536, message=256)
    """
    if name == "topk":
        return TopK(keep)
    if name in _FIXED:
        return _FIXED[name]
    if ":" in name:
        return _own(name)
    raise CodecError(
        f"there is no codec {name!r}: {suggest(name, CODECS)}; your own is package.module:function"
    )


def lossy_among(names: Iterable[str]) -> tuple[str, ...]:
    """Those of some codecs that change what is learned, each once.

    >>> lossy_among(["int8", "fp32", "int8", "lossless"])
    ('int8',)
    """
    return tuple(name for name in dict.fromkeys(names) if not find_codec(name).lossless)


def lossy(name: str) -> bool | None:
    """Whether numbers may arrive changed; None of a user's own codec, which is not loaded to tell.

    >>> lossy("int8"), lossy("lossless"), lossy("package.module:function")
    (True, False, None)
    """
    return not find_codec(name).lossless if name in CODECS else None


def in_words(name: str) -> str:
    """A codec by name, and that it is lossy.

    >>> in_words("fp32"), in_words("int8"), in_words("package.module:function")
    ('fp32', 'int8 (lossy)', 'package.module:function (may be lossy)')
    """
    return name + {True: " (lossy)", None: " (may be lossy)", False: ""}[lossy(name)]


def any_lossy(up: str, down: str) -> bool:
    """Whether what is learned may differ from what is learned without codecs."""
    return lossy(up) is not False or lossy(down) is not False


def wire_in_words(schedule: str, up: str, down: str) -> str:
    """How the parts of a split step cross the cut.

    >>> wire_in_words("overlapped", "int8", "fp32")
    'overlapped; int8 (lossy) up, fp32 down'
    """
    return f"{schedule}; {in_words(up)} up, {in_words(down)} down"


def _own(name: str) -> Codec:
    make = find(name, "codec", CodecError)
    try:
        made = make()
    except CutwaterError:
        raise
    except Exception as error:  # whatever a user's function does
        raise CodecError(
            f"codec {name!r} can't be made ({told(error)}): it is called without arguments"
        ) from error
    lacking = [attribute for attribute, kind in _ATTRIBUTES.items() if not _has(made, attribute, kind)]
    if lacking:
        raise CodecError(
            f"codec {name!r} made {type(made).__name__}, of which {', '.join(lacking)} can't be used: a "
            "codec has a name, lossless and at_most (true or false), and methods size, encode and decode"
        )
    codec: Codec = made
    return codec


_ATTRIBUTES: dict[str, type | None] = {
    "name": str,
    "lossless": bool,
    "at_most": bool,
    "size": None,
    "encode": None,
    "decode": None,
}


def _has(made: Any, attribute: str, kind: type | None) -> bool:
    held = getattr(made, attribute, None)
    return callable(held) if kind is None else isinstance(held, kind)
