"""Scenarios, nodes and references that the tests of the Flower engine share."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

pytest.importorskip(
    "flwr", reason="FLOWER IS MISSING: pip install 'cutwater[flower]', or nothing of it is tested"
)

from collecting import clocked
from flwr.app import ConfigRecord, Message, RecordDict
from memory_grid import Handler, MemoryGrid

from cutwater.base.errors import CutwaterError
from cutwater.federate.loop import Round
from cutwater.federate.study import Study
from cutwater.flower.failures import failure
from cutwater.flower.node import answer
from cutwater.flower.run_config import RunConfig
from cutwater.flower.server_app import serve
from cutwater.flower.shared_study import study_for
from cutwater.train.aggregate import Average, weights_sha256
from cutwater.train.session import State, run_both_sides

FOUR = """
[model]
name = "cnn"
input = "1x8x8"
classes = 10
options = {{ dropout = {dropout}, width = 8 }}

[server]
compute = "0.5 GFLOPS"

[session]
steps = 3
batch_size = 16

[[client]]
name = "watch"
compute = "0.002 GFLOPS"
rate = "0.5 MB/s"
samples = 90

[[client]]
name = "phone"
compute = "0.02 GFLOPS"
rate = "0.05 MB/s"
samples = 120
min_cut = 2
forbidden = [6]

[[client]]
name = "tablet"
compute = "0.2 GFLOPS"
rate = "2 MB/s"
samples = 100

[[client]]
name = "laptop"
compute = "2 GFLOPS"
rate = "4 MB/s"
samples = 150

[data]
source = "digits"
partition = "iid"

[train]
rounds = {rounds}
optimizer = "sgd"
lr = 0.05
momentum = 0.9
seed = 7
{more}
"""
"""Four clients whose best cuts differ: two are split, in two places, and two train the whole model."""


NOMINAL = '[conditions]\nestimate = "nominal"\n'
"""What is planned does not depend on how busy this machine is."""


def write_four(
    folder: Path, *, rounds: int = 2, dropout: float = 0.0, more: str = "", conditions: str = NOMINAL
) -> Path:
    path = folder / "four.toml"
    path.write_text(FOUR.format(rounds=rounds, dropout=dropout, more=more) + conditions)
    return path


def settings(path: Path, **changes: object) -> RunConfig:
    return RunConfig(**{"scenario": str(path), "wait": 5.0, "lease": False, **changes})


@lru_cache(maxsize=16)
def node_study(name: str, given: RunConfig) -> Study:
    """Every node has a study, and so a model, of its own."""
    return study_for(given)


def good_node(
    name: str,
    given: RunConfig,
    change: Callable[[RecordDict], RecordDict | None] | None = None,
    study: Study | None = None,
) -> Handler:
    """A node that really trains, in this process; ``change`` tampers with what it sends."""
    study = study or node_study(name, given)

    def handle(message: Message) -> Message | None:
        if message.metadata.message_type == "query":
            who = ConfigRecord({"client": name, "seconds": 0.0})
            return Message(RecordDict({"who": who}), reply_to=message)
        try:
            records = answer(message.content, name, {}, given, study=study)
        except CutwaterError as error:
            records = failure(error)
        records = change(records) if change else records
        return None if records is None else Message(records, reply_to=message)

    return handle


def grid_of(given: RunConfig, **tampered: Callable[[RecordDict], RecordDict | None]) -> MemoryGrid:
    names = ("watch", "phone", "tablet", "laptop")
    return MemoryGrid(
        {place: good_node(name, given, tampered.get(name)) for place, name in enumerate(names, 11)}
    )


def served(*arguments, callbacks=(), **options) -> list[Round]:
    """Every round that a ServerApp plays."""
    seen: list[Round] = []
    serve(*arguments, callbacks=[seen.append, *callbacks], **options)
    return seen


def sha256_of(given: RunConfig, names: list[str], state: State | None = None, round_: int = 1) -> str:
    """SHA-256 of what the clients of these names come to in a round, in this process."""
    return weights_sha256(trained(given, names, state, round_))


def trained(given: RunConfig, names: list[str], state: State | None = None, round_: int = 1) -> State:
    """The global weights after a round of these clients, from a state or from the start."""
    study = study_for(given)
    state = study.initial if state is None else state
    average = Average(state)
    for task in study.tasks(round_, clocked(study, round_).plan):
        if task.client in names:
            result = run_both_sides(study.job(), task, state)
            average.add(task.client, task.samples, result.state)
    return average.result()
