"""Codecs in words for people: wherever a codec is shown that loses something, it is called lossy."""

from cutwater.codec.registry import CODECS, find_codec


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
