"""Rounds whose cuts move while they run, by a clock of their own, beside an oracle that knows all numbers."""

from dataclasses import replace

import pytest
from plan_cases import make_profile
from test_adapting import BATCH, Simulated

from cutwater.flower.adapting import Adapting
from cutwater.plan.fleet import Client
from cutwater.plan.moving import Pace, soonest, ways
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.stream.step_trainer import SessionInfo

SMASHED = (8_000, 400)
"""Bits of a sample at the first and the second cut; at the second, the device has ten times the work."""
PROFILE = make_profile([1_000, 100_000, 10**12], [1e5, 1e6, 4e6], [*SMASHED, 80])


HEAVY = replace(make_profile([1_000, 15_000_000, 10**12], [1e5, 1e6, 4e6], [*SMASHED, 80]), optimizer="adam")
"""The same with a second layer that, with what Adam keeps of it, takes longer to send than it would save."""


def plan_of(rates, steps=300, profile=PROFILE, compute=1e8):
    fleet = [
        Client(name=name, compute=compute, up=rate, down=rate, samples=BATCH, steps=steps)
        for name, rate in rates.items()
    ]
    return solve(Problem(profile, fleet, Server(1e10), Session(steps=1, batch_size=BATCH)))


class Moving(Simulated):
    """A round whose sessions move between two mini-batches, when they are told to."""

    def __init__(self, plan, *, moves=True, timed=True, by_frames=True, deadline=1e9, **how):
        """What comes up is timed as it comes, or only when it is there."""
        super().__init__(plan, **how)
        cuts = {name: [1, 2] for name in plan.names}
        batches = {name: [BATCH] * steps for name, steps in self.steps.items()}
        self.ways, self.timed, self.by_frames = ways(plan, cuts), timed, by_frames
        self.adapting = Adapting(plan, batches, 1, deadline, cuts if moves else None)
        self.pace = dict.fromkeys(plan.names, Pace())
        self.cut = {name: plan[name].cut for name in plan.names}
        self.to, self.moved = {}, []
        self.up = dict.fromkeys(plan.names, (0, 0.0))
        self.coming, self.stalls = {}, dict.fromkeys(plan.names, 0.0)

    def at(self, when, what, *about):
        super().at(when, what, *about)
        if what == self.arrives:
            (name,) = about
            size, seconds = self.part(name)
            self.coming[name] = size, when - seconds, when

    def part(self, name):
        """Bytes that go up, and how long they take."""
        bits = BATCH * SMASHED[self.cut[name] - 1]
        return bits // 8, bits * self.pace[name].up / self.ways[name].rates[0]

    def on_its_way(self, name):
        """Bytes and seconds so far of what comes up."""
        size, begun, there = self.coming[name]
        if not self.by_frames or not begun < self.now < there:
            return 0, 0.0
        return int(size * (self.now - begun) / (there - begun)), self.now - begun

    def step_of(self, name):
        return self.ways[name].rest(self.cut[name], 1 / self.steps[name], self.pace[name])

    def away(self, name):
        return self.step_of(name).away[0]

    def arrives(self, name):
        if name in self.lost:
            return
        self.there[name] = self.now
        (size, begun, there), (before, seconds) = self.coming[name], self.up[name]
        self.up[name] = before + size, seconds + there - begun
        self.queue.push(name, self.step_of(name).work[0], 0)
        self.serve()

    def answered(self, name, number):
        moves = name in self.to and self.done[name] + 1 < self.steps[name]
        if not moves:
            super().answered(name, number)
            return
        self.busy = False
        self.serve()
        self.done[name] += 1
        self.server[name] += self.now - self.there[name]
        self.stepped[name] = self.heard[name] = self.now
        self.at(
            self.now + self.ways[name].transfer(self.cut[name], self.to[name], self.pace[name]),
            self.moves,
            name,
        )

    def moves(self, name):
        to = self.to.pop(name)
        self.moved.append((name, self.done[name], self.cut[name], to))
        self.cut[name] = to
        self.at(self.now + self.away(name), self.arrives, name)

    def becomes(self, name, pace):
        self.pace[name] = pace

    def record(self, name):
        size, seconds = self.up[name] if self.timed else (0, 0.0)
        found = super().record(name)
        return replace(
            found,
            session=SessionInfo(name, "r", 1, name, self.cut[name]),
            timed_up=size,
            seconds={**found.seconds, "up": seconds + self.stalls[name]},
            coming=self.on_its_way(name) if self.timed else (0, 0.0),
        )

    def looks(self, lost=(), again=True):
        before = len(self.changes)
        super().looks(lost, again)
        for change in self.changes[before:]:
            self.to.update(change.cuts)

    def oracle(self, without=()):
        """When all could be done, by a plan from now on of cuts and shares with the true numbers."""
        choices = []
        for name in self.plan.names:
            left, pace, mine = 1 - self.done[name] / self.steps[name], self.pace[name], self.ways[name]
            at = self.cut[name]
            stay = replace(mine.rest(at, left, pace), besides=0.0)
            there = replace(mine.rest(3 - at, left, pace), besides=mine.transfer(at, 3 - at, pace))
            choices.append([stay, there])
        return self.now + soonest(choices, self.plan.server_compute)


def ends(plan, name, pace, **how):
    """When a round ends in which a client becomes slower, what happened, and when an oracle would end it."""
    simulated, told, when = Moving(plan, **how), [], 0.1 * plan.latency
    simulated.others.append((when, simulated.becomes, name, pace))
    simulated.others.append((when, lambda: told.append(simulated.oracle())))
    return simulated.run(), simulated, told[0]


QUICK = plan_of({"a": 1.0e6, "b": 1.2e6, "c": 4e6})
SLOW = plan_of({"a": 2.0e5, "b": 1.5e5})
TEN = Pace(up=10.0, down=10.0)


def test_an_undisturbed_round_has_its_cuts_stay():
    for plan, cut in ((QUICK, 1), (SLOW, 2)):
        assert set(plan.cuts.tolist()) == {cut}
        simulated = Moving(plan)
        assert simulated.run() <= 1.02 * plan.latency
        assert not simulated.moved


@pytest.mark.parametrize(
    ("plan", "name", "pace", "moved"),
    [
        (QUICK, "a", TEN, (1, 2)),
        (QUICK, "c", replace(TEN, up=40.0, down=40.0), (1, 2)),
        (SLOW, "b", Pace(12.0), (2, 1)),
    ],
    ids=["a link ten times slower", "a fast link that is slow", "a device twelve times slower"],
)
def test_a_round_is_done_within_a_tenth_of_what_an_oracle_plans_with_cuts_and_sooner_than_by_shares(
    plan, name, pace, moved
):
    end, simulated, oracle = ends(plan, name, pace)
    by_shares, stayed, _ = ends(plan, name, pace, moves=False)
    assert end <= 1.1 * oracle
    assert end < 0.7 * by_shares
    assert not stayed.moved
    assert [(who, cut, to) for who, _, cut, to in simulated.moved] == [(name, *moved)], (
        "once, and nobody else"
    )
    change = next(each for each in simulated.changes if each.cuts)
    assert change.cuts == {name: moved[1]}
    assert change.planned_seconds < change.kept_seconds


def test_one_that_can_be_done_by_the_deadline_at_another_cut_alone_moves_there():
    at_its_own, _, oracle = ends(QUICK, "a", TEN, moves=False)
    deadline = 1.2 * oracle
    assert at_its_own > deadline
    end, simulated, _ = ends(QUICK, "a", TEN, deadline=deadline)
    assert end < deadline
    assert [who for who, *_ in simulated.moved] == ["a"]


def test_nobody_moves_whose_link_was_not_seen():
    end, simulated, _ = ends(QUICK, "a", TEN, timed=False)
    assert not simulated.moved
    assert end == pytest.approx(ends(QUICK, "a", TEN, moves=False)[0], rel=0.01)


def test_nobody_moves_where_it_would_not_pay():
    _, simulated, _ = ends(QUICK, "c", Pace(up=1.5, down=1.5))
    assert not simulated.moved


def test_nobody_moves_whose_layers_would_take_longer_than_they_save():
    plan = plan_of({"a": 1.0e6, "b": 1.2e6, "c": 4e6}, profile=HEAVY)
    end, simulated, oracle = ends(plan, "a", TEN)
    assert not simulated.moved
    assert end <= 1.1 * oracle


def test_one_that_cannot_move_is_not_asked_again():
    simulated = Moving(QUICK)
    simulated.adapting.stays("a")
    simulated.others.append((0.1 * QUICK.latency, simulated.becomes, "a", TEN))
    simulated.run()
    assert not simulated.moved


LONG = plan_of({"a": 1.0e5, "b": 1.2e5}, steps=60, compute=1e7)
"""A mini-batch takes seconds, and ten times as long over a link that has become slower."""


def test_a_link_that_becomes_slower_is_seen_while_a_part_is_on_its_way():
    end, simulated, oracle = ends(LONG, "a", TEN, look=0.25)
    later, by_parts, _ = ends(LONG, "a", TEN, look=0.25, by_frames=False)
    there, here = (by_parts.ways["a"].rest(cut, 1 / 60, TEN).away[0] for cut in (2, 1))
    assert [who for who, *_ in simulated.moved] == [who for who, *_ in by_parts.moved] == ["a"]
    assert later - end == pytest.approx(here - there, rel=0.01), "a slow mini-batch sooner"
    assert end <= 1.1 * oracle


def test_a_moment_in_which_nothing_comes_is_no_slow_link():
    simulated, name = Moving(LONG, look=0.25), "a"
    quick = simulated.part(name)[1]

    def stall():
        simulated.stalls[name] += 10 * quick

    simulated.others.append((0.3 * LONG.latency, stall))
    simulated.run()
    assert not simulated.moved
    assert not simulated.changes
