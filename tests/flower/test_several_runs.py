"""Two Flower runs against one stream server: the bits of each are its own, and shares hold between them."""

import math
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from collecting import clocked
from flower_cases import grid_of, served, settings, sha256_of, write_four

from cutwater.base.errors import EngineError
from cutwater.federate.conditions import Condition
from cutwater.flower.shared_study import study_for
from cutwater.flower.updates import not_paced
from cutwater.serve.several_jobs import SeveralJobs
from cutwater.serve.shares import Delivery, Given
from cutwater.serve.turns import TurnKeeper
from cutwater.train.session import Task

NAMES = ["watch", "phone", "tablet", "laptop"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two jobs that differ in what they train, each with half of the server."""
    given = []
    for place, dropout in enumerate((0.0, 0.3)):
        path = write_four(tmp_path_factory.mktemp(f"job{place}"), rounds=1, dropout=dropout)
        path.write_text(path.read_text().replace("0.5 GFLOPS", "0.25 GFLOPS"))
        given.append(settings(path))
    return given


def test_runs_in_processes_of_their_own_take_turns_and_keep_their_bits(two, tmp_path):
    """Here in threads of one process, each with a fair queue and a stream of its own, as processes have."""
    place = Path("/tmp") / f"cutwater-{tmp_path.name[-20:]}.sock"
    rounds = {}
    made = [(study_for(given), grid_of(given)) for given in two]

    def play(run, given, study, grid):
        rounds[run] = served(grid, run, replace(given, turns=str(place)), study=study)

    with TurnKeeper(place):
        threads = [
            threading.Thread(target=play, args=(f"r{k}", given, *made[k])) for k, given in enumerate(two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    for k, given in enumerate(two):
        assert rounds[f"r{k}"][0].record.weights_sha256 == sha256_of(given, NAMES)


def test_runs_side_by_side_have_the_bits_of_runs_alone_and_their_shares(two):
    rounds, failed = {}, []

    # Initial weights are drawn from torch's own generator: studies are made one after the other.
    made = [(study_for(given), grid_of(given)) for given in two]

    def play(run, given, study, grid):
        try:
            rounds[run] = served(grid, run, given, study=study, shared=shared)
        except Exception as error:
            failed.append(error)

    with SeveralJobs() as shared:
        threads = [
            threading.Thread(target=play, args=(f"r{k}", given, *made[k])) for k, given in enumerate(two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failed
        assert shared.open() == ()
        got = shared.given()
    for k, given in enumerate(two):
        (only,) = rounds[f"r{k}"]
        assert only.record.weights_sha256 == sha256_of(given, NAMES)
        study = study_for(given)
        plan = clocked(study, 1).plan
        parts = plan.problem.work * plan.problem.costs.server[plan.cuts - 1]
        assert got[f"r{k}"].delivered == pytest.approx(float(parts.sum()))
        # A piece is done at most one piece of another's later than it was promised, and of that only the
        # session's own part was promised to it: over three steps, three pieces at most.
        cuts = plan.cuts[plan.cuts < plan.layers] - 1
        both = (study.profile.column(f"server_{way}_flops") for way in ("forward", "backward"))
        largest = float(sum(both)[cuts].max()) * 16
        assert 0 < got[f"r{k}"].promised <= got[f"r{k}"].delivered + 3 * largest


def test_a_run_is_hosted_once_and_strangers_are_not(two):
    study = study_for(two[0])
    what = (study.job(), study.profile, study.server.compute)
    with SeveralJobs() as shared:
        shared.join("r", *what)
        with pytest.raises(EngineError, match="run 'r' is hosted already: give each job a run of its own"):
            shared.join("r", *what)
        assert shared.sessions("r").records() == ()
        with pytest.raises(EngineError, match="run 's' is not hosted here: have it join first"):
            shared.sessions("s")


def test_what_sessions_got_adds_up_to_what_a_job_got():
    half = Delivery("a", 1.0, 3, 30.0, 0.1, 0.0, promised=0.5, delivered=0.6)
    none = Delivery("b", 1.0, 0, 0.0, 0.0, 0.0, promised=0.0, delivered=0.0)
    given = Given().and_also(half).and_also(none)
    assert given.delivered == 30.0
    assert given.promised == pytest.approx(25.0)


def test_sessions_over_a_shared_line_keep_their_bits_and_tell_their_rates(tmp_path):
    path = write_four(tmp_path, rounds=1)
    text = path.read_text()
    for rate in ("0.5 MB/s", "0.05 MB/s", "2 MB/s", "4 MB/s"):
        text = text.replace(f'"{rate}"', '"20 MB/s"')
    path.write_text(text.replace("[session]", '[uplink]\ncapacity = "8 MB/s"\n[session]'))
    given = settings(path)
    (only,) = served(grid_of(given), "r", given)
    assert only.record.weights_sha256 == sha256_of(given, NAMES)
    told = {each.name: each for each in only.measured.clients}
    assert any(client.mode == "split" for client in only.outcome.parts)
    assert sum(each.promised_rate_up for each in told.values()) <= 64e6 * (1 + 1e-9)
    for client in only.outcome.parts:
        assert 0 < told[client.name].promised_rate_up <= 64e6
        assert told[client.name].promised_rate_down is None


@contextmanager
def lateness():
    """How late this machine wakes up whoever sleeps, in seconds, again and again meanwhile."""
    late, over = [0.0], threading.Event()

    def watch():
        while not over.is_set():
            began = time.monotonic()
            time.sleep(0.01)
            late.append(time.monotonic() - began - 0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield late
    over.set()
    watcher.join()


def test_a_paced_session_is_delivered_its_rates(tmp_path):
    """All layers but the first are the server's, so that every message takes many frames, both ways.

    It takes seconds, too, beside which what a machine wakes up late by is little, unless it is overloaded.
    """
    path = write_four(tmp_path, rounds=1)
    text = path.read_text().replace("min_cut = 2\nforbidden = [6]\n", "").replace("steps = 3", "steps = 1")
    for rate in ("0.5 MB/s", "0.05 MB/s", "2 MB/s", "4 MB/s"):
        text = text.replace(f'"{rate}"', '"20 MB/s"')
    text = text.replace("samples = ", "forbidden = [2, 3, 4, 5, 6]\nsamples = ")
    lines = '[uplink]\ncapacity = "0.04 MB/s"\n[downlink]\ncapacity = "0.05 MB/s"\n[session]'
    path.write_text(text.replace("[session]", lines))
    given = settings(path)
    with lateness() as late:
        (only,) = served(grid_of(given), "r", given)
    assert {part.mode for part in only.outcome.parts} == {"split"}
    if max(late) > 0.05:
        pytest.skip(f"this machine wakes up {max(late):.2f} s late: no rate can be told within 5 % here")
    for each in only.measured.clients:
        assert each.delivered_rate_up == pytest.approx(each.promised_rate_up, rel=0.05)
        assert each.delivered_rate_down == pytest.approx(each.promised_rate_down, rel=0.05)


def test_a_paced_link_is_not_taken_for_a_slow_one():
    seen = Condition(compute=1e9, up=0.99e6, down=3e6, rtt=0.0)
    task = Task("k", 1, 2, seed=1, lr=0.1, samples=4, rate_up=1e6, rate_down=4e6)
    learned = not_paced(seen, task)
    assert math.isnan(learned.up)
    assert learned.down == 3e6  # slower than it was paced to: the link itself is
    assert not_paced(seen, replace(task, rate_up=0.0)).up == 0.99e6
