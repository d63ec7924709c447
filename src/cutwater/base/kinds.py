"""What a field may hold: how a value is checked, how a file's value is read, and how both are told.

Every kind refuses in the same words: "[train] rounds is 0, but must be a whole number of at least 1".
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from cutwater.base.errors import CutwaterError, UnitError, suggest
from cutwater.base.text import shown
from cutwater.base.units import QUANTITIES, Unit, parse_quantities, parse_quantity

JsonSchema = dict[str, Any]
Refused = type[CutwaterError]

MOST = 2**63 - 1
"""The largest whole number of TOML, and of a fleet's columns."""
HUGE = 1e300
"""A bound for numbers that are added up: no sum of them is infinite."""
_DIGITS = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_SHOWN = 60


def quote(value: object) -> str:
    """A value as a sentence quotes it: from its beginning, if it is long."""
    try:
        written = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        written = hex(value) if isinstance(value, int) else type(value).__name__
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}…"


@dataclass(frozen=True)
class Kind:
    """What a field may hold; a kind of one's own overrides the methods that begin with ``_``."""

    @property
    def allowed(self) -> str:
        """What a value must be, as it follows "must be"."""
        return self._allowed()

    @property
    def written(self) -> str:
        """The same for a value as a file writes it."""
        return self._allowed()

    def take(self, value: Any) -> Any:
        """The value as a field holds it; a ValueError where it may not hold it."""
        return self._take(value)

    def check(self, value: Any, what: str, refused: Refused) -> Any:
        """The value as a field holds it, or one sentence."""
        try:
            return self._take(value)
        except ValueError:
            raise refused(f"{what} is {quote(value)}{self._instead(value)}") from None

    def parse(self, value: Any) -> Any:
        """The value as a field holds it, from how a file writes it; an error where it may not hold it."""
        return self._take(value)

    def parse_all(self, values: Sequence[Any]) -> list[Any]:
        """Many values at once, where that is quicker than one by one."""
        return list(map(self.parse, values))

    def write(self, value: Any) -> Any:
        """What a file holds for a value, the other way round."""
        return value

    def refusal(self, value: Any, what: str, refused: Refused) -> CutwaterError:
        """The sentence on a value that can't be parsed."""
        return refused(f"{what} is {quote(value)}{self._instead(value)}")

    def read(self, value: Any, what: str, refused: Refused) -> Any:
        """The value as a field holds it, from how a file writes it, or one sentence."""
        try:
            return self.parse(value)
        except (ValueError, CutwaterError):
            raise self.refusal(value, what, refused) from None

    def label(self, key: str) -> str:
        """How people write a key of this kind, in a sentence."""
        return key

    def json_schema(self) -> JsonSchema:
        """The kind as JSON Schema says it."""
        raise NotImplementedError

    def _allowed(self) -> str:
        raise NotImplementedError

    def _take(self, value: Any) -> Any:
        raise NotImplementedError

    def _instead(self, value: Any) -> str:
        return f", but must be {self._allowed()}"


@dataclass(frozen=True)
class Text(Kind):
    """Text that a file can hold; one that names a ``file`` holds no NUL.

    What names ``code`` may in Python be the code itself: a class or another callable.
    """

    empty: bool = False
    file: bool = False
    code: bool = False

    def take(self, value: Any) -> Any:
        """The text, or the code that it would name."""
        return value if self.code and callable(value) else self._take(value)

    def json_schema(self) -> JsonSchema:
        """Text."""
        return {"type": "string"} if self.empty else {"type": "string", "minLength": 1}

    def _allowed(self) -> str:
        return "the name of a file" if self.file else "text" if self.empty else "text that is not empty"

    def _take(self, value: Any) -> str:
        if not isinstance(value, str) or not (value or self.empty) or (self.file and "\0" in value):
            raise ValueError(value)
        value.encode()  # half of a character, which JSON can write down, is a UnicodeEncodeError
        return value

    def _instead(self, value: Any) -> str:
        text = isinstance(value, str) and value
        odd = "NUL in it" if text and "\0" in value else "half of a character in it"
        return f", but must be {self._allowed()}{f' without {odd}' if text else ''}"


@dataclass(frozen=True)
class ForeignText(Text):
    """Text that anybody may have written: what a terminal must not be shown becomes a mark."""

    empty: bool = True

    def _take(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(value)
        return shown(value)


@dataclass(frozen=True)
class Choice(Kind):
    """One of the known names or, where ``own`` is set, the user's own: a function, or what ``own_is`` says.

    Where ``code`` is set, in Python it may be the function itself.
    """

    known: tuple[str, ...]
    own: bool = False
    code: bool = False
    own_is: str = "function"

    def take(self, value: Any) -> Any:
        """The name, or the code that it would name."""
        return value if self.code and callable(value) else self._take(value)

    def json_schema(self) -> JsonSchema:
        """A list of names."""
        names: JsonSchema = {"type": "string", "enum": list(self.known)}
        return {"anyOf": [names, {"type": "string", "pattern": ":"}]} if self.own else names

    def _allowed(self) -> str:
        names = [*self.known, *["your own"] * self.own]
        return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))

    def _take(self, value: Any) -> str:
        if isinstance(value, str) and (value in self.known or (self.own and ":" in value)):
            return value
        raise ValueError(value)

    def _instead(self, value: Any) -> str:
        text = isinstance(value, str)
        own = f"; your own is package.module:{self.own_is}" if self.own else ""
        return f"{'' if text else ', but must be text'}: {suggest(value if text else '', self.known)}{own}"


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def json_schema(self) -> JsonSchema:
        """A flag."""
        return {"type": "boolean"}

    def _allowed(self) -> str:
        return "true or false"

    def _take(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number from ``least`` to ``most``."""

    least: int = 1
    most: int = MOST
    quoted: bool = False
    """Whether a file may write its digits as text, which is all that a CSV file has."""
    otherwise: str = ""
    """What else somebody takes, as it follows the bounds."""

    def holds(self, value: Any) -> Any:
        """Whether a number, or each of an array, is within the bounds."""
        return (value >= self.least) & (value <= self.most)

    def json_schema(self) -> JsonSchema:
        """A whole number."""
        most = {"maximum": self.most} if self.most < MOST else {}
        return {"type": "integer", "minimum": self.least} | most

    @property
    def _endless(self) -> bool:
        return self.most == MOST and self.least >= 0

    def _allowed(self) -> str:
        bounds = f"of at least {self.least}" if self._endless else f"from {self.least:,} to {self.most:,}"
        return f"a whole number {bounds}{self.otherwise}"

    def _take(self, value: Any) -> int:
        whole = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
        if whole and self.least <= value <= self.most:
            return int(value)
        raise ValueError(value)

    def parse(self, value: Any) -> int:
        """The number, from its digits where these are taken."""
        # Not str.isdigit, which takes "²", and not all that int() takes, such as the digits of other scripts.
        if self.quoted and isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        return self._take(value)

    def parse_all(self, values: Sequence[Any]) -> list[int]:
        """The numbers, at once where all are digits and nothing else."""
        if self.quoted and values and {*map(type, values)} == {str}:
            digits, lengths = "".join(values), [*map(len, values)]
            if digits.isascii() and digits.isdigit() and min(lengths) and max(lengths) < 19:
                found = list(map(int, values))
                if self.least <= min(found) and max(found) <= self.most:
                    return found
        return super().parse_all(values)

    def _instead(self, value: Any) -> str:
        # The largest number that there is, is told only where that is what is wrong.
        digits = isinstance(value, str) and value.isascii() and value.isdigit()
        beyond = self._endless and (digits or (isinstance(value, int) and value > MOST))
        return f", but must be {self._allowed()}{' and below 2**63' * beyond}"


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within bounds; ``above`` and ``below`` are bounds that it does not reach.

    Where ``most`` is infinite, so may the number be.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""

    def holds(self, value: Any) -> Any:
        """Whether a number, or each of an array, is within the bounds."""
        low, high = self._ends
        return (value >= low) & (value <= high)

    def json_schema(self) -> JsonSchema:
        """A number."""
        named = {"minimum": self.least, "maximum": self.most}
        named |= {"exclusiveMinimum": self.above, "exclusiveMaximum": self.below}
        return {"type": "number"} | {key: bound for key, bound in named.items() if bound is not None}

    def parse_all(self, values: Sequence[Any]) -> list[float]:
        """The numbers, at once where all are plain: a number that is none would leave no sum."""
        low, high = self._ends
        plain = {*map(type, values)} == {float} and math.isfinite(sum(values))
        return (
            list(values)
            if plain and low <= min(values) and max(values) <= high
            else super().parse_all(values)
        )

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The least and the largest number that it may be."""
        low = self.least if self.above is None else math.nextafter(self.above, math.inf)
        high = self.most if self.below is None else math.nextafter(self.below, -math.inf)
        widest = sys.float_info.max
        return -widest if low is None else low, widest if high is None else high

    def _allowed(self) -> str:
        most = None if self.most == math.inf else self.most
        if self.least is not None and most is not None:
            bounds = f" from {self.least:g} to {most:g}"
        else:
            named = {"of at least": self.least, "above": self.above, "below": self.below, "at most": most}
            bounds = " and".join(f" {word} {bound:g}" for word, bound in named.items() if bound is not None)
        noun = "a finite number" if self.most is None and self.below is None else "a number"
        return f"{noun}{f' of {self.unit}' if self.unit else ''}{bounds}"

    def _take(self, value: Any) -> float:
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ValueError(value)
            # A whole number may be too large for a float, and numpy's smaller floats for its bounds.
            value = int(value) if isinstance(value, Integral) else float(value)
        low, high = self._ends
        if low <= value <= high:
            return float(value)
        raise ValueError(value)


@dataclass(frozen=True)
class Quantity(Number):
    """An amount of ``per``: with its unit in a file, a plain number in Python."""

    per: Unit = "compute"

    @property
    def written(self) -> str:
        """What a file must write."""
        return QUANTITIES[self.per].words

    def parse(self, value: Any) -> float:
        """FLOPS, bits per second, bits or seconds."""
        return parse_quantity(self.per, value, self.per, or_zero=self.least == 0)

    def parse_all(self, values: Sequence[Any]) -> list[float]:
        """Each with its unit."""
        return parse_quantities(self.per, values, or_zero=self.least == 0)

    def refusal(self, value: Any, what: str, refused: Refused) -> CutwaterError:
        """What is wrong with the number or its unit."""
        try:
            parse_quantity(self.per, value, what, or_zero=self.least == 0)
        except UnitError as error:
            return error
        return super().refusal(value, what, refused)

    def json_schema(self) -> JsonSchema:
        """Text with a unit."""
        return {"type": "string", "pattern": f"^{QUANTITIES[self.per].pattern.pattern}"}


@dataclass(frozen=True)
class Table(Kind):
    """Keys and values that somebody else checks."""

    def label(self, key: str) -> str:
        """As TOML begins a table."""
        return f"[{key}]"

    def json_schema(self) -> JsonSchema:
        """A table."""
        return {"type": "object"}

    def _allowed(self) -> str:
        return "a table of keys and values"

    def _take(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError(value)
        return dict(value)


@dataclass(frozen=True)
class Named(Kind):
    """A value of one kind for each of some names."""

    each: Kind

    def json_schema(self) -> JsonSchema:
        """A table of anything of that kind."""
        return {"type": "object", "additionalProperties": self.each.json_schema()}

    def _allowed(self) -> str:
        return f"a table of names, each with {self.each.written}"

    def parse(self, value: Any) -> dict[str, Any]:
        """The values, each from how a file writes it."""
        return {shown(name): self.each.parse(one) for name, one in Table().take(value).items()}

    def write(self, value: Any) -> dict[str, Any]:
        """A table."""
        return {name: self.each.write(one) for name, one in value.items()}

    def _take(self, value: Any) -> dict[str, Any]:
        return {shown(name): self.each.take(one) for name, one in Table().take(value).items()}


@dataclass(frozen=True)
class Many(Kind):
    """A list of ``least`` or more values, all of one kind."""

    each: Kind
    least: int = 0

    def parse(self, value: Any) -> Any:
        """The values."""
        if not isinstance(value, list | tuple) or len(value) < self.least:
            raise ValueError(value)
        return tuple(self.each.parse_all(value))

    def write(self, value: Any) -> list[Any]:
        """A list."""
        return list(map(self.each.write, value))

    def refusal(self, value: Any, what: str, refused: Refused) -> CutwaterError:
        """What is wrong with the first bad one, by its place."""
        if isinstance(value, list | tuple) and len(value) >= self.least:
            for place, one in enumerate(value):
                try:
                    self.each.parse(one)
                except (ValueError, CutwaterError):
                    return self.each.refusal(one, f"{what}[{place}]", refused)
        return super().refusal(value, what, refused)

    def json_schema(self) -> JsonSchema:
        """A list."""
        return {"type": "array", "items": self.each.json_schema(), "minItems": self.least}

    def _allowed(self) -> str:
        some = f"a list of at least {self.least}" if self.least else "a list"
        return f"{some}, each {self.each.written}"

    def _take(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise ValueError(value)
        taken = tuple(self.each.take(one) for one in value)
        if len(taken) < self.least:
            raise ValueError(value)
        return taken
