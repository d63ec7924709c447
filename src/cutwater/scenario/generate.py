"""A fleet from a seeded generator: the [fleet] table.

Each column is one value for all, a range ``[low, high]``, or a named distribution::

    compute = { distribution = "lognormal", median = "100 GFLOPS", sigma = 0.5 }

Every column has a random stream of its own, so that adding a column, or more clients, changes nothing else.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import ScenarioError, suggest
from cutwater.base.units import parse_compute, parse_rate, parse_size
from cutwater.plan.fleet import Fleet
from cutwater.scenario.keys import as_table, check_keys, number, required, shown, whole

Floats = NDArray[np.float64]
Read = Callable[[Any, str], float]

_READ: Mapping[str, Read] = {
    "compute": parse_compute,
    "rate": parse_rate,
    "up": parse_rate,
    "down": parse_rate,
    "memory": parse_size,
    "samples": whole,
    "epochs": whole,
    "steps": whole,
    "batch_size": whole,
    "min_cut": whole,
}
_WHOLE = ("samples", "epochs", "steps", "batch_size", "min_cut")
KEYS = ("clients", "seed", *_READ)
MOST_CLIENTS = 10**8
"""A column of so many takes 800 MB; more is a slip of the pen."""


@dataclass(frozen=True)
class FleetSpec:
    """The [fleet] table: how to draw any number of clients."""

    clients: int
    seed: int
    columns: Mapping[str, Any]
    where: str

    def generate(self, count: int | None = None) -> Fleet:
        """The fleet, or one of another size whose first clients are the same."""
        size = self.clients if count is None else count
        if size > MOST_CLIENTS:
            raise ScenarioError(
                f"{self.where} is asked for {size:,} clients, but draws {MOST_CLIENTS:,} at most: use fewer"
            )
        drawn: dict[str, Any] = {name: self._column(name, size) for name in self.columns}
        if "rate" in drawn:
            drawn["up"] = drawn["down"] = drawn.pop("rate")
        return Fleet.from_columns(**drawn)

    def _column(self, name: str, size: int) -> Floats:
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        what = f"{self.where} {name}"
        drawn = _draw(self.columns[name], what, _READ[name], rng, size, whole=name in _WHOLE)
        return np.floor(drawn) if name in _WHOLE else drawn


def read_fleet(table: object, where: str) -> FleetSpec:
    """Check a [fleet] table by drawing one client from it."""
    table = as_table(table, where)
    check_keys(table, KEYS, where)
    clients = whole(required(table, "clients", where, "30"), f"{where} clients", most=MOST_CLIENTS)
    seed = whole(table.get("seed", 0), f"{where} seed", least=0)
    for key, example in (("compute", '["50 GFLOPS", "300 GFLOPS"]'), ("samples", "[361, 3578]")):
        required(table, key, where, example)
    rates = {"rate", "up", "down"} & table.keys()
    if rates not in ({"rate"}, {"up", "down"}):
        given = " and ".join(sorted(rates)) or "no rate"
        raise ScenarioError(
            f'{where} has {given}: give rate, such as ["2 MB/s", "12 MB/s"], or both up and down'
        )
    spec = FleetSpec(clients, seed, {key: table[key] for key in _READ if key in table}, where)
    spec.generate(1)
    return spec


def _draw(spec: Any, what: str, read: Read, rng: np.random.Generator, size: int, *, whole: bool) -> Floats:
    if isinstance(spec, list):
        if len(spec) != 2:
            raise ScenarioError(f"{what} is {spec!r}, but a range must be two values, low and high")
        spec = {"distribution": "uniform", "low": spec[0], "high": spec[1]}
    if not isinstance(spec, dict):
        return np.full(size, read(spec, what), dtype=np.float64)
    name = required(spec, "distribution", what, '"uniform"')
    if not isinstance(name, str) or name not in _DISTRIBUTIONS:
        raise ScenarioError(f"{what} has no distribution {name!r}: {suggest(str(name), _DISTRIBUTIONS)}")
    keys, draw = _DISTRIBUTIONS[name]
    check_keys(spec, ("distribution", *keys), what)
    values = {}
    for key in keys:
        if key == "weights" and key not in spec:
            continue
        value = required(spec, key, what, "one")
        values[key] = _parameter(key, value, f"{what} {key}", read)
    if len(values.get("weights", values.get("values", ()))) != len(values.get("values", ())):
        raise ScenarioError(
            f"{what} is a choice of {len(values['values'])}, but has {len(values['weights'])} weights"
        )
    if not sum(values.get("weights", ())) < np.inf:
        raise ScenarioError(
            f"{what} weights is {shown(spec['weights'])}, but must add up to a finite number: divide them all"
        )
    if values.get("low", 0) > values.get("high", np.inf):
        raise ScenarioError(
            f"{what} goes from {spec['low']!r} down to {spec['high']!r}: the low end must come first"
        )
    if whole and "high" in values:
        values["high"] = np.nextafter(values["high"] + 1, 0)  # the high end itself can be drawn
    return draw(rng, size, **values)


def _parameter(key: str, value: Any, what: str, read: Read) -> Any:
    if key == "sigma":
        return number(value, what)
    if key in ("values", "weights"):
        if not isinstance(value, list) or not value:
            raise ScenarioError(f"{what} is {value!r}, but must be a list")
        return [read(item, what) if key == "values" else number(item, what) for item in value]
    return read(value, what)


def _uniform(rng: np.random.Generator, size: int, low: float, high: float) -> Floats:
    return rng.uniform(low, high, size)


def _loguniform(rng: np.random.Generator, size: int, low: float, high: float) -> Floats:
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def _normal(rng: np.random.Generator, size: int, mean: float, std: float, low: float, high: float) -> Floats:
    return np.clip(rng.normal(mean, std, size), low, high)


def _lognormal(rng: np.random.Generator, size: int, median: float, sigma: float) -> Floats:
    with np.errstate(over="ignore"):  # the fleet names the client whose amount is infinite
        return np.asarray(median * np.exp(sigma * rng.standard_normal(size)))


def _choice(
    rng: np.random.Generator, size: int, values: list[float], weights: list[float] | None = None
) -> Floats:
    chances = np.ones(len(values)) if weights is None else np.array(weights)
    return np.asarray(rng.choice(np.array(values, dtype=np.float64), size, p=chances / chances.sum()))


_DISTRIBUTIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Floats]]] = {
    "uniform": (("low", "high"), _uniform),
    "loguniform": (("low", "high"), _loguniform),
    "normal": (("mean", "std", "low", "high"), _normal),
    "lognormal": (("median", "sigma"), _lognormal),
    "choice": (("values", "weights"), _choice),
}
