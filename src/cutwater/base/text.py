"""Text that anybody may have written, as a terminal or a page can show it."""

import re

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
