"""How much evidence is gathered: a little in every run of the tests, all of it where somebody asks for that.

CUTWATER_EVIDENCE=full python -m pytest tests/plan
"""

import os


def evidence(few: int, full: int) -> range:
    """Seeds of cases that are drawn: ``few`` of them, or ``full`` where CUTWATER_EVIDENCE says so."""
    return range(full if os.environ.get("CUTWATER_EVIDENCE") == "full" else few)
