"""`cutwater data`: who holds which samples."""

from typing import TYPE_CHECKING

from rich.markup import escape

from cutwater.cli.common import MOST, Json, ScenarioFile, err, print_json, results_table
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.data.partition import ClientSamples, Partition
    from cutwater.data.samples import Data


def data(scenario: ScenarioFile, *, json_: Json = False) -> None:
    """Show how a scenario's samples are shared out: how many each client trains on, and of which classes.

    Example: cutwater data examples/digits.toml
    """
    from cutwater.federate.from_scenario import data_settings, train_settings
    from cutwater.scenario.file import load_scenario

    loaded = load_scenario(scenario)
    settings = data_settings(loaded)
    source = settings.load(err.print)
    fleet = loaded.fleet
    held = settings.share_out(
        source, list(fleet.names), [int(n) for n in fleet.samples], train_settings(loaded).seed
    )
    rows = held.table(source.train.labels)
    if json_:
        clients = [row._asdict() for row in rows]
        print_json(
            {
                "source": source.name,
                "partition": held.method,
                "train": len(source.train),
                "test": 0 if source.test is None else len(source.test),
                "clients": clients,
            }
        )
    else:
        _show(source, held, rows)


def _show(source: "Data", held: "Partition", rows: "list[ClientSamples]") -> None:
    table = results_table(
        ["Client"], ("Train", "Test", *(str(label) for label in range(len(rows[0].classes))))
    )
    for row in rows[:MOST]:
        counts = (f"{count:,}" if count else "·" for count in row.classes)
        table.add_row(escape(row.client), f"{row.train:,}", f"{row.test:,}", *counts)
    console.print(table)
    if len(rows) > MOST:
        console.print(f"… and {len(rows) - MOST:,} more clients", style="dim")
    shared = sum(row.train + row.test for row in rows)
    console.print(
        f"{escape(source.name)}: {shared:,} of {len(source.train):,} training samples shared out "
        f"({held.method}), {0 if source.test is None else len(source.test):,} test samples"
    )
    kept = sum(row.test for row in rows)
    if kept:
        console.print(f"{kept:,} of them are held back for local tests: local_test in [data] says how many")
