"""How a run folder is laid out (docs/run-folder.md): its files, their formats, and what run.json says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from cutwater.base.errors import FileFormatError
from cutwater.base.jsonfile import document
from cutwater.base.kinds import MOST, Named, Table, Whole
from cutwater.base.schema import described, table
from cutwater.federate.measured import AMOUNT, COUNT, TEXT

RUN = "run.json"
METRICS = "metrics.jsonl"
SCENARIO = "scenario.toml"
PROFILE = "profile.json"
PLANS, ROUNDS, MEASURED = "plans", "rounds", "measured"
"""Folders with a file for each round."""
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
LOCK = ".lock"


class Format(NamedTuple):
    """The first two fields of a JSON document."""

    format: str
    version: int

    def document(self, made: Any) -> dict[str, Any]:
        """The JSON object that stands for an object of a described class."""
        return document(*self, table(made))


RUN_FORMAT = Format("cutwater.run", 1)
ROUND_FORMAT = Format("cutwater.round", 1)
MEASURED_FORMAT = Format("cutwater.measured", 1)


def of_round(folder: str, number: int) -> str:
    """The file of a round.

    >>> of_round(PLANS, 7)
    'plans/00007.json'
    """
    return f"{folder}/{number:05d}.json"


_TEXTS = Named(TEXT)


@described("the run", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Info:
    """What a run is, as far as it is known."""

    fingerprint: Annotated[
        str, TEXT, "digest of all that the run follows from: only the same can go on with it"
    ] = ""
    parts: Annotated[Mapping[str, str], _TEXTS, "digests of the parts of it, to tell what differs"] = field(
        default_factory=dict
    )
    planner: Annotated[str, TEXT, "who plans"] = "?"
    planner_options: Annotated[Mapping[str, Any], Table(), "and with which options"] = field(
        default_factory=dict
    )
    model: Annotated[str, TEXT, "the model by name"] = ""
    data: Annotated[str, TEXT, "the data set by name"] = ""
    clients: Annotated[int | None, COUNT, "how many there are"] = None
    server_compute: Annotated[float | None, AMOUNT, "F^max in FLOPS"] = None
    seed: Annotated[int | None, Whole(-MOST, MOST), "what every random draw follows from"] = None
    versions: Annotated[Mapping[str, str], _TEXTS, "of Python and the packages that it was made with"] = (
        field(default_factory=dict)
    )
    engine: Annotated[str, TEXT, "who carried it out"] = ""
    scenario: Annotated[
        str | None,
        TEXT,
        "where the scenario was: what it names (modules, data, traces) is looked up from there",
    ] = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All of run.json as plain JSON, what is not described included."""
