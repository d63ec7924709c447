"""Random schedules of faults over a real network path: whatever happens, a run's history is a good one."""

import os
import threading
import time
from dataclasses import replace

import pytest
from flower_cases import served, settings, trained, write_four
from flwr.app import Message
from history import Effect, Ended, History, Session, check, recorded
from memory_grid import MemoryGrid
from schedules import SEED, schedule
from stream_rig import Proxy
from test_leases import NAMES, Node

from cutwater.base.errors import EngineError
from cutwater.fleet.processes import free_ports
from cutwater.flower import leases, roster
from cutwater.flower.failures import failure
from cutwater.flower.shared_study import study_for
from cutwater.train.aggregate import Average, weights_sha256
from cutwater.train.session import run_both_sides

SCHEDULES = int(os.environ.get("CUTWATER_SCHEDULES", "1"))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)
    monkeypatch.setattr(leases, "_LOOK", 0.02)


class Weather(threading.Thread):
    """Cuts connections at random moments and after random bytes, and lets the way go dead for a while."""

    def __init__(self, proxy, draws):
        super().__init__(daemon=True)
        self.proxy, self.draws, self.over, self.faults = proxy, draws, threading.Event(), 0

    def run(self):
        while not self.over.wait(self.draws.uniform(0.05, 0.8)):
            self.faults += 1
            match self.draws.randrange(3):
                case 0:
                    self.proxy.cut()
                case 1:
                    way = self.draws.choice(["up", "down"])
                    self.proxy.cut_after = {way: self.draws.randrange(200, 200_000)}
                case 2:
                    self.proxy.dead.set()
                    time.sleep(self.draws.uniform(0.0, 0.3))
                    self.proxy.dead.clear()
                    self.proxy.cut()


class Moody(Node):
    """A node that refuses an order in a message now and then."""

    def __init__(self, name, given, draws):
        super().__init__(name, given)
        self.draws = draws
        good = self.single
        self.single = lambda message: self._perhaps(message) or good(message)

    def _perhaps(self, message):
        if message.metadata.message_type == "train" and self.draws.random() < 0.3:
            return Message(failure(EngineError("not today")), reply_to=message)
        return None


@pytest.mark.parametrize("number", range(SCHEDULES))
@pytest.mark.parametrize("lease", [False, True])
def test_under_any_schedule_of_faults_each_part_takes_effect_once_and_each_round_is_its_survivors(
    tmp_path, number, lease, record_property
):
    print(f"seed {SEED}, schedule {number}")
    draws = schedule("history", number, lease)
    (port,), proxy = free_ports(1), Proxy()
    proxy.target = ("127.0.0.1", port)
    given = settings(
        write_four(tmp_path, rounds=4, dropout=0.2, more="deadline = 60.0"),
        lease=lease,
        stream_port=port,
        stream_address=proxy.address,
    )
    nodes = {
        place: Moody(name, given, schedule("mood", number, name)) for place, name in enumerate(NAMES, 11)
    }
    study, weather = study_for(given), Weather(proxy, draws)
    weather.start()
    cuts: dict[Session, int] = {}
    try:
        with recorded() as history:
            seen = served(MemoryGrid(nodes), "r1", given, callbacks=[history.ended])
    finally:
        weather.over.set()
        weather.join()
        proxy.close()
    for each in seen:
        cuts.update({Session(each.record.round, part.name): part.cut for part in each.outcome.parts})
    check(
        history,
        parts=lambda client: len(study.batch_sizes(client)),
        reference=lambda names, state, round_: trained_again(given, seen, names, state, round_),
        digest=weights_sha256,
        whole=lambda session: cuts[session] == len(study.model),
    )
    assert history.effects, "sessions were seen"
    record_property("faults of the network", weather.faults)
    record_property("parts, each once", len(history.effects))
    record_property("connections of sessions", len(history.attempts))
    record_property("updates that did not come", sum(len(each.record.lost) for each in seen))


def trained_again(given, seen, names, state, round_):
    """A round of these clients in one process, at the cuts that were planned for it."""
    study = study_for(given)
    state = study.initial if state is None else state
    average = Average(state)
    for task in study.tasks(round_, seen[round_ - 1].outcome.plan):
        if task.client in names:
            average.add(task.client, task.samples, run_both_sides(study.job(), task, state).state)
    return average.result()


def good_history(given):
    """A made-up one that the checker finds nothing wrong with."""
    state = trained(given, ["watch", "laptop"])
    history = History(rounds=[Ended(1, ("watch", "laptop"), weights_sha256(state))])
    watch = Session(1, "watch")
    history.effects = [Effect(watch, part, 1, "x") for part in range(3)]
    history.attempts = [(watch, 1)]
    return history


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda h: h.effects.append(h.effects[-1]), "parts took effect as"),
        (lambda h: h.effects.reverse(), "parts took effect as"),
        (lambda h: h.effects.pop(), "counts after 2 of 3 parts"),
        (lambda h: h.attempts.append(h.attempts[0]), "openings came as"),
        (lambda h: h.effects.__setitem__(0, h.effects[0]._replace(attempt=2)), "had an effect"),
        (lambda h: h.rounds.__setitem__(0, h.rounds[0]._replace(survivors=("watch",))), "not its survivors'"),
        (lambda h: h.rounds.__setitem__(0, h.rounds[0]._replace(round=2)), r"rounds ended as \[2\]"),
    ],
)
def test_the_checker_finds_what_must_not_happen(tmp_path, spoil, words):
    given = settings(write_four(tmp_path, rounds=1))
    history = good_history(given)

    def checked(one):
        check(
            one,
            parts=lambda client: 3,
            reference=lambda names, state, round_: trained(given, list(names), state, round_),
            digest=weights_sha256,
            whole=lambda session: session.client == "laptop",
        )

    checked(replace(history))
    spoil(history)
    with pytest.raises(AssertionError, match=words):
        checked(history)
