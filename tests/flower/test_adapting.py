"""Rounds that adapt while they run, by a clock of their own: every session, part and look is an event."""

from dataclasses import replace
from heapq import heappop, heappush
from itertools import count

import pytest
from plan_cases import make_profile

from cutwater.flower.adapting import Adapting
from cutwater.plan.again import plan_again, whole_sessions
from cutwater.plan.fleet import Client
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.serve.fair_queue import FairQueue
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import SessionInfo, SessionRecord

BATCH = 10
PROFILE = make_profile([1_000, 10**12], [1e6, 1e8], [8_000, 80])
"""Two layers, of which the second is too large to be sent to anybody: all are split after the first."""


def plan_of(steps, rates, *, compute=2e9):
    """Clients with so many steps and so fast links; what is away is nearly all link."""
    fleet = [
        Client(name=name, compute=1e12, up=rate, down=rate, samples=BATCH, steps=steps[name])
        for name, rate in rates.items()
    ]
    return solve(Problem(PROFILE, fleet, Server(compute), Session(steps=1, batch_size=BATCH)))


class Simulated:
    """A round of a plan on a server with a fair queue, and what its clock tells of it."""

    def __init__(self, plan, *, deadline=1e9, adapts=True, look=1.0, pieces=1):
        self.plan, self.sessions = plan, whole_sessions(plan)
        self.steps = {name: int(plan.problem.steps.count[k]) for k, name in enumerate(plan.names)}
        batches = {name: [BATCH] * steps for name, steps in self.steps.items()}
        self.adapting, self.adapts = Adapting(plan, batches, 1, deadline), adapts
        self.queue, self.changes, self.look, self.pieces = FairQueue(), [], look, pieces
        for name in plan.names:
            self.queue.open(name, plan[name].share)
        self.now, self.busy, self.events, self.order = 0.0, False, [], count()
        self.slower = dict.fromkeys(plan.names, 1.0)
        self.done = dict.fromkeys(plan.names, 0)
        self.server = dict.fromkeys(plan.names, 0.0)
        self.stepped = dict.fromkeys(plan.names, 0.0)
        self.heard = dict.fromkeys(plan.names, 0.0)
        self.there = dict.fromkeys(plan.names, 0.0)
        self.ended, self.lost = {}, set()
        self.others = []

    def at(self, when, what, *about):
        heappush(self.events, (when, next(self.order), what, about))

    def away(self, name):
        return self.slower[name] * self.sessions[name].away[0] / self.steps[name]

    def run(self):
        """To the end; when the last session that was not lost is done."""
        for name in self.plan.names:
            self.at(0.5 * self.away(name), self.arrives, name)
        for when, what, *about in self.others:
            self.at(when, what, *about)
        self.at(self.look, self.looks)
        while self.events and len(self.ended) + len(self.lost) < len(self.plan.names):
            self.now, _, what, about = heappop(self.events)
            what(*about)
        return max(self.ended.values())

    def arrives(self, name):
        """A part is at the server."""
        if name in self.lost:
            return
        self.there[name] = self.now
        flops = self.sessions[name].work[0] / self.steps[name] / self.pieces
        for piece in range(self.pieces):
            self.queue.push(name, flops, piece)
        self.serve()

    def serve(self):
        if not self.busy and (piece := self.queue.pop()) is not None:
            name, flops, number = piece
            self.busy = True
            self.at(self.now + flops / self.plan.server_compute, self.answered, name, number)

    def answered(self, name, number):
        self.busy = False
        self.serve()
        if name in self.lost or number < self.pieces - 1:
            return
        self.done[name] += 1
        self.server[name] += self.now - self.there[name]
        self.stepped[name] = self.heard[name] = self.now
        if self.done[name] < self.steps[name]:
            self.at(self.now + self.away(name), self.arrives, name)
        else:
            self.at(self.now + 0.5 * self.away(name), self.finishes, name)

    def finishes(self, name):
        self.queue.close(name)
        self.ended[name] = self.now

    def becomes(self, name, slower):
        """A client's link."""
        self.slower[name] = slower

    def loses(self, name):
        self.lost.add(name)
        self.queue.close(name)
        self.looks(lost=(name,), again=False)

    def record(self, name):
        at_server = self.there[name] > self.heard[name]
        failed = RefusedError(Status.ABORTED, "gone") if name in self.lost else None
        return SessionRecord(
            SessionInfo(name, "r", 1, name, 1),
            parts=self.done[name],
            steps=self.done[name],
            samples=BATCH * self.done[name],
            tensors_up=0,
            tensors_down=0,
            bytes_up=0,
            bytes_down=0,
            openings=1,
            failure=failed,
            finished=name in self.ended,
            seconds={"stepped": self.stepped[name], "server": self.server[name]},
            silent=0.0 if at_server else self.now - self.heard[name],
        )

    def looks(self, lost=(), again=True):
        if self.adapts:
            change = self.adapting.look(self.now, [self.record(name) for name in self.plan.names], lost)
            if change is not None:
                self.changes.append(change)
                for name, share in change.shares.items():
                    self.queue.reweigh(name, max(share, 1.0))
        if again:
            self.at(self.now + self.look, self.looks)

    def oracle(self, without=()):
        """When all could be done who are left, by a plan from now on with the true numbers."""
        left = [
            replace(self.sessions[name].part(1 - self.done[name] / self.steps[name]), besides=0.0).slower(
                self.slower[name]
            )
            for name in self.plan.names
            if name not in without and name not in self.ended
        ]
        return self.now + plan_again(left, self.plan.server_compute).seconds


def ends(plan, prepare, **how):
    """When a round ends, what it changed, and when an oracle would have ended it from the moment told."""
    simulated, told = Simulated(plan, **how), []
    prepare(simulated, told)
    return simulated.run(), simulated, told[0]


FEW = plan_of({"a": 30, "b": 10, "c": 20, "d": 40}, {"a": 1.0e6, "b": 2.0e5, "c": 4e6, "d": 1e7})


def one_beside_many(rate):
    """One client with few steps and a small share beside six that keep the server busy."""
    others = [f"b{k}" for k in range(6)]
    return plan_of({"a": 20} | dict.fromkeys(others, 60), {"a": rate} | dict.fromkeys(others, 1e6))


MANY = one_beside_many(5.3e4)


def slow_link(name, times, when):
    def prepare(simulated, told):
        simulated.others.append((when, simulated.becomes, name, times))
        simulated.others.append((when, lambda: told.append(simulated.oracle())))

    return prepare


def loss(name, when):
    def prepare(simulated, told):
        simulated.others.append((when, simulated.loses, name))
        simulated.others.append((when, lambda: told.append(simulated.oracle([name]))))

    return prepare


@pytest.mark.parametrize("plan", [FEW, MANY])
def test_an_undisturbed_round_is_done_as_planned(plan):
    assert Simulated(plan).run() <= 1.02 * plan.latency


@pytest.mark.parametrize("when", [0.1, 0.5])
@pytest.mark.parametrize("name", FEW.names)
@pytest.mark.parametrize("what", [loss, lambda name, when: slow_link(name, 10.0, when)])
def test_a_round_is_done_within_a_tenth_of_what_an_oracle_plans_from_that_moment(what, name, when):
    end, simulated, oracle = ends(FEW, what(name, when * FEW.latency))
    assert end <= 1.1 * oracle
    assert all(sum(change.shares.values()) <= FEW.server_compute * 1.001 for change in simulated.changes)


def test_a_link_that_becomes_ten_times_slower_costs_no_more_than_an_oracle_says_but_would_with_old_shares():
    prepare = slow_link("a", 10.0, 0.1 * MANY.latency)
    kept, _, oracle = ends(MANY, prepare, adapts=False, pieces=10)
    end, simulated, oracle_again = ends(MANY, prepare, pieces=10)
    assert oracle == oracle_again
    assert kept > 1.1 * oracle
    assert end <= 1.1 * oracle
    first = simulated.changes[0]
    assert first.planned_seconds < first.kept_seconds
    assert simulated.changes[-1].shares["a"] > 1.5 * MANY["a"].share
    assert any("client a takes 10.0 times as long as believed" in each.why for each in simulated.changes)


def test_the_share_of_a_client_that_is_lost_is_poured_over_the_others_at_once():
    when = 0.3 * FEW.latency
    _, simulated, _ = ends(FEW, loss("d", when))
    change = next(each for each in simulated.changes if "lost" in each.why)
    assert (change.at_seconds, change.why) == (when, "client d is lost")
    assert set(change.shares) == {"a", "b", "c"}
    assert sum(change.shares.values()) == pytest.approx(FEW.server_compute)
    assert change.planned_seconds <= change.kept_seconds


class Silent(Simulated):
    """One client sends nothing for a while."""

    quiet = (20.0, 60.0)

    def arrives(self, name):
        begin, end = self.quiet
        if name == "d" and begin <= self.now < end:
            self.at(end, self.arrives, name)
        else:
            super().arrives(name)


def test_who_is_late_is_planned_without_until_its_next_part_is_there():
    simulated = Silent(FEW)
    simulated.run()
    late = next(each for each in simulated.changes if each.why == "client d is late")
    assert 20.0 < late.at_seconds < 60.0
    assert set(late.shares) == {"a", "b", "c"}
    back = [each for each in simulated.changes if each.at_seconds >= 60.0]
    assert back
    assert "d" in back[0].shares


def test_nothing_is_planned_for_who_cannot_be_done_by_the_deadline():
    plan = one_beside_many(1e4)
    simulated = Simulated(plan, deadline=plan.latency)
    simulated.others.append((0.1 * plan.latency, simulated.becomes, "a", 2.0))
    simulated.others.append((0.5 * plan.latency, simulated.loses, "b0"))
    simulated.run()
    change = next(each for each in simulated.changes if each.why == "client b0 is lost")
    assert set(change.shares) == {f"b{k}" for k in range(1, 6)}


def test_a_session_that_failed_at_the_server_counts_as_lost():
    simulated = Simulated(FEW)
    simulated.now = 1.0
    simulated.lost.add("b")
    change = simulated.adapting.look(1.0, [simulated.record(name) for name in FEW.names])
    assert change.why == "client b is lost"
    assert "b" not in change.shares


def test_a_round_without_split_sessions_has_nothing_to_share():
    plan = solve(
        Problem(
            PROFILE,
            [Client(name="a", compute=1e12, rate=1e15, samples=BATCH)],
            Server(0.0),
            Session(epochs=1),
        )
    )
    assert Adapting(plan, {"a": [BATCH]}, 1, 100.0).look(1.0, []) is None
