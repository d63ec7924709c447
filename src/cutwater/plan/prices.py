"""What things cost, in any currency: `[prices]  compute = "0.02 EUR / GFLOPS / h"`."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from cutwater.base.errors import PlanError, UnitError
from cutwater.base.kinds import JsonSchema, Kind
from cutwater.base.schema import check, described
from cutwater.base.units import Unit, parse_quantity

_PRICE = re.compile(
    r"\s*(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)\s*(?P<currency>[^\s/0-9.]*)\s*/\s*"
    r"(?P<unit>[a-zA-Z]+(?:/s)?)\s*(?:/\s*(?P<time>h|hour|day|week|month|year))?\s*$"
)
_HOURS = {"h": 1.0, "hour": 1.0, "day": 24.0, "week": 168.0, "month": 730.5, "year": 8766.0}
"""Of the times that things are rented for; a month is a twelfth of 365.25 days."""


class Price(NamedTuple):
    """Money for a FLOPS or a bit per second."""

    amount: float
    currency: str = ""
    rented: bool = False
    """By the hour; else bought once."""

    @property
    def money(self) -> str:
        """What amounts at this price are in, as people write it."""
        return f"{self.currency or 'money'}{' / h' if self.rented else ''}"


@dataclass(frozen=True)
class PriceKind(Kind):
    """Money for an amount of ``per``."""

    per: Unit = "compute"

    def parse(self, value: Any) -> Price:
        """The price, from text."""
        found = _PRICE.match(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(value)
        try:
            one = parse_quantity(self.per, f"1 {found['unit']}", "a price")
        except UnitError:
            raise ValueError(value) from None
        hours = _HOURS[found["time"]] if found["time"] else 1.0
        return self._take(Price(float(found["number"]) / one / hours, found["currency"], bool(found["time"])))

    def json_schema(self) -> JsonSchema:
        """A price is written as text: money over an amount."""
        return {"type": "string", "pattern": "/"}

    def _allowed(self) -> str:
        unit = "GFLOPS" if self.per == "compute" else "MB/s"
        return f"money for an amount such as '0.02 EUR / {unit} / h' (rented) or '20 EUR / {unit}' (bought)"

    def _take(self, value: Any) -> Price:
        if not isinstance(value, Price) or not 0 <= value.amount < float("inf"):
            raise ValueError(value)
        return value


@described("[prices]", PlanError)
@dataclass(frozen=True, kw_only=True)
class Prices:
    """What more of each thing costs: all rented, or all bought, in one currency."""

    compute: Annotated[Price | None, PriceKind("compute"), "of the server's compute"] = None
    link: Annotated[Price | None, PriceKind("rate"), "of a faster link of a client, up and down"] = None
    device: Annotated[Price | None, PriceKind("compute"), "of a client's own compute"] = None
    uplink: Annotated[Price | None, PriceKind("rate"), "of what all clients share of `[uplink]`"] = None
    downlink: Annotated[Price | None, PriceKind("rate"), "the same of `[downlink]`"] = None

    def __post_init__(self) -> None:
        check(self)
        given = self.given
        for price in given[1:]:
            if (price.currency, price.rented) != (given[0].currency, given[0].rented):
                raise PlanError(
                    f"[prices] are in {given[0].money} and {price.money}, which can't be added up: give all "
                    "in one currency, all for rent (/ h, / day, / month) or all for a purchase"
                )

    @property
    def given(self) -> list[Price]:
        """Those that there are."""
        return [price for price in vars(self).values() if price is not None]

    @property
    def money(self) -> str:
        """What everything is paid in; empty where there are no prices."""
        given = self.given
        return given[0].money if given else ""

    def cost(self, **amounts: float) -> float | None:
        """The price of so much more of each (``compute``, ``link`` …); None where one of them has none."""
        total = 0.0
        for key, amount in amounts.items():
            price: Price | None = getattr(self, key)
            if amount and price is None:
                return None
            total += amount * price.amount if price is not None else 0.0
        return total
