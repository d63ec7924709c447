"""How a run folder is laid out (docs/run-folder.md): the names of its files, and their formats."""

from typing import NamedTuple

from cutwater.federate import measured, record

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


RUN_FORMAT = Format("cutwater.run", 1)
ROUND_FORMAT = Format(record.FORMAT, record.VERSION)
MEASURED_FORMAT = Format(measured.FORMAT, measured.VERSION)


def of_round(folder: str, number: int) -> str:
    """The file of a round.

    >>> of_round(PLANS, 7)
    'plans/00007.json'
    """
    return f"{folder}/{number:05d}.json"
