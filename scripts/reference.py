"""Make the tables of keys and fields in docs/ anew, from their descriptions (`make reference`)."""

from pathlib import Path

from cutwater.base.schema import Schema, schema_of
from cutwater.federate.measured import Measured, Moved, Replanned, RoundMeasured
from cutwater.federate.record import Best, ClientRound, KeptRound, Record, Spread
from cutwater.flower.run_config import RunConfig
from cutwater.plan.latency import Phases
from cutwater.plan.value import DOCUMENT, ClientPlan, Iteration
from cutwater.profile.values import Cut, Profile
from cutwater.runs.layout import Info
from cutwater.scenario.jobs import JOB, JOBS
from cutwater.scenario.reference import refreshed

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("planning.md", "training.md", "deploy.md", "run-folder.md")
OTHERS: dict[str, Schema] = {
    "run-config": schema_of(RunConfig),
    "jobs": JOBS,
    "job": JOB,
    "run": schema_of(Info),
    "profile": schema_of(Profile),
    "cut": schema_of(Cut),
    "plan": DOCUMENT,
    "client-plan": schema_of(ClientPlan),
    "turn": schema_of(Iteration),
    "phases": schema_of(Phases),
    "round": schema_of(KeptRound),
    "client-round": schema_of(ClientRound),
    "measured": schema_of(RoundMeasured),
    "client-measured": schema_of(Measured),
    "moved": schema_of(Moved),
    "replanned": schema_of(Replanned),
    "metrics": schema_of(Record),
    "best": schema_of(Best),
    "spread": schema_of(Spread),
}
"""Tables that are no section of a scenario."""


def main() -> None:
    """Write what is stale."""
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        fresh = refreshed(text, OTHERS)
        if fresh != text:
            (DOCS / page).write_text(fresh, encoding="utf-8")
            print(f"docs/{page} is fresh again")


if __name__ == "__main__":
    main()
