"""Micro-batches and codecs on Flower's own processes, nodes or simulation, have the bits of one process."""

import pytest
from collecting import run
from flower_cases import settings, write_four

from cutwater.fleet.supernodes import LocalFleet
from cutwater.flower.shared_study import study_for
from cutwater.runs.metrics import read

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("simulation", [False, True])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("codec", ["fp32", "lossless", "bf16", "int8"])
def test_a_deployment_has_the_bits_of_training_in_process(tmp_path, parts, codec, simulation):
    wire = f'[wire]\nup = "{codec}"\ndown = "{codec}"'
    path, folder = write_four(tmp_path, rounds=1, dropout=0.25, more=wire), tmp_path / "run"
    path.write_text(path.read_text().replace("batch_size = 16", f"batch_size = 16\nmicro_batches = {parts}"))
    (here,) = run(study_for(settings(path)))
    with LocalFleet(path, simulation=simulation) as fleet:
        fleet.run(folder, emulate=False)
    (row,) = read(folder / "metrics.jsonl")
    assert row.weights_sha256 == here.record.weights_sha256
    assert row.loss == here.record.loss
