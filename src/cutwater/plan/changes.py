"""Changes of a problem as people write them: "all rates x1.2", "c1..c5 removed", "micro_batches = 4".

A change has parts with semicolons between them, which are made together and in this order. A part is

    WHO KEY = AMOUNT      WHO KEY x 1.2      WHO KEY + AMOUNT      WHO KEY - AMOUNT      WHO removed
    server compute = AMOUNT (x, +, -)        uplink capacity, downlink capacity likewise
    micro_batches = 4     all wire int8

where WHO is `all`, names with commas between them, a range of the fleet's order such as `c1..c5`, or
`clients with rate < 2 MB/s and compute < 1 GFLOPS`, and KEY is rate (both ways), up, down, compute, rtt or
samples.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cutwater.base.arrays import Bools, Floats
from cutwater.base.errors import PlanError, suggest
from cutwater.base.kinds import Choice, Whole
from cutwater.base.units import Unit, parse_quantity
from cutwater.codec.registry import CODECS
from cutwater.plan.fleet import NO_LIMIT, Fleet
from cutwater.plan.optimum import noise, optimum
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Problem
from cutwater.plan.worth import with_wire

_KEYS: dict[str, tuple[Unit | None, tuple[str, ...]]] = {
    "rate": ("rate", ("up", "down")),
    "up": ("rate", ("up",)),
    "down": ("rate", ("down",)),
    "compute": ("compute", ("compute",)),
    "rtt": ("time", ("rtt",)),
    "samples": (None, ("samples",)),
}
"""What of a client can be changed: the unit of it (none where it is counted), and its columns."""
_KEY = rf"(?P<key>{'|'.join(_KEYS)})"
_AMOUNT = r"\s*(?P<how>[=x×*+−-])\s*(?P<amount>.+)$"
_OF_CLIENTS = re.compile(rf"(?P<who>clients\s+with\s[^:]+(?=:)|.+?)\s*:?\s+{_KEY}s?\b{_AMOUNT}")
_OF_SERVER = re.compile(r"server(?:\s+compute)?\b" + _AMOUNT)
_OF_LINK = re.compile(r"(?P<link>uplink|downlink)(?:\s+capacity)?\b" + _AMOUNT)
_PARTS = re.compile(r"(?:all\s+)?micro[_-]batches\s*=\s*(?P<count>\S+)$")
_WIRE = re.compile(r"(?:all\s+)?wires?\s*=?\s*(?P<codec>\S+)$")
_REMOVED = re.compile(r"(?P<who>.+?)\s*:?\s+removed$")
_WITH = re.compile(r"clients\s+with\s+(?P<conditions>.+)$")
_CONDITION = re.compile(rf"{_KEY}s?\s*(?P<sign><=|>=|<|>|=)\s*(?P<amount>.+)$")
_SIGNS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "=": np.equal}
EXAMPLES = "'all rates x1.2', 'c1..c5 removed', 'server compute + 500 GFLOPS' or 'micro_batches = 4'"
_SAMPLES = Whole(1, quoted=True)


Bill = dict[str, float]
"""How much more there is of what may have a price, by its name in [prices]; less is negative."""


@dataclass(frozen=True)
class Outcome:
    """What a change would do: the optimum of the changed problem."""

    change: str
    latency: float
    saved: float
    """Seconds off the round; negative where it takes longer."""
    cost: float | None
    """What it costs, where everything that there is more of has a price."""

    @property
    def per_money(self) -> float | None:
        """Seconds off the round for one unit of money; None where it costs nothing or that is not known."""
        return self.saved / self.cost if self.cost is not None and self.cost > 0 else None

    @property
    def for_money(self) -> tuple[int, float]:
        """What outcomes are sorted by where money counts."""
        if self.cost is not None and self.cost <= 0 < self.saved:
            return 0, -self.saved
        return (2, -self.saved) if self.per_money is None else (1, -self.per_money)


def outcomes(
    problem: Problem, changes: Sequence[str], latency: float, prices: Prices, *, by_money: bool = False
) -> list[Outcome]:
    """What each of these changes would do to a problem whose optimum is ``latency``, the best first.

    By money, those that save something and cost nothing come first, and last those that can't be so ranked.
    """
    found = []
    for change in changes:
        changed, bill = apply(problem, change)
        seconds = optimum(changed)
        if abs(latency - seconds) <= noise(problem) * latency:
            seconds = latency  # what differs is rounding
        cost = prices.cost(**bill) if prices.money else None
        found.append(Outcome(change, seconds, latency - seconds, cost))
    return sorted(found, key=lambda outcome: outcome.for_money if by_money else (0, -outcome.saved))


def apply(problem: Problem, change: str) -> tuple[Problem, Bill]:
    """The changed problem, and what there is more of."""
    bill: Bill = {}
    for part in (text.strip() for text in change.split(";")):
        problem, more = _part(problem, part)
        bill |= {key: bill.get(key, 0.0) + amount for key, amount in more.items()}
    return problem, bill


def _part(problem: Problem, text: str) -> tuple[Problem, Bill]:
    if found := _PARTS.match(text):
        count = Whole(1, quoted=True).read(found["count"], "micro_batches", PlanError)
        return problem.replace(session=replace(problem.session, micro_batches=count)), {}
    if found := _WIRE.match(text):
        codec = Choice(CODECS, own=True).read(found["codec"], "the codec of the wire", PlanError)
        return with_wire(problem, codec, problem.session.micro_batches), {}
    if found := _OF_SERVER.match(text):
        had = problem.server.compute
        compute = float(_changed(np.array([had]), "compute", found)[0])
        return problem.at_compute(compute), {"compute": compute - had}
    if found := _OF_LINK.match(text):
        return _with_link(problem, found)
    if found := _REMOVED.match(text):
        stay = np.flatnonzero(~_who(problem.fleet, found["who"]))
        if not stay.size:
            raise PlanError(f"the change {text!r} leaves no clients, but a plan needs at least one")
        return problem.replace(clients=problem.fleet.some(stay)), {}
    if found := _OF_CLIENTS.match(text):
        return _with_columns(problem, found)
    raise PlanError(f"the change {text!r} can't be read: write {EXAMPLES}, with semicolons between several")


def _with_link(problem: Problem, found: re.Match[str]) -> tuple[Problem, Bill]:
    """Another capacity of a link that all clients share."""
    link = found["link"]
    way = link.removesuffix("link")
    had: float = getattr(problem.band, way)
    if had == NO_LIMIT:
        raise PlanError(
            f"the change {found.string!r} is of a link that is not shared: add [{link}] to the scenario"
        )
    new = float(_changed(np.array([had]), "rate", found)[0])
    return problem.replace(band=replace(problem.band, **{way: new})), {link: new - had}


def _with_columns(problem: Problem, found: re.Match[str]) -> tuple[Problem, Bill]:
    """Other numbers of some clients."""
    fleet, (unit, names) = problem.fleet, _KEYS[found["key"]]
    who = _who(fleet, found["who"])
    columns = {name: getattr(fleet, name).copy() for name in names}
    more = 0.0
    for column in columns.values():
        new = _changed(column[who].astype(np.float64), unit, found)
        more += float((new - column[who]).sum())
        column[who] = new if unit is not None else np.maximum(np.rint(new), 1)
    bill = {"link": more / 2} if unit == "rate" else {"device": more} if unit == "compute" else {}
    return problem.replace(clients=fleet.replace(**columns)), bill


def _changed(had: Floats, unit: Unit | None, found: re.Match[str]) -> Floats:
    """The amounts after a change."""
    how, amount, text = found["how"], found["amount"], found.string
    if how in "x×*":
        try:
            times = float(amount)
        except ValueError:
            times = float("nan")
        if not 0 < times < float("inf"):
            raise PlanError(
                f"the change {text!r} is by {amount!r}, but must be by a number above 0, such as x1.2"
            )
        return had * times
    value = _amount(unit, amount, f"the amount of the change {text!r}")
    if how in "-−":
        if (had <= value).any():
            raise PlanError(
                f"the change {text!r} leaves nothing, or less, of what there is: take away less, or use "
                "'removed'"
            )
        return had - value
    return np.full_like(had, value) if how == "=" else had + value


def _amount(unit: Unit | None, amount: str, what: str) -> float:
    if unit is None:
        return float(_SAMPLES.read(amount, what, PlanError))
    return parse_quantity(unit, amount, what, or_zero=unit == "time")


def _who(fleet: Fleet, text: str) -> Bools:
    """The clients that a change is of."""
    text = text.strip()
    if text in ("all", "all clients"):
        return np.ones(len(fleet), dtype=bool)
    chosen: Bools
    if found := _WITH.match(text):
        conditions = re.split(r"\s+and\s+", found["conditions"])
        chosen = np.logical_and.reduce([_so(fleet, condition, text) for condition in conditions])
        return chosen
    chosen = np.zeros(len(fleet), dtype=bool)
    places = {name: k for k, name in enumerate(fleet.names)}
    for word in (each.strip() for each in text.split(",")):
        first, dots, last = word.partition("..")
        ends = [
            _place(places, name.strip())
            for name in ((first, last) if dots and word not in places else (word,))
        ]
        if ends[0] > ends[-1]:
            raise PlanError(f"the range {word!r} ends before it begins: clients are in the fleet's order")
        chosen[ends[0] : ends[-1] + 1] = True
    return chosen


def _so(fleet: Fleet, condition: str, text: str) -> Bools:
    """The clients of which a condition is true."""
    found = _CONDITION.match(condition)
    if found is None:
        raise PlanError(
            f"the condition {condition!r} of {text!r} can't be read: write such as 'rate < 2 MB/s', with "
            "'and' between several"
        )
    unit, names = _KEYS[found["key"]]
    # The rate of a link that is not the same both ways is that of its slower way.
    value = np.min([getattr(fleet, name) for name in names], axis=0)
    chosen: Bools = _SIGNS[found["sign"]](value, _amount(unit, found["amount"], f"the limit of {text!r}"))
    return chosen


def _place(places: dict[str, int], name: str) -> int:
    if name not in places:
        raise PlanError(f"the fleet has no client {name!r}: {suggest(name, list(places)[:50])}")
    return places[name]
