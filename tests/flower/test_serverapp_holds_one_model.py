"""However many rounds a ServerApp plays, it holds one set of weights: counted, not by memory."""

import gc

import torch
from flower_cases import good_node, settings
from memory_grid import MemoryGrid
from torch import nn

from cutwater.flower import roster
from cutwater.flower.server_app import serve
from cutwater.flower.shared_study import study_for

ROUNDS = 300
TWO = f"""
[model]
name = "mlp"
input = "1x8x8"
options = {{ widths = [17] }}
[server]
compute = "1 GFLOPS"
[session]
steps = 1
batch_size = 4
[[client]]
name = "phone"
compute = "1 MFLOPS"
rate = "2 MB/s"
samples = 40
[[client]]
name = "laptop"
compute = "1 GFLOPS"
rate = "2 MB/s"
samples = 40
[data]
source = "digits"
partition = "iid"
[train]
rounds = {ROUNDS}
lr = 0.001
evaluate_every = {ROUNDS}
"""


def live_models(shape) -> int:
    """Tensors of a weight's shape, each with its own memory."""
    gc.collect()
    found = [each for each in gc.get_objects() if type(each) in (torch.Tensor, nn.Parameter)]
    return len({each.untyped_storage().data_ptr() for each in found if each.shape == shape})


def test_the_number_of_live_models_does_not_grow_with_the_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.005)
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    given = settings(path, run_dir=str(tmp_path / "run"))
    study = study_for(given)
    shape = max((tensor.shape for tensor in study.initial.values()), key=torch.Size.numel)
    nodes = {11: good_node("phone", given), 12: good_node("laptop", given)}
    counted = {}

    def count(round_):
        assert round_.record.lost == {}
        if round_.record.round in (5, 50, 150, ROUNDS):
            counted[round_.record.round] = live_models(shape)

    serve(MemoryGrid(nodes), "r1", given, study=study, callbacks=[count])
    assert len(counted) == 4
    assert len(set(counted.values())) == 1, counted
