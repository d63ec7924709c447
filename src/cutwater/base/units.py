"""Quantities as people write them: "3000 GFLOPS", "4 MB/s", "512 kB", "40 ms".

Inside Cutwater compute is in FLOPS, rates are in bits per second, sizes in bits and times in seconds, always
plain floats.
A bare number is refused: whether 4 means bits or bytes is a factor of eight.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from cutwater.base.errors import UnitError

Unit = Literal["compute", "rate", "size", "time"]

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALE |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_UNITS = {"B": 8.0, "byte": 8.0, "bytes": 8.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0}
"""Bits or seconds of those units that are not the ones of Cutwater."""
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+)"
"""Separators stand between thousands alone: where a comma is meant as a point, it is a factor of ten."""
_NUMBER = rf"\s*([-+]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?nan|[-+]?inf)\s*"
_PLAIN = re.compile(r"^([0-9]{1,40}(?:\.[0-9]{1,40})?) ([a-zA-Z/]+)$", re.MULTILINE)
_LEAST, _MOST = 1e-6, 1e30
"""Beyond these nothing is measured in FLOPS or bits, and arithmetic would overflow."""


class Written(NamedTuple):
    """How people write an amount, as a pattern and in words, and the unit that it is in Cutwater."""

    pattern: re.Pattern[str]
    words: str
    unit: str


QUANTITIES: Mapping[Unit, Written] = {
    "compute": Written(
        re.compile(_NUMBER + r"([kKMGTP]?)(FLOPS|FLOP/s|Flops|flops|Flop/s)\s*$"),
        "a number with a unit such as '100 GFLOPS' or '1.5 TFLOPS'",
        "FLOPS",
    ),
    "rate": Written(
        re.compile(_NUMBER + r"([KMGT]i|[kKMGT]?)(bits?|b|B|bytes?)(?:/s|ps)\s*$"),
        "a number with a unit such as '4 MB/s' or '32 Mbit/s'",
        "bit/s",
    ),
    "size": Written(
        re.compile(_NUMBER + r"([KMGT]i|[kKMGT]?)(bits?|b|B|bytes?)\s*$"),
        "a number with a unit such as '512 MB' or '2 GiB'",
        "bit",
    ),
    "time": Written(
        re.compile(_NUMBER + r"()(s|sec|seconds?|ms|us|µs|min|h)\s*$"),
        "a number with a unit such as '40 ms' or '1.5 s'",
        "s",
    ),
}


def parse_quantity(kind: Unit, text: object, what: str, *, or_zero: bool = False) -> float:
    """FLOPS, bits per second, bits or seconds from text; zero only with ``or_zero``."""
    written = QUANTITIES[kind]
    match = written.pattern.match(text) if isinstance(text, str) else None
    if match is None:
        raise UnitError(f"{what} is {text!r}, but must be {written.words}")
    number, prefix, unit = match.groups()
    value = float(number.replace(",", "").replace("_", "")) * (_SCALE[prefix] * _UNITS.get(unit, 1.0))
    if not (_LEAST <= value <= _MOST or (or_zero and value == 0)):
        allowed = f"{'0 or ' if or_zero else ''}{_LEAST:g} to {_MOST:g} {written.unit}"
        raise UnitError(f"{what} is {text!r}, but must be a finite number from {allowed}")
    return value


def parse_quantities(kind: Unit, texts: Sequence[object], *, or_zero: bool = False) -> list[float]:
    """Many quantities, at once where all are plain numbers with a unit: the very same as one by one.

    >>> parse_quantities("rate", ["4 MB/s", "32 Mbit/s"])
    [32000000.0, 32000000.0]
    """
    found = _all_plain(texts)
    if found is None:
        return [parse_quantity(kind, text, kind, or_zero=or_zero) for text in texts]
    sizes = {unit: parse_quantity(kind, f"1 {unit}", kind) for unit in {unit for _, unit in found}}
    values = [float(number) * sizes[unit] for number, unit in found]
    if min(values) >= _LEAST and max(values) <= _MOST:
        return values
    return [parse_quantity(kind, text, kind, or_zero=or_zero) for text in texts]


def _all_plain(texts: Sequence[object]) -> list[tuple[str, str]] | None:
    """The numbers and units of texts that have one line each and nothing else; None if one has not."""
    if not texts or not all(type(text) is str for text in texts):
        return None
    lines = "\n".join(texts)  # type: ignore[arg-type]
    found = _PLAIN.findall(lines)
    return found if len(found) == len(texts) == lines.count("\n") + 1 else None


def parse_compute(text: object, what: str = "compute") -> float:
    """FLOPS from text.

    >>> parse_compute("3000 GFLOPS"), parse_compute("1,500 GFLOPS")
    (3000000000000.0, 1500000000000.0)
    """
    return parse_quantity("compute", text, what)


def parse_rate(text: object, what: str = "rate") -> float:
    """Bits per second from text; a capital B means bytes.

    >>> parse_rate("4 MB/s") == parse_rate("32 Mbit/s") == 32e6
    True
    """
    return parse_quantity("rate", text, what)


def parse_size(text: object, what: str = "size") -> float:
    """Bits from text; a capital B means bytes.

    >>> parse_size("512 kB")
    4096000.0
    """
    return parse_quantity("size", text, what)


def parse_time(text: object, what: str = "time") -> float:
    """Seconds from text.

    >>> parse_time("40 ms"), parse_time("2 min")
    (0.04, 120.0)
    """
    return parse_quantity("time", text, what)


def show_compute(flops: float) -> str:
    """FLOPS for people.

    >>> show_compute(1.484e12)
    '1.48 TFLOPS'
    """
    return _show(flops, "FLOPS")


def show_rate(bits_per_second: float) -> str:
    """A rate for people, in bytes.

    >>> show_rate(32e6)
    '4 MB/s'
    """
    return _show(bits_per_second / 8, "B/s")


def show_size(bits: float) -> str:
    """A size for people, in bytes.

    >>> show_size(32 * 54_139_356)
    '217 MB'
    """
    return _show(bits / 8, "B")


def show_seconds(seconds: float) -> str:
    """A duration for people.

    >>> show_seconds(976.4), show_seconds(0.0042), show_seconds(999.6), show_seconds(0.99999)
    ('976 s', '4.2 ms', '1,000 s', '1 s')
    """
    if not math.isfinite(seconds):
        return "never"
    if seconds >= 999.5:
        return f"{seconds:,.0f} s"
    if seconds >= 0.9995 or seconds == 0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 0.9995e-3 else f"{seconds * 1e6:.3g} µs"


def _show(value: float, unit: str) -> str:
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
