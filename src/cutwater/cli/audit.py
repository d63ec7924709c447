"""`cutwater audit`: predicted against measured seconds, promised against delivered shares."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.units import show_compute, show_seconds, show_size
from cutwater.cli.common import out as console
from cutwater.cli.common import print_json, results_table
from cutwater.cli.rounds import plan_error_text, say_notes

if TYPE_CHECKING:
    from cutwater.federate.record import ClientRound, KeptRound
    from cutwater.runs.audit import Audit

GROUPS = {
    "Client": ("client_forward", "client_backward"),
    "Server": ("server_forward", "server_backward"),
    "Smashed": ("smashed_upload", "gradient_download"),
    "Model": ("model_download", "model_upload"),
}
"""The columns that phases are summed up in; --json has them one by one."""


def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    *,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON, with every phase.")] = False,
) -> None:
    """Compare what the plan of each round predicted with what was measured, client by client.

    Each cell is predicted → measured. Shares are in FLOPS while the session asked for them; a server that
    has compute to spare delivers more than it promised. Bytes are of both directions. Of a run by
    `cutwater train`, where nothing is measured, the virtual clock's seconds stand in.

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
        console.print(line(each), markup=False, soft_wrap=True)
    if len(rounds) > 1 and found.summary.plan_error is not None:
        console.print(f"All rounds: {plan_error_text(found.summary.plan_error)}.", soft_wrap=True)
    for client in last.clients:
        if not client.done:
            console.print(f"without {client.name}: {client.outcome}", markup=False, soft_wrap=True)
    if any(client.measured and not client.measured.model_timed for client in last.clients):
        console.print("* too short to be told from Flower's polling, and counted as planned.", style="dim")
    if last.emulated:
        console.print("Devices, links and the server's speed are emulated on this machine.", style="dim")


def line(each: "KeptRound") -> str:
    """A round in a line."""
    if each.failed:
        return f"Round {each.round} ({each.planner}) failed: {each.failed}"
    took = show_seconds(each.actual_seconds)
    deviation = "" if each.deviation is None else f" ({each.deviation:+.1%})"
    text = f"Round {each.round} ({each.planner}): predicted {show_seconds(each.planned_seconds)}, "
    if each.wall_seconds is None:
        return f"{text}{took} by the virtual clock{deviation}"
    wall = f"{show_seconds(each.wall_seconds)} on the wall, with Flower's messages"
    return f"{text}measured {took}{deviation}; {wall}"


def _table(each: "KeptRound") -> Table:
    table = results_table(["Client"], ("Cut", "Session", *GROUPS, "Share", "Bytes", "Messages"))
    for client in each.clients:
        if client.done:
            table.add_row(*_row(client))
    return table


def _row(client: "ClientRound") -> list[str]:
    split, measured, delivered = client.mode == "split", client.measured, client.delivered_share
    cells = [escape(client.name), str(client.cut), _pair(client.planned_seconds, client.actual_seconds)]
    for title, phases in GROUPS.items():
        sums = [sum(getattr(side, phase) for phase in phases) for side in (client.planned, client.actual)]
        if title == "Model" and measured is not None and not measured.model_timed:
            cells.append(f"{show_seconds(sums[0])} → *")
        else:
            cells.append(_pair(*sums) if split or title in ("Client", "Model") else "-")
    cells.append(f"{show_compute(client.share)} → {show_compute(delivered)}" if delivered else "-")
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
