"""The trainings behind Fig. 12: resumable, the same bits for all planners, timed by honest clocks."""

from dataclasses import replace

import numpy as np
import pytest

from cutwater.base.errors import DataError
from cutwater.reproduce.catalogue import choose
from cutwater.reproduce.item import Context
from cutwater.reproduce.paper_setup import thirty
from cutwater.reproduce.training import PLANNERS, load_data, make_study, train

(ITEM,) = choose(["accuracy"])
(BEYOND,) = choose(["beyond"])
TINY = replace(ITEM.quick, rounds=2, seeds=(1,))


def ignore(_):
    pass


def test_without_mnist_the_embedded_digits_stand_in_and_a_note_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("CUTWATER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data, note = load_data("mnist", mirrors=())
    assert data.name == "digits"
    assert "CUTWATER_DATA" in note


def test_the_note_on_other_data_stands_on_the_page(quick_values):
    values = replace(quick_values("accuracy"), note="These are not MNIST.")
    assert "These are not MNIST." in ITEM.reading(values)


def test_no_other_source_is_ever_replaced(monkeypatch, tmp_path):
    monkeypatch.delenv("CUTWATER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError):
        load_data("cifar10", mirrors=())


def test_real_mnist_is_shared_out_to_the_thirty_as_the_file_says(monkeypatch, mnist_folder):
    monkeypatch.setenv("CUTWATER_DATA", str(mnist_folder))
    data, note = load_data("mnist", mirrors=())
    assert (data.name, note) == ("mnist", "")
    study = make_study(replace(TINY, source="mnist"), data, 1)
    assert np.array_equal(study.fleet.samples, np.ceil(0.75 * thirty().fleet.samples))


def test_a_kept_training_goes_on_to_the_same_bits_and_curve(tmp_path):
    data, _ = load_data("digits")
    at_once = train(make_study(TINY, data, 1), None, ignore)
    train(make_study(replace(TINY, rounds=1), data, 1), tmp_path / "run", ignore)
    resumed = train(make_study(TINY, data, 1), tmp_path / "run", ignore)
    assert resumed == at_once


def test_the_trained_bits_do_not_depend_on_the_planner():
    data, _ = load_data("digits")
    study = make_study(TINY, data, 1)
    digests = {train(study.with_planner(planner), None, ignore).weights_sha256 for planner in PLANNERS}
    assert len(digests) == 1


def test_clocks_go_forward_and_the_optimum_s_is_the_earliest(quick_values):
    for training in quick_values("accuracy").trainings:
        for seconds in training.seconds.values():
            assert np.all(np.diff(seconds) > 0)
        best = np.array(training.seconds["exact"])
        for planner in ("fedavg", "alternating"):
            assert np.all(best <= np.array(training.seconds[planner]) * (1 + 1e-9))


def test_progress_counts_every_session_of_every_seed():
    heard = []
    ITEM.run(replace(TINY, seeds=(1, 2), checked=1), Context(watch=lambda *where: heard.append(where)))
    assert heard[-1] == (40, 40)
    assert heard == sorted(heard)


def test_codecs_that_were_trained_before_an_interruption_are_not_trained_again(tmp_path, quick_values):
    quick = BEYOND.quick
    settings = replace(quick, training=replace(quick.training, keep=True))
    heard = []

    def interrupted(done, total):
        heard.append(done)
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BEYOND.run(settings, Context(watch=interrupted, runs=tmp_path))
    sessions = quick.training.rounds * quick.training.clients
    whole, part = divmod(heard[-1], sessions)
    assert len(list(tmp_path.iterdir())) == whole + bool(part)
    again = []
    values = BEYOND.run(settings, Context(watch=lambda done, total: again.append(done), runs=tmp_path))
    assert min(again) > whole * sessions, "what was whole is only read"
    assert values.accuracies == quick_values("beyond").accuracies
