"""`cutwater size`: the smallest server, or the cheapest mix of server and links, for a round of some time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cutwater.base.units import parse_time, show_compute, show_rate, show_seconds
from cutwater.cli.common import Json, ScenarioFile, print_json, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.plan.fleet import Fleet
    from cutwater.plan.prices import Prices
    from cutwater.plan.size import Size

MOST = 15
"""Links that are shown."""


def size(
    scenario: ScenarioFile,
    *,
    round_: Annotated[str, typer.Option("--round", help='How long a round may take, such as "120 s".')],
    json_: Json = False,
) -> None:
    """The smallest server with which a round takes at most so long; the inverse of planning, as exact.

    With [prices] of compute and link in the scenario, the cheapest mix of server and faster links, too. The
    server is paid for as a whole, a link for what it is faster by. Where links are shared, the smallest
    server is found within an interval, and no mix.

    Example: cutwater size examples/paper-ten.toml --round "500 s"
    """
    from cutwater.plan.size import needed
    from cutwater.scenario.file import load_scenario

    seconds = parse_time(round_, "--round")
    given = load_scenario(scenario)
    problem, prices = given.problem(), given.prices
    found = needed(problem, seconds, prices)
    smallest, why, mix = found.server, found.infeasible, found.mix
    if json_:
        had = {"scenario": str(scenario), "round": seconds, "server_now": problem.server.compute}
        alone = _json(smallest, problem.fleet, prices.cost(compute=smallest.compute)) if smallest else None
        both = _json(mix, problem.fleet, mix.cost) if mix else None
        print_json(
            had | {"server": alone, "infeasible": why, "cheapest": both, "money": prices.money or None}
        )
        return
    if smallest is not None:
        _show_server(smallest, problem.server.compute, prices)
    else:
        say(f"By the server alone: {why}.")
    if mix is not None:
        _show_mix(mix, problem.fleet, prices)


def _json(found: "Size", fleet: "Fleet", cost: float | None) -> dict[str, Any]:
    links = {fleet.names[k]: float(found.links[k]) for k in map(int, found.links.nonzero()[0])}
    return {"compute": found.compute, "at_least": found.at_least, "links": links, "cost": cost}


def _show_server(found: "Size", had: float, prices: "Prices") -> None:
    text = f"A round of {show_seconds(found.round)} takes a server of {show_compute(found.compute)} at least"
    if found.compute == 0:
        text = f"A round of {show_seconds(found.round)} takes no server at all"
    cost = prices.cost(compute=found.compute)
    paid = f" for {cost:.4g} {prices.money}" if prices.compute is not None else ""
    say(f"{text}{paid}; the scenario has {show_compute(had)}.")
    if found.at_least < found.compute:
        within = 1 - found.at_least / found.compute
        note = (
            f"Links are shared: a server that is smaller by more than {within:.2g} of it is proven too small."
        )
        say(note, style="dim")


def _show_mix(found: "Size", fleet: "Fleet", prices: "Prices") -> None:
    order = (-found.links).argsort(kind="stable")
    faster = [int(k) for k in order if found.links[k] > 0]
    say(
        f"The cheapest mix costs {found.cost:.4g} {prices.money}: a server of {show_compute(found.compute)} "
        f"and {len(faster)} faster link{'' if len(faster) == 1 else 's'}."
    )
    if not faster:
        return
    table = results_table(["Link of"], ("Faster by", "Up", "Down", f"Costs ({escape(prices.money)})"))
    for k in faster[:MOST]:
        more = float(found.links[k])
        new = (show_rate(float(column[k]) + more) for column in (fleet.up, fleet.down))
        table.add_row(escape(fleet.names[k]), show_rate(more), *new, f"{prices.cost(link=more):.3g}")
    console.print(table)
    if len(faster) > MOST:
        console.print(f"… and {len(faster) - MOST:,} more", style="dim")
