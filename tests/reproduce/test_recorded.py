"""Recorded trainings of EfficientNetV2-M: means of seeds, times to a level, and whose runs are taken."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cutwater.base.errors import RunError
from cutwater.reproduce.catalogue import choose
from cutwater.reproduce.paper_setup import MODEL
from cutwater.reproduce.record import record
from cutwater.reproduce.recorded import Recorded, RecordedTraining, recorded
from cutwater.reproduce.training import PLANNERS, load_data, make_study, train

(ITEM,) = choose(["accuracy"])
PAPER = ITEM.full.rounds
TINY = replace(ITEM.quick, rounds=2)
ROUND = {"fedavg": 100.0, "alternating": 6.0, "exact": 5.0}
"""Seconds of a round of the synthetic trainings."""


def synthetic(seed, accuracy, *, every=2, rounds=None, slower=1.0):
    """A training that was tested after every so many rounds."""
    tested = rounds or tuple(every * (n + 1) for n in range(len(accuracy)))
    return RecordedTraining(
        seed=seed,
        rounds=tested,
        accuracy=tuple(accuracy),
        weights_sha256="00",
        seconds={planner: tuple(each * slower * n for n in tested) for planner, each in ROUND.items()},
        done=tested[-1],
        loss=tuple(2.0 / n for n in range(1, tested[-1] + 1)),
        wall_hours=1.0,
        versions={"torch": "2"},
    )


def whole(seed, last=0.95):
    return synthetic(seed, [0.5, 0.85, 0.92, *[0.93] * 26, last])


def accuracy_claim(of):
    return next(claim for claim in of.claims(PAPER) if claim.claim.startswith("EfficientNetV2 approaches"))


def time_claim(of):
    return next(claim for claim in of.claims(PAPER) if claim.claim == "EfficientNetV2-M: time to 0.8 and 0.9")


def test_the_curve_is_the_mean_over_the_rounds_that_all_seeds_tested():
    one = synthetic(1, [0.2, 0.6, 0.8], rounds=(2, 4, 6))
    other = synthetic(2, [0.1, 0.4, 1.0], rounds=(1, 2, 4), slower=3.0)
    both = Recorded(lr=0.05, trainings=(one, other))
    assert both.curve.rounds == (2, 4)
    assert both.curve.accuracy.tolist() == pytest.approx([0.3, 0.8])
    assert both.curve.seconds["exact"].tolist() == pytest.approx([20.0, 40.0])
    assert (both.done, both.curve.seeds) == (4, 2)


def test_time_to_a_level_is_that_of_the_first_tested_round_of_the_mean():
    both = Recorded(0.05, (synthetic(1, [0.7, 0.9, 0.9]), synthetic(2, [0.8, 0.8, 0.7])))
    assert both.curve.time_to(0.8, "fedavg") == pytest.approx(400.0), "0.75, then 0.85"
    assert both.curve.time_to(0.75, "exact") == pytest.approx(10.0), "at the level is enough"
    assert both.curve.time_to(0.86, "exact") is None
    assert "0.9 was never reached at a tested round" in time_claim(both).ours
    assert not time_claim(both).holds


def test_the_times_are_told_for_fedavg_algorithm_1_and_the_optimal_plan(quick_values):
    kept = Recorded(0.05, (whole(1), whole(2)))
    text = (
        "0.8 was reached at a tested round after 4 rounds, which takes FedAvg 400.0 s, Algorithm 1 24.0 s, "
        "the optimal plan 20.0 s; 0.9 was reached at a tested round after 6 rounds, which takes FedAvg "
        "600.0 s, Algorithm 1 36.0 s, the optimal plan 30.0 s"
    )
    assert time_claim(kept).ours == text
    assert time_claim(kept).holds
    values = replace(quick_values("accuracy"), recorded=kept)
    assert text in ITEM.reading(values)
    assert time_claim(kept) in ITEM.claims(values)


def test_sfl_that_takes_as_long_as_fedavg_does_not_hold():
    slow = replace(whole(1), seconds=dict.fromkeys(PLANNERS, whole(1).seconds["fedavg"]))
    assert not time_claim(Recorded(0.05, (slow,))).holds


def test_an_accuracy_claim_is_open_until_all_rounds_of_all_seeds_are_there():
    half = synthetic(2, [0.5, 0.85, 0.95])
    claim = accuracy_claim(Recorded(0.05, (whole(1), half)))
    assert not claim.holds, "0.95 after 6 of 60 rounds"
    assert "Open: 6 of 60 rounds were trained." in claim.why
    claim = accuracy_claim(Recorded(0.05, (whole(1, last=0.96), whole(2, last=0.98))))
    assert claim.holds
    assert "Open" not in claim.why
    assert claim.ours.startswith("0.970 after 60 rounds, mean of 2 seeds")


def test_an_accuracy_that_falls_below_the_paper_s_at_the_end_does_not_hold():
    assert not accuracy_claim(Recorded(0.05, (whole(1, last=0.85),))).holds


def test_what_was_trained_now_is_told_in_the_same_words(quick_values):
    full = replace(quick_values("accuracy"), model=MODEL, trainings=(whole(1), whole(2)), recorded=None)
    claims = {claim.claim: claim.holds for claim in ITEM.claims(full)}
    assert claims["EfficientNetV2-M: time to 0.8 and 0.9"]
    assert claims[f"EfficientNetV2 approaches 0.90 after {PAPER} rounds"]
    assert "EfficientNetV2-M, 2 seeds, 60 of 60 rounds" in ITEM.reading(full)
    assert ITEM.figure(full).axes[1].get_xscale() == "log"


def test_efficientnet_is_drawn_once_it_is_whole_with_its_seeds_and_in_decades(quick_values):
    values = quick_values("accuracy")
    part = ITEM.figure(replace(values, recorded=Recorded(0.05, (whole(1), synthetic(2, [0.5])))))
    assert len(part.axes) == 2
    drawn = ITEM.figure(replace(values, recorded=Recorded(0.05, (whole(1), whole(2)))))
    by_title = {axes.get_title(loc="left"): axes for axes in drawn.axes}
    assert set(by_title) == {
        "(a) mlp, 2 seeds",
        "(b) mlp, 2 seeds",
        "(c) EffNetV2-M, 2 seeds",
        "(d) EffNetV2-M, 2 seeds",
    }
    below = by_title["(d) EffNetV2-M, 2 seeds"]
    assert below.get_xscale() == "log"
    assert by_title["(b) mlp, 2 seeds"].get_xscale() == "linear"
    ends = sorted(float(np.max(line.get_xdata())) for line in below.get_lines())
    assert ends == pytest.approx([300.0, 360.0, 6000.0])


@pytest.fixture(scope="module")
def run_folders(tmp_path_factory):
    """Runs of two seeds, the second one round short."""
    data, _ = load_data(TINY.source)
    home = tmp_path_factory.mktemp("runs")
    for seed, rounds in ((1, 2), (2, 1)):
        train(make_study(replace(TINY, rounds=rounds), data, seed), home / str(seed), lambda _: None)
    return home


def test_runs_are_recorded_each_as_far_as_it_went_and_come_back_as_they_were(run_folders, tmp_path):
    path = tmp_path / "r.json"
    kept = record(run_folders / "2", run_folders / "1", path=path, settings=TINY)
    assert [(one.seed, one.done) for one in kept.trainings] == [(1, 2), (2, 1)]
    assert kept.curve.rounds == (1,)
    assert recorded(path) == kept
    assert recorded(tmp_path / "none.json") is None
    lines = [json.loads(line) for line in (run_folders / "1" / "metrics.jsonl").read_text().splitlines()]
    assert kept.trainings[0].weights_sha256 == lines[-1]["weights_sha256"]
    assert kept.trainings[0].loss == tuple(line["loss"] for line in lines)


def test_a_run_of_other_settings_is_refused_and_nothing_is_written(run_folders, tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(RunError, match=r"run of other settings \(they differ in train\.lr"):
        record(run_folders / "1", path=path, settings=replace(TINY, lr=0.1))
    with pytest.raises(RunError, match=r"seed 1 is there twice"):
        record(run_folders / "1", run_folders / "1", path=path, settings=TINY)
    with pytest.raises(RunError, match="no run folder is named"):
        record(path=path, settings=TINY)
    assert not path.exists()


def test_rounds_beyond_the_item_s_are_not_recorded(run_folders, tmp_path):
    kept = record(run_folders / "1", path=tmp_path / "r.json", settings=replace(TINY, rounds=1))
    assert (kept.done, kept.curve.rounds) == (1, (1,))


def test_a_run_without_a_tested_round_is_refused(tmp_path):
    data, _ = load_data(TINY.source)
    seldom = replace(TINY, rounds=2, evaluate_every=2)
    train(make_study(seldom, data, 1), tmp_path / "run", lambda _: None)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text(lines[0])
    with pytest.raises(RunError, match="has no tested round yet"):
        record(tmp_path / "run", path=tmp_path / "r.json", settings=seldom)


def test_the_committed_trainings_are_of_the_full_settings_and_say_how_far_they_went():
    kept = recorded()
    assert kept is not None
    assert kept.lr == ITEM.full.lr
    seeds = [one.seed for one in kept.trainings]
    assert set(seeds) <= set(ITEM.full.seeds)
    assert len(seeds) == len(set(seeds))
    for one in kept.trainings:
        assert len(one.rounds) == len(one.accuracy) == len(one.seconds["exact"])
        assert one.rounds[-1] <= one.done == len(one.loss) <= PAPER
        assert all(0 <= accuracy <= 1 for accuracy in one.accuracy)
    assert f"{kept.done} of {PAPER} rounds" in kept.sentence(PAPER)
    assert accuracy_claim(kept).holds == (kept.done == PAPER and kept.curve.accuracy[-1] >= 0.9)
