"""Micro-batches and codecs: a round over a grid and the stream has the bits of the round in process."""

import pytest
from collecting import run
from flower_cases import grid_of, served, settings, write_four

from cutwater.federate.verify import fedavg_without_limits
from cutwater.flower import roster
from cutwater.flower.shared_study import study_for


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)


def scenario(folder, parts, codec):
    path = write_four(folder, rounds=1, dropout=0.2, more=f'[wire]\nup = "{codec}"\ndown = "{codec}"')
    path.write_text(path.read_text().replace("batch_size = 16", f"batch_size = 16\nmicro_batches = {parts}"))
    return settings(path)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("codec", ["fp32", "lossless", "bf16", "int8"])
def test_a_round_over_a_grid_is_the_round_in_process(tmp_path, parts, codec):
    given = scenario(tmp_path, parts, codec)
    ((there,), (here,)) = served(grid_of(given), "r1", given), run(study_for(given))
    assert there.record.weights_sha256 == here.record.weights_sha256
    assert there.record.loss == here.record.loss
    assert there.record.bytes_up == here.record.bytes_up
    assert there.record.bytes_down == here.record.bytes_down
    split = [part for part in there.outcome.parts if part.mode == "split"]
    assert len({part.cut for part in there.outcome.parts}) >= 2, "the case must mix cuts"
    assert {part.schedule for part in split} == {"overlapped" if parts > 1 else "in turn"}
    assert {(part.up, part.down) for part in split} == {(codec, codec)}
    if codec in ("fp32", "lossless"):
        study = study_for(given)
        (alike,) = run(study.with_planner("splitfed", cut=2))
        (whole,) = run(fedavg_without_limits(study))
        assert {part.cut for part in whole.outcome.parts} == {len(study.model)}
        assert alike.record.weights_sha256 == here.record.weights_sha256
        assert whole.record.weights_sha256 == here.record.weights_sha256
        (other,) = run(fedavg_without_limits(study_for(scenario(tmp_path, 5 - parts, codec))))
        assert other.record.weights_sha256 != here.record.weights_sha256, "other parts, other bits"


def test_measured_phases_of_an_overlapped_session_add_up_to_its_wall_time(tmp_path):
    given = scenario(tmp_path, 4, "fp32")
    (there,) = served(grid_of(given), "r1", given)
    for part in there.outcome.parts:
        if part.mode == "split":
            steps = part.actual.total - part.actual.model_download - part.actual.model_upload
            assert 0 < steps <= there.measured.wall_seconds
            assert part.actual.overlap >= 0
            assert part.actual.round_trips > 0
