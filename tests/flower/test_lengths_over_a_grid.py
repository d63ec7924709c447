"""Samples of different lengths: a round over a grid has the bits of the round in process."""

import pytest
from collecting import run
from flower_cases import good_node, served, settings
from memory_grid import MemoryGrid

from cutwater.flower import roster
from cutwater.flower.node import own_batches
from cutwater.flower.shared_study import study_for

RAGGED = """
[model]
name = "tied_models:Embedded"
input = "tokens=8"

[server]
compute = "2 MFLOPS"

[session]
steps = 2
batch_size = 4
labels = "stay"

[wire]
up = ["int8"]

[[client]]
compute = "20 kFLOPS"
rate = "1 MB/s"
samples = 20

[[client]]
compute = "40 kFLOPS"
rate = "1 MB/s"
samples = 20

[data]
source = "language_study:ragged_datasets"
partition = "iid"
local_test = 0
collate = "pad"

[train]
rounds = 1
lr = 0.05
loss = "tied_models:language_loss"
seed = 5
"""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)


def given(folder, text=RAGGED):
    path = folder / "ragged.toml"
    path.write_text(text)
    return settings(path, planner="splitfed-best")


def test_a_round_over_a_grid_is_the_round_in_process(tmp_path):
    about = given(tmp_path)
    grid = MemoryGrid({11: good_node("c1", about), 12: good_node("c2", about)})
    ((there,), (here,)) = served(grid, "r1", about), run(study_for(about))
    assert there.record.weights_sha256 == here.record.weights_sha256
    assert (there.record.bytes_up, there.record.loss) == (here.record.bytes_up, here.record.loss)
    assert all(part.second_cut for part in there.outcome.parts)


def test_a_nodes_own_samples_are_put_together_as_the_scenarios_are(tmp_path):
    study = study_for(given(tmp_path, RAGGED.replace('collate = "pad"', 'collate = "pad"\nlongest = 11')))
    task = study.tasks(1, run(study)[0].outcome.plan)[0]
    lengths = [inputs[0].shape for inputs, _ in own_batches("language_study:ragged_loader", study, task)]
    assert max(length for _, length in lengths) > 8
    assert study.example_batches[0].inputs[0].shape[1] == 11
