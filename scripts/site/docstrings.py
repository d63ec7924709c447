"""Docstrings as pages show them: roles of Sphinx as code, and a described field with its meaning."""

import re
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Function, Object

_DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


class Cleaned(Extension):
    """Rewrites what was read of the source; the source stays as it is."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Plain Markdown in place of roles and of double backticks; what >>> begins is code."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value).replace("``", "`")
            obj.docstring.value = _DOCTEST.sub(r"```pycon\n\g<0>\n```", text)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        """`Annotated[int, Whole(1), "what it is"]` is an int, and what it is."""
        plain, meaning = _described(attr.annotation)
        if meaning:
            attr.annotation = plain
            if attr.docstring is None:
                # A sentence, unless it begins with a symbol of the paper's.
                text = meaning[0].upper() + meaning[1:] if meaning[1:2].islower() else meaning
                attr.docstring = Docstring(f"{text}.", parent=attr, parser="google")

    def on_function(self, *, func: Function, **_: Any) -> None:
        """The same for parameters."""
        for parameter in func.parameters:
            parameter.annotation = _described(parameter.annotation)[0]

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """The same for the parameters that a dataclass makes of its fields."""
        for parameter in cls.parameters:
            parameter.annotation = _described(parameter.annotation)[0]


def _described(annotation: Any) -> tuple[Any, str]:
    """An annotation without its description, and the description."""
    if getattr(annotation, "canonical_path", "") == "dataclasses.InitVar":
        annotation = annotation.slice
    if getattr(annotation, "canonical_path", "") != "typing.Annotated":
        return annotation, ""
    elements = list(getattr(annotation.slice, "elements", []))
    texts = [str(one).strip() for one in elements[1:] if str(one).lstrip()[:1] in {'"', "'"}]
    meaning = "".join(text[1:-1] for text in texts[:1])
    return elements[0], meaning.replace("' '", "").replace('" "', "")
