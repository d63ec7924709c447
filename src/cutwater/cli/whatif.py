"""`cutwater whatif`: what more server compute, faster links and devices, or changes of your own are worth."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cutwater.base.errors import PlanError
from cutwater.base.kinds import Choice
from cutwater.base.units import parse_compute, parse_rate, show_compute, show_rate, show_seconds
from cutwater.cli.common import Json, ScenarioFile, err, print_json, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.plan.changes import Outcome
    from cutwater.plan.prices import Prices
    from cutwater.plan.whatif import Change, Ranking

_NOTHING = 2e-8
"""Of the round: what is less is of no value, and not told apart from rounding where links are shared."""


def whatif(
    scenario: ScenarioFile,
    *,
    change: Annotated[
        list[str] | None,
        typer.Option(
            help='A change of your own, such as "all rates x1.2", "c1..c5 removed", "clients with rate < '
            '2 MB/s: rate = 2 MB/s", "server compute + 500 GFLOPS", "uplink capacity x2", "micro_batches '
            '= 4" or "all wire int8"; with semicolons between several that are made together; may be '
            "repeated."
        ),
    ] = None,
    compute: Annotated[
        str, typer.Option(help="How much more compute, at the server or a device.")
    ] = "1 GFLOPS",
    rate: Annotated[str, typer.Option(help="How much faster a link, up and down.")] = "1 MB/s",
    top: Annotated[int, typer.Option(help="How many of the best changes.", min=1, max=1000)] = 10,
    by: Annotated[
        str, typer.Option(help="What is best: seconds (off the round), or money (seconds for it).")
    ] = "seconds",
    json_: Json = False,
) -> None:
    """What changes are worth, in seconds off the round: each is the optimum of the changed fleet.

    Of one more GFLOPS at the server or a device, or one more MB/s for a client, the best of all are shown,
    and no other is better. With [prices] in the scenario they are told by seconds for money, too, or ranked
    by that.

    Example: cutwater whatif examples/paper-ten.toml --rate "1 MB/s" --change "all rates x1.2"
    """
    from cutwater.plan.changes import apply, outcomes
    from cutwater.plan.optimum import optimum
    from cutwater.plan.whatif import Increment, Ranking, ranking, why_not_ranked
    from cutwater.scenario.file import load_scenario

    Choice(("seconds", "money")).check(by, "--by", PlanError)
    increment = Increment(parse_compute(compute, "--compute"), parse_rate(rate, "--rate"))
    given = load_scenario(scenario)
    problem = given.problem()
    for text in change or ():
        apply(problem, text)  # a slip of the pen is told before any work
    why = why_not_ranked(problem) if change else None
    with err.status("planning anew"):
        if why is None:
            found = ranking(problem, increment, top=top, by=given.prices if by == "money" else None)
        else:
            found = Ranking(optimum(problem), (), 0, 0.0)
        asked = outcomes(problem, change or (), found.latency, given.prices, by_money=by == "money")
    if json_:
        print_json(_json(found, asked, given.prices, by) | {"not_ranked": why})
    else:
        _show(found, asked, given.prices)
        say(why or _others(found, given.prices, by), style="dim")
        _show_most(found, given.prices)


def _json(found: "Ranking", asked: "list[Outcome]", prices: "Prices", by: str) -> dict[str, Any]:
    most = found.most_for_money(prices)
    return {
        "latency": found.latency,
        "by": by,
        "changes": [_change(each, prices) for each in found.changes],
        "others": found.others,
        f"others_save_at_most{'_for_money' if by == 'money' else ''}": found.at_most,
        "most_for_money": None if most is None else _change(most, prices),
        "asked": [vars(each) | {"saved_per_money": each.per_money} for each in asked],
        "money": prices.money or None,
    }


def _change(change: "Change", prices: "Prices") -> dict[str, Any]:
    return vars(change) | {"cost": change.cost(prices), "saved_per_money": change.per_money(prices)}


def _show(found: "Ranking", asked: "list[Outcome]", prices: "Prices") -> None:
    console.print(f"A round takes {show_seconds(found.latency)} at the optimum.")
    if asked:
        console.print("With the changes asked for:")
        rows = [(each.change, each.saved, each.latency, each.cost, each.per_money) for each in asked]
        console.print(_table(rows, prices))
    if found.changes:
        console.print("What would be worth how much:")
        rows = [
            (_name(each), each.saved, each.latency, each.cost(prices), each.per_money(prices))
            for each in found.changes
        ]
        console.print(_table(rows, prices))


def _others(found: "Ranking", prices: "Prices", by: str) -> str:
    """What is proven of the changes that are not shown."""
    others = f"{found.others:,} other changes"
    if by == "money":
        rest = f"none of {others} that cost money saves more than {show_seconds(found.at_most)} for 1 "
        rest += prices.money
    elif found.at_most <= _NOTHING * found.latency:
        rest = f"{others} are of no value"
    else:
        rest = f"none of {others} saves more than {show_seconds(found.at_most)}"
    return f"each is planned anew; {rest}"


def _show_most(found: "Ranking", prices: "Prices") -> None:
    most = found.most_for_money(prices)
    if most is not None:
        each = show_seconds(most.per_money(prices) or 0.0)
        text = f"The most for the money, of all: {_name(most)}, {each} for 1 {prices.money}."
        say(text)


def _table(rows: "list[tuple[str, float, float, float | None, float | None]]", prices: "Prices") -> Any:
    paid = (f"Costs ({prices.money})", f"Saves for 1 {prices.money}") if prices.money else ()
    table = results_table(["Change"], ("Saves", "Round", *map(escape, paid)))
    for name, saved, latency, cost, each in rows:
        less = show_seconds(saved) if saved >= 0 else f"-{show_seconds(-saved)}"
        money = ("-" if cost is None else f"{cost:.3g}", "-" if each is None else show_seconds(each))
        table.add_row(escape(name), less, show_seconds(latency), *(money if paid else ()))
    return table


def _name(change: "Change") -> str:
    if change.kind == "server compute":
        return f"+{show_compute(change.amount)} at the server"
    if change.client is None:
        return f"+{show_rate(change.amount)} of the {change.kind}"
    if change.kind == "link":
        return f"+{show_rate(change.amount)} for {change.client}"
    return f"+{show_compute(change.amount)} on {change.client}"
