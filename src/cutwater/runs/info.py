"""What run.json says of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import MOST, Named, Table, Whole
from cutwater.base.schema import described
from cutwater.federate.measured import AMOUNT, COUNT, TEXT

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
