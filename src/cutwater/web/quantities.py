"""Values as a scenario writes them, so that reading them back gives the very same numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.base.kinds import Kind, Quantity
from cutwater.base.units import Unit, parse_quantities
from cutwater.plan.fleet import FEW, Fleet
from cutwater.plan.prices import Price, PriceKind
from cutwater.scenario.clients import CLIENT

_UNITS: Mapping[Unit, tuple[tuple[tuple[str, float], ...], str]] = {
    "compute": ((("TFLOPS", 1e12), ("GFLOPS", 1e9)), "FLOPS"),
    "rate": ((("MB/s", 8e6),), "bit/s"),
    "size": ((("GB", 8e9), ("MB", 8e6)), "bit"),
    "time": ((("s", 1.0), ("ms", 1e-3)), "s"),
}
"""The units that people like with their size, and the unit that is always exact."""
_DIGITS = (4, 8, 17)
"""Significant digits that are tried, one after the other."""
_NEAR = 1e-6
"""How near to a number of so many digits a value must be for its text to be tried."""


def quantity(kind: Unit, value: float) -> str:
    """The shortest text with a unit that reads back as exactly this value.

    >>> quantity("compute", 3e12), quantity("rate", 32e6)
    ('3 TFLOPS', '4 MB/s')
    """
    return quantities(kind, np.array([value]))[0]


def quantities(kind: Unit, values: Floats) -> list[str]:
    """The same of a whole column."""
    units, exact = _UNITS[kind]
    found = [""] * len(values)
    below_all = values < units[-1][1]
    for unit, scale in units:
        # Who is below every unit is written in the smallest one.
        able = (values >= scale) | (below_all if unit == units[-1][0] else False)
        for k, text in _texts(kind, values, np.flatnonzero(able), unit, scale):
            if not found[k] or len(text) < len(found[k]):
                found[k] = text
    plain = values.tolist()
    return [text or f"{value!r} {exact}" for text, value in zip(found, plain, strict=True)]


def _texts(kind: Unit, values: Floats, places: Ints, unit: str, scale: float) -> Iterator[tuple[int, str]]:
    """Who can be written exactly in a unit, with as few digits as it takes."""
    left = places
    for digits in _DIGITS:
        tried = left[_has_digits(values[left] / scale, digits)]
        texts = [f"{number:.{digits}g} {unit}" for number in (values[tried] / scale).tolist()]
        # An exponent is nothing that people write.
        tried = tried[np.array(["e" not in text for text in texts], dtype=bool)]
        texts = [text for text in texts if "e" not in text]
        same = np.array(parse_quantities(kind, texts)) == values[tried]
        yield from ((int(tried[i]), texts[i]) for i in np.flatnonzero(same))
        left = np.setdiff1d(left, tried[same], assume_unique=True)


def _has_digits(numbers: Floats, digits: int) -> Bools:
    """Whether numbers are next to ones of so many digits: only then is it worth writing them down."""
    if digits >= 15:
        return np.ones(len(numbers), dtype=bool)
    whole = numbers * 10.0 ** (digits - 1 - np.floor(np.log10(numbers)))
    return np.abs(whole - np.rint(whole)) < _NEAR


def price_text(per: Unit, price: Price) -> str:
    """A price as [prices] writes it.

    >>> price_text("compute", Price(0.02 / 1e9, "EUR", True))
    '0.02 EUR / GFLOPS / h'
    """
    (*_, (unit, scale)), exact = _UNITS[per]
    rest = f"{f' {price.currency}' if price.currency else ''} / {{}}{' / h' if price.rented else ''}"
    numbers = [f"{price.amount * scale:.{digits}g}" for digits in _DIGITS]
    texts = [number + rest.format(unit) for number in numbers]
    good = [text for text in texts if PriceKind(per).parse(text) == price]
    return good[0] if good else f"{price.amount!r}{rest.format(exact)}"


def client_columns(fleet: Fleet) -> dict[str, list[Any]]:
    """The clients by the keys of a [[client]] table; what is at its default is None."""
    columns: dict[str, list[Any]] = {"name": list(fleet.names)}
    same = fleet.up == fleet.down
    by_rate = {"rate": same, "up": ~same, "down": ~same}
    for each in CLIENT:
        if each.name in ("name", *FEW):
            continue
        values = fleet.up if each.name == "rate" else getattr(fleet, each.name)
        usual = 0 if each.needed or each.default is None else each.default
        columns[each.name] = _where(by_rate.get(each.name, values != usual), each.kind, values)
    for key in FEW:
        some = getattr(fleet, key)
        told = (some.get(k) or None for k in range(len(fleet)))
        columns[key] = [sorted(one) if isinstance(one, frozenset) else one for one in told]
    return columns


def client_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """The clients as [[client]] tables."""
    columns = client_columns(fleet)
    keys: Sequence[str] = list(columns)
    return [
        {key: cell for key, cell in zip(keys, cells, strict=True) if cell is not None}
        for cells in zip(*columns.values(), strict=True)
    ]


def _where(some: Bools, kind: Kind, values: NDArray[Any]) -> list[Any]:
    found: list[Any] = [None] * len(values)
    told = quantities(kind.per, values[some]) if isinstance(kind, Quantity) else values[some].tolist()
    for k, one in zip(np.flatnonzero(some).tolist(), told, strict=True):
        found[k] = one
    return found
