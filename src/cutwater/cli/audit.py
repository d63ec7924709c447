"""`cutwater audit`: predicted against measured seconds, promised against delivered shares."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.units import show_compute, show_rate, show_seconds, show_size
from cutwater.cli.common import out as console
from cutwater.cli.common import print_json, results_table, say
from cutwater.cli.rounds import plan_error_text, say_notes
from cutwater.report.figures import GROUPS

if TYPE_CHECKING:
    from cutwater.federate.measured import Moved, Replanned
    from cutwater.federate.record import ClientRound, KeptRound
    from cutwater.runs.audit import Audit

COLUMNS = {
    "client-side training": "Client",
    "server-side training": "Server",
    "smashed data and gradients": "Smashed",
    "model transfer": "Model",
}
"""What the four kinds of time are called above their columns; --json has each phase."""
_WORTH_TELLING = 0.1
"""Seconds of enrolment: once nodes have their leases, there is next to none."""


def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, with every phase.")] = False,
) -> None:
    """Compare what the plan of each round predicted with what was measured, client by client.

    Each cell is predicted → measured. Shares are in FLOPS while the session asked for them; a server that
    has compute to spare delivers more than it promised. Bytes are of both directions. Of a run by
    `cutwater train`, where nothing is measured, the virtual clock's seconds stand in. Shares that the server
    planned anew while the last round ran, and cuts that moved, are told below it.

    Example: cutwater audit runs/fleet
    """
    from cutwater.runs.audit import audit as read

    found = read(run)
    if json_:
        print_json(found.to_json())
    else:
        show(found)


def show(found: "Audit") -> None:
    """The last round client by client, all rounds in a line each, and how far they were from their plans."""
    say_notes(found.notes)
    rounds = found.rounds
    last = next((each for each in reversed(rounds) if not each.failed), rounds[-1])
    console.print(_table(last))
    for each in rounds:
        say(line(each))
    if len(rounds) > 1 and found.summary.plan_error is not None:
        say(f"All rounds: {plan_error_text(found.summary.plan_error)}.")
    for change in last.replanned:
        say(change_text(change))
    for client in last.clients:
        for move in client.measured.moves if client.measured is not None else ():
            say(move_text(client.name, move))
    if (part := part_line(rounds)) is not None:
        say(part)
    for client in last.clients:
        if not client.done:
            say(f"without {client.name}: {client.outcome}")
    if any(client.measured and not client.measured.model_timed for client in last.clients):
        console.print("* too short to be told from Flower's polling, and counted as planned.", style="dim")
    if last.emulated:
        console.print("Devices, links and the server's speed are emulated on this machine.", style="dim")


def part_line(rounds: "Sequence[KeptRound]") -> str | None:
    """What the run was promised and got of a server that it shares with other runs; None if it does not."""
    told = [each for each in rounds if each.promised_flops is not None and each.delivered_flops is not None]
    promised = sum(each.promised_flops or 0.0 for each in told)
    if not promised:
        return None
    got = sum(each.delivered_flops or 0.0 for each in told)
    return (
        f"Of the server that it shares with other runs it was promised {promised / 1e9:,.4g} GFLOP while it "
        f"had work, and got {got / 1e9:,.4g} GFLOP ({got / promised:.1%})."
    )


def line(each: "KeptRound") -> str:
    """A round in a line."""
    if each.failed:
        return f"Round {each.round} ({each.planner}) failed: {each.failed}"
    took = show_seconds(each.actual_seconds)
    deviation = "" if each.deviation is None else f" ({each.deviation:+.1%})"
    text = f"Round {each.round} ({each.planner}): predicted {show_seconds(each.planned_seconds)}, "
    if each.wall_seconds is None:
        return f"{text}{took} by the virtual clock{deviation}"
    wall = f"{show_seconds(each.wall_seconds)} on the wall"
    if each.of_prediction is not None:
        wall += f", {each.of_prediction:.2f} x the prediction"
    if each.enrolment_seconds and each.enrolment_seconds >= _WORTH_TELLING:
        wall += f", after {show_seconds(each.enrolment_seconds)} of enrolment"
    return f"{text}measured {took}{deviation}; {wall}"


def change_text(change: "Replanned") -> str:
    """Shares that were planned anew, in a sentence."""
    ends = f"{show_seconds(change.planned_seconds)} instead of {show_seconds(change.kept_seconds)}"
    return f"shares planned anew after {show_seconds(change.at_seconds)}, as {change.why}: done by {ends}"


def move_text(client: str, move: "Moved") -> str:
    """A cut that moved, in a sentence."""
    steps = "1 mini-batch" if move.step == 1 else f"{move.step} mini-batches"
    return f"the cut of {client} moved from {move.cut} to {move.to} after {steps}"


def _table(each: "KeptRound") -> Table:
    paced = any(client.measured is not None and _rates(client) != "-" for client in each.clients)
    rates = ["Rates"] if paced else []
    table = results_table(
        ["Client"], ("Cut", "Session", *COLUMNS.values(), "Share", *rates, "Bytes", "Messages")
    )
    for client in each.clients:
        if client.done:
            table.add_row(*_row(client, paced=paced))
    return table


def _rates(client: "ClientRound") -> str:
    """Of shared lines: what was promised and what came, up and down."""
    measured = client.measured
    if measured is None:
        return "-"
    pairs = (
        ("up", measured.promised_rate_up, measured.delivered_rate_up),
        ("down", measured.promised_rate_down, measured.delivered_rate_down),
    )
    told = [
        f"{way} {show_rate(promised)} → {show_rate(delivered)}"
        for way, promised, delivered in pairs
        if promised and delivered
    ]
    return ", ".join(told) or "-"


def _row(client: "ClientRound", *, paced: bool) -> list[str]:
    from cutwater.plan.places import cut_text

    split, measured, delivered = client.mode == "split", client.measured, client.delivered_share
    cut = cut_text(client.cut, client.second_cut)
    cells = [escape(client.name), cut, _pair(client.planned_seconds, client.actual_seconds)]
    for group, phases in GROUPS.items():
        title = COLUMNS[group]
        sums = [sum(getattr(side, phase) for phase in phases) for side in (client.planned, client.actual)]
        if title == "Model" and measured is not None and not measured.model_timed:
            cells.append(f"{show_seconds(sums[0])} → *")
        else:
            cells.append(_pair(*sums) if split or title in ("Client", "Model") else "-")
    cells.append(f"{show_compute(client.share)} → {show_compute(delivered)}" if delivered else "-")
    if paced:
        cells.append(_rates(client))
    cells.append(_bytes(client))
    cells.append("-" if measured is None else show_seconds(measured.message_seconds))
    return cells


def _bytes(client: "ClientRound") -> str:
    """Both directions together; a run by an earlier release does not tell them."""
    sides = ((client.planned_bytes_up, client.planned_bytes_down), (client.bytes_up, client.bytes_down))
    told = ["?" if up is None or down is None else show_size(8 * (up + down)) for up, down in sides]
    return "-" if told == ["?", "?"] else " → ".join(told)


def _pair(predicted: float, measured: float) -> str:
    return f"{show_seconds(predicted)} → {show_seconds(measured)}"
