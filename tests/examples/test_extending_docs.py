"""The code in docs/extending.md runs as it stands."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from codec_ends import transfer
from collecting import run
from small_study import small_clients, small_data, small_model, small_study

import cutwater
from cutwater.extend import CodecError, Wires

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_a_planner_and_a_partition_of_ones_own():
    names = {
        "net": small_model(),
        "data": small_data(),
        "clients": [
            cutwater.Client(name="phone", compute=2e4, rate=4e4, samples=3),
            cutwater.Client(name="tablet", compute=4e4, rate=4e4, samples=30),
        ],
        "server": cutwater.Server(2e6),
        "session": cutwater.Session(steps=1, batch_size=3),
    }
    exec(BLOCKS[0], names)
    rounds = run(names["study"])
    assert {part.cut for part in rounds[0].outcome.parts} == {2}
    assert rounds[-1].record.clients == ("phone", "tablet")


def test_an_aggregator_of_ones_own():
    names: dict = {}
    exec(BLOCKS[1], names)
    study = small_study(clients=small_clients(3), train={"rounds": 1}, aggregator=names["Median"]())
    seen = []
    collect = names["MedianOfOne"].add

    def add(self, update):
        collect(self, update)
        seen.append(self.came[-1])

    names["MedianOfOne"].add = add
    (after,) = run(study)
    for name, tensor in after.progress.weights.items():
        assert torch.equal(tensor, torch.stack([one[name] for one in seen]).median(dim=0).values)


def test_a_codec_of_ones_own(monkeypatch):
    names = {"__name__": "my_codecs"}
    exec(BLOCKS[2], names)
    codec, values = names["Halves"](), np.array([[1.0, -2.5], [0.1, 60_000.0]], dtype=np.float32)
    came = transfer(codec, values, 0)
    assert np.array_equal(came, values.astype("f2").astype("f4"))
    with pytest.raises(CodecError, match="the tensor holds numbers beyond 65,504"):
        transfer(codec, values * 2, 0)
    monkeypatch.setitem(sys.modules, "my_codecs", SimpleNamespace(**names))
    study = small_study(train={"rounds": 1}, wires=Wires(up=("my_codecs:Halves",)))
    (after,) = run(study)
    assert {part.up for part in after.outcome.parts if part.cut < len(study.model)} == {"my_codecs:Halves"}
