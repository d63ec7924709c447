"""Values as a scenario writes them, so that reading them back gives the very same numbers."""

from collections.abc import Callable, Mapping
from typing import Any

from cutwater.base.units import parse_compute, parse_rate, parse_size, parse_time
from cutwater.plan.fleet import NO_LIMIT, SETS, Fleet

_UNITS: Mapping[str, tuple[Callable[[object], float], tuple[tuple[str, float], ...], str]] = {
    "compute": (parse_compute, (("TFLOPS", 1e12), ("GFLOPS", 1e9)), "FLOPS"),
    "rate": (parse_rate, (("MB/s", 8e6),), "bit/s"),
    "size": (parse_size, (("GB", 8e9), ("MB", 8e6)), "bit"),
    "time": (parse_time, (("s", 1.0), ("ms", 1e-3)), "s"),
}
"""How each is read, the units that people like with their size, and the unit that is always exact."""


def quantity(kind: str, value: float) -> str:
    """The shortest text with a unit that reads back as exactly this value.

    >>> quantity("compute", 3e12), quantity("rate", 32e6)
    ('3 TFLOPS', '4 MB/s')
    """
    read, units, exact = _UNITS[kind]
    texts = [
        f"{value / scale:.{digits}g} {unit}"
        for unit, scale in units
        if value >= scale
        for digits in (4, 8, 17)
    ]
    if not texts:
        unit, scale = units[-1]
        texts = [f"{value / scale:.{digits}g} {unit}" for digits in (4, 8, 17)]
    good = [text for text in texts if "e" not in text and read(text) == value]
    return min(good, key=len) if good else f"{value!r} {exact}"


def client_row(fleet: Fleet, k: int) -> dict[str, Any]:
    """One client as the keys of a [[client]] table; what is at its default is left out."""
    up, down = float(fleet.up[k]), float(fleet.down[k])
    row: dict[str, Any] = {
        "name": fleet.names[k],
        "compute": quantity("compute", float(fleet.compute[k])),
        **({"rate": quantity("rate", up)} if up == down else {}),
        **({"up": quantity("rate", up), "down": quantity("rate", down)} if up != down else {}),
        "samples": int(fleet.samples[k]),
    }
    for key in ("epochs", "steps", "batch_size"):
        if value := int(getattr(fleet, key)[k]):
            row[key] = value
    if (least := int(fleet.min_cut[k])) > 1:
        row["min_cut"] = least
    if (memory := float(fleet.memory[k])) != NO_LIMIT:
        row["memory"] = quantity("size", memory)
    if rtt := float(fleet.rtt[k]):
        row["rtt"] = quantity("time", rtt)
    if holds := int(fleet.holds[k]):
        row["holds"] = holds
    for key in SETS:
        if some := getattr(fleet, key).get(k):
            row[key] = sorted(some)
    return row
