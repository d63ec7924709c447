"""Values out of JSON that anyone may have written: each of its type, or a sentence that names the field."""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

from cutwater.base.errors import FileFormatError
from cutwater.runs.confined import shown


class Fields:
    """The fields of one JSON object; asking for one that is missing or of another type raises a sentence."""

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, dict):
            raise FileFormatError(f"{what} is no JSON object")
        self._values: Mapping[str, Any] = values
        self._what = what

    def number(self, name: str) -> float:
        """A finite number."""
        found = self._values.get(name)
        return found if is_number(found) else self._refuse(name, "a finite number")

    def number_or_none(self, name: str) -> float | None:
        """A finite number; None where the field is null or missing."""
        return None if self._values.get(name) is None else self.number(name)

    def whole(self, name: str, least: int = 0, most: int = 10**18) -> int:
        """A whole number within bounds."""
        found = self._values.get(name)
        if type(found) is int and least <= found <= most:
            return found
        return self._refuse(name, f"a whole number from {least:,} to {most:,}")

    def text(self, name: str) -> str:
        """Text, as it can be shown."""
        found = self._values.get(name)
        return shown(found) if isinstance(found, str) else self._refuse(name, "text")

    def text_or_none(self, name: str) -> str | None:
        """Text; None where the field is null or missing."""
        return None if self._values.get(name) is None else self.text(name)

    def flag_or_none(self, name: str) -> bool | None:
        """True or false; None where the field is null or missing."""
        found = self._values.get(name)
        return found if found is None or isinstance(found, bool) else self._refuse(name, "true or false")

    def list(self, name: str) -> list[Any]:
        """A list of anything."""
        found = self._values.get(name)
        return found if isinstance(found, list) else self._refuse(name, "a list")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; none where the field is missing."""
        found = self.list(name) if name in self._values else []
        if not all(isinstance(one, str) for one in found):
            self._refuse(name, "a list of texts")
        return tuple(map(shown, found))

    def table(self, name: str) -> dict[str, str]:
        """Texts by name; none where the field is missing."""
        found = self._values.get(name, {})
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            self._refuse(name, "an object of texts")
        return {shown(key): shown(one) for key, one in found.items()}

    def inner(self, name: str) -> "Fields":
        """An object within this one."""
        return Fields(self._values.get(name), f"{name} of {self._what}")

    def require(self, *names: str) -> None:
        """Refuse an object in which one of these is missing, be it that null would do."""
        for name in names:
            if name not in self._values:
                self._refuse(name, "there")

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        found = repr(self._values[name])[:60] if name in self._values else "missing"
        raise FileFormatError(f"{shown(name)} of {self._what} is {found}, but must be {wanted}")


def plain(value: Any, depth: int = 4) -> Any:
    """JSON that can be shown as it is: no endless depth, length or number, no character that is none."""
    if isinstance(value, dict) and depth:
        return {shown(str(key))[:200]: plain(one, depth - 1) for key, one in list(value.items())[:200]}
    if isinstance(value, list) and depth:
        return [plain(one, depth - 1) for one in value[:200]]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if is_number(value) else None
    return shown(str(value))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether JSON holds a number that a float can hold."""
    # Python reads NaN and Infinity from JSON, and whole numbers that no float holds.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
