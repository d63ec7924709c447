"""A fleet from a seeded generator: the [fleet] table.

Each column is one value for all, a range ``[low, high]``, or a named distribution::

    compute = { distribution = "lognormal", median = "100 GFLOPS", sigma = 0.5 }

Every column has a random stream of its own, so that adding a column, or more clients, changes nothing else.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Annotated, Any

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.base.errors import CutwaterError, ScenarioError
from cutwater.base.kinds import Choice, JsonSchema, Kind, Many, Number, Refused, Whole, quote
from cutwater.base.schema import Field, Schema, check, described, schema_of
from cutwater.plan.fleet import FEW, Client, Fleet

MOST_CLIENTS = 10**8
"""A column of so many takes 800 MB; more is a slip of the pen."""


@described("[fleet]", ScenarioError)
@dataclass(frozen=True)
class FleetSpec:
    """The [fleet] table: how to draw any number of clients."""

    clients: Annotated[int, Whole(1, MOST_CLIENTS, quoted=True), "how many clients are drawn"]
    seed: Annotated[int, Whole(0, quoted=True), "from it follow all numbers that are drawn"]
    columns: Mapping[str, Any]
    where: str

    def __post_init__(self) -> None:
        check(self, self.where)

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
        kind = _COLUMNS[name].kind
        draw, values = _how(self.columns[name], f"{self.where} {name}", kind, ScenarioError)
        if not isinstance(kind, Whole):
            return draw(rng, size, **values)
        if "high" in values:
            values["high"] = np.nextafter(values["high"] + 1, 0)  # the high end itself can be drawn
        return np.floor(draw(rng, size, **values))


def read_fleet(table: object, where: str) -> FleetSpec:
    """Check a [fleet] table by drawing one client from it."""
    values = {"seed": 0} | FLEET.read(table, where)
    columns = {name: value for name, value in values.items() if name in _COLUMNS}
    spec = FleetSpec(values["clients"], values["seed"], columns, where)
    spec.generate(1)
    return spec


@dataclass(frozen=True)
class Drawn(Kind):
    """A column of a fleet: one value for all, a range, or a distribution."""

    each: Kind

    def _take(self, value: Any) -> Any:
        return self.each.take(value)

    def _allowed(self) -> str:
        return f"{self.each.written}, a range [low, high] or a distribution"

    def parse(self, value: Any) -> Any:
        """The column as it stands, if it can be drawn from."""
        _how(value, "a column", self.each, ScenarioError)
        return value

    def refusal(self, value: Any, what: str, refused: Refused) -> CutwaterError:
        """Why it can't."""
        try:
            _how(value, what, self.each, refused)
        except CutwaterError as error:
            return error
        return super().refusal(value, what, refused)

    def json_schema(self) -> JsonSchema:
        """Any of the three."""
        one = self.each.json_schema()
        ends: JsonSchema = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
        return {"anyOf": [one, ends, *(_schema(name, self.each).json_schema() for name in _DISTRIBUTIONS)]}


def _how(spec: Any, what: str, kind: Kind, refused: Refused) -> tuple[Callable[..., Floats], dict[str, Any]]:
    """The function that draws a column, and what it is called with."""
    if isinstance(spec, list):
        if len(spec) != 2:
            raise refused(f"{what} is {quote(spec)}, but a range must be two values, low and high")
        spec = {"distribution": "uniform", "low": spec[0], "high": spec[1]}
    if not isinstance(spec, dict):
        return _same, {"value": kind.read(spec, what, refused)}
    name = spec.get("distribution")
    values = _schema(name if isinstance(name, str) else "", kind).read(spec, what, refused)
    if len(values.get("weights", values.get("values", ()))) != len(values.get("values", ())):
        raise refused(
            f"{what} is a choice of {len(values['values'])}, but has {len(values['weights'])} weights"
        )
    if not sum(values.get("weights", ())) < np.inf:
        raise refused(
            f"{what} weights is {quote(spec['weights'])}, but must add up to a finite number: divide them all"
        )
    if values.get("low", 0) > values.get("high", np.inf):
        raise refused(
            f"{what} goes from {spec['low']!r} down to {spec['high']!r}: the low end must come first"
        )
    return _DISTRIBUTIONS[values.pop("distribution")], values


def _schema(name: str, kind: Kind) -> Schema:
    """The keys of a distribution; of one that there is not, all that there are."""
    known = tuple(_DISTRIBUTIONS)
    kinds = {"sigma": Number(above=0), "values": Many(kind, 1), "weights": Many(Number(above=0), 1)}
    keys = _PARAMETERS.get(name, tuple(dict.fromkeys(key for keys in _PARAMETERS.values() for key in keys)))
    needed = {key: "" if key != "weights" and name in known else "none" for key in keys}
    fields = [Field(key, kinds.get(key, kind), _MEANINGS[key], told=needed[key]) for key in keys]
    named = Choice((name,) if name in known else known)
    return Schema("", ScenarioError, (Field("distribution", named, "its name"), *fields))


def _same(rng: np.random.Generator, size: int, value: float) -> Floats:
    return np.full(size, value, dtype=np.float64)


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


_DISTRIBUTIONS: Mapping[str, Callable[..., Floats]] = {
    "uniform": _uniform,
    "loguniform": _loguniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "choice": _choice,
}
_PARAMETERS = {
    name: tuple(key for key in signature(draw).parameters if key not in ("rng", "size"))
    for name, draw in _DISTRIBUTIONS.items()
}
_MEANINGS = {
    "low": "the least that is drawn",
    "high": "the most that is drawn",
    "mean": "the mean before what is drawn beyond low and high becomes them",
    "std": "the standard deviation",
    "median": "the median",
    "sigma": "the standard deviation of the logarithm",
    "values": "what is chosen from",
    "weights": "how likely each is, in proportion; all the same if not given",
}
_COLUMNS = {each.key: each for each in schema_of(Client) if each.key not in ("name", *FEW)}
FLEET = Schema(
    "[fleet]",
    ScenarioError,
    (
        *(replace(each, default=0) if each.key == "seed" else each for each in schema_of(FleetSpec)),
        *(replace(each, kind=Drawn(each.kind)) for each in _COLUMNS.values()),
    ),
    schema_of(Client).either,
)
