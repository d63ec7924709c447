"""Text that anybody may have written: as a terminal or a page can show it, and read from a file."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from cutwater.base.errors import FileFormatError

LONGEST = 2000
"""Characters of a text that is shown."""
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a terminal's cursor or colours, turns the direction of writing, or is no character at all."""


def shown(text: str) -> str:
    """Text from a file as it can be shown: control characters become a mark, and it is not endless.

    >>> shown("c1\\x1b[31m")
    'c1\ufffd[31m'
    """
    if text.isprintable() and len(text) <= LONGEST:
        return text
    return _UNSEEN.sub("\ufffd", text[:LONGEST])


@contextmanager
def reading(path: str | PathLike[str], format_: str) -> Iterator[None]:
    """Within, a file that can't be read, or is not what it should be, is refused in one sentence."""
    try:
        yield
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not {format_}: {error}") from error
