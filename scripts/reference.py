"""Make the tables of keys in docs/ anew, from the descriptions beside the fields (`make reference`)."""

from pathlib import Path

from cutwater.base.schema import Schema, schema_of
from cutwater.flower.run_config import RunConfig
from cutwater.scenario.reference import refreshed

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("planning.md", "training.md", "deploy.md")
OTHERS: dict[str, Schema] = {"run-config": schema_of(RunConfig)}
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
