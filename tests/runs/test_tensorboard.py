"""Scalars for TensorBoard, where it is installed; one sentence where it is not."""

import sys

import pytest
from collecting import run
from small_study import small_study

from cutwater.base.errors import RunError
from cutwater.runs.tensorboard import TensorBoard


def test_every_round_is_there_with_virtual_time(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = TensorBoard(tmp_path)
    steps = run(small_study(), callbacks=[board])
    board.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    for name in ("loss", "accuracy", "actual_seconds", "planned_seconds", "bytes_up"):
        found = events.Scalars(name)
        assert [event.step for event in found] == [1, 2, 3, 4]
        assert [event.value for event in found] == pytest.approx([getattr(s.record, name) for s in steps])
        assert [event.wall_time for event in found] == [step.record.virtual_seconds for step in steps]


def test_rounds_that_are_done_again_after_a_kill_appear_once(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    study = small_study()
    for first in (0, 2):
        board = TensorBoard(tmp_path)
        for step in run(study):
            if step.record.round > first:
                board(step)
        board.close()
    found = accumulator.EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [event.step for event in found] == [1, 2, 3, 4]


def test_without_tensorboard_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match=r"pip install 'cutwater\[tensorboard\]'"):
        TensorBoard(tmp_path)
