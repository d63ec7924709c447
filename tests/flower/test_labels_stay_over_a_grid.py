"""Labels that stay: a round over a grid has the bits of the round in process, and no label leaves a node."""

from dataclasses import replace

import pytest
import torch
from collecting import run
from flower_cases import good_node, grid_of, served, settings, write_four
from memory_grid import MemoryGrid

from cutwater.base.errors import RunError
from cutwater.flower import roster, wire
from cutwater.flower.node import answer
from cutwater.flower.shared_study import identity, study_for
from cutwater.plan.planners import solve
from cutwater.stream import messages


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)


def scenario(folder, parts=1, more=""):
    path = write_four(folder, rounds=1, dropout=0.2, more=more)
    length = f'batch_size = 16\nmicro_batches = {parts}\nlabels = "stay"'
    path.write_text(path.read_text().replace("batch_size = 16", length).replace("forbidden = [6]", ""))
    return settings(path)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_round_over_a_grid_is_the_round_in_process_and_that_of_fedavg(tmp_path, monkeypatch, parts):
    given = scenario(tmp_path, parts)
    sealed, seal = [], messages.seal
    monkeypatch.setattr(messages, "seal", lambda *frame: sealed.append(seal(*frame)) or sealed[-1])
    ((there,), (here,)) = served(grid_of(given), "r1", given), run(study_for(given))
    assert there.record.weights_sha256 == here.record.weights_sha256
    assert there.record.loss == here.record.loss
    assert there.record.bytes_up == here.record.bytes_up
    assert there.record.bytes_down == here.record.bytes_down
    split = [part for part in there.outcome.parts if part.mode == "split"]
    assert split
    assert all(part.second_cut > part.cut for part in split)
    assert {part.schedule for part in split} == {"in turn"}
    study = study_for(given)
    assert run(study.with_planner("fedavg"))[0].record.weights_sha256 == here.record.weights_sha256
    _no_labels(study, there, b"".join(sealed))


TIED = """
[model]
name = "tied_models:Embedded"
input = "6"

[server]
compute = "2 MFLOPS"

[session]
steps = 2
batch_size = 4
labels = "stay"

[[client]]
compute = "20 kFLOPS"
rate = "1 MB/s"
samples = 20

[[client]]
compute = "40 kFLOPS"
rate = "1 MB/s"
samples = 20

[data]
source = "language_study:datasets"
partition = "iid"
local_test = 0

[train]
rounds = 2
optimizer = "adam"
lr = 0.05
clip_norm = 0.05
loss = "tied_models:language_loss"
seed = 5
"""


def test_a_tied_model_over_a_grid_has_the_weights_of_fedavg_under_both_names(tmp_path):
    path = tmp_path / "tied.toml"
    path.write_text(TIED)
    given = settings(path, planner="splitfed-best")
    grid = MemoryGrid({11: good_node("c1", given), 12: good_node("c2", given)})
    there, here = served(grid, "r1", given), run(study_for(given).with_planner("fedavg"))
    assert [each.record.weights_sha256 for each in there] == [each.record.weights_sha256 for each in here]
    assert all(part.second_cut for each in there for part in each.outcome.parts)


def _no_labels(study, round_, sent):
    tasks = study.tasks(1, round_.outcome.plan)
    mine = [task for task in tasks if task.second_cut]
    labels = [batch for task in mine for _, batch in study.batches(task)]
    assert labels
    for batch in labels:
        for kind in (torch.int64, torch.int32, torch.uint8, torch.float32):
            assert batch.to(kind).numpy().tobytes() not in sent


def test_an_order_that_would_have_labels_go_is_refused(tmp_path):
    """A server that asks for one cut gets no labels: the node has its own word on it."""
    given = scenario(tmp_path)
    study = study_for(given)
    name = study.fleet.names[0]
    plan = solve(study.problem([study.client(name)]), "splitfed", cut="1-3")
    asked = replace(study.tasks(1, plan)[0], second_cut=0)
    half = study.job().split(asked.cut).client.state_dict()
    order = wire.Order("r1", asked, identity(study, given), "", {})
    with pytest.raises(RunError, match=f"the labels of client '{name}' stay here"):
        answer(wire.order_records(order, half), name, {}, given, study=study)
