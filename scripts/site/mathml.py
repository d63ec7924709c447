"""Equations: LaTeX in pages becomes MathML when the site is built, so no script and no font is needed."""

import re
from html import unescape

from latex2mathml.converter import convert

_FOUND = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


class EquationError(Exception):
    """An equation that can't be read."""


def drawn(html: str) -> str:
    """The page with every equation drawn."""
    return _FOUND.sub(lambda found: _mathml(unescape(found[3]), block=found[2] == "["), html)


def _mathml(latex: str, *, block: bool) -> str:
    try:
        made: str = convert(latex, display="block" if block else "inline")
    except Exception as error:  # the converter has no root of its errors
        raise EquationError(f"the equation {latex!r} can't be read: {error!r}") from error
    if "\\" in re.sub(r"<[^>]*>", "", made):
        raise EquationError(f"the equation {latex!r} has a command that is not known")
    return f'<div class="equation">{made}</div>' if block else made
