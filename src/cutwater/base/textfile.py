"""Text files of a user's, of whatever format."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from cutwater.base.errors import FileFormatError


@contextmanager
def reading(path: str | PathLike[str], format_: str) -> Iterator[None]:
    """Within, a file that can't be read, or is not what it should be, is refused in one sentence."""
    try:
        yield
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not {format_}: {error}") from error
