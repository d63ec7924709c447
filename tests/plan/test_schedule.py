"""The closed form of a step, its compiled twin and a whole session, against a simulation of every event."""

from functools import cached_property

import numpy as np
import pytest
from step_events import in_turn_events, overlapped_events, session_events, sizes_of_parts
from wire_cases import random_wire_problem

from cutwater.plan import kernel
from cutwater.plan.latency import latency
from cutwater.plan.schedule import Batches, overlapped_step
from cutwater.plan.session import Wire, part_sizes
from cutwater.plan.tables import ClientTables, CutTables, without_server

STEPS = 20_000


class Drawn:
    """Random steps as columns: seconds of a sample and of a message's head, parts, round trips."""

    def __init__(self, seed, count):
        rng = np.random.default_rng(seed)
        self.samples = rng.integers(1, 40, count)
        self.micro_batches = rng.integers(1, 12, count)
        self.sample = 10 ** rng.uniform(-2, 1, (5, count)) * (rng.random((5, count)) < 0.95)
        head = 10 ** rng.uniform(-2, 1, (5, count)) * (rng.random((5, count)) < 0.5)
        self.head = head * np.array([0, 1, 0, 1, 0])[:, None]
        self.rtt = 10 ** rng.uniform(-2, 1, count) * (rng.random(count) < 0.6)

    def parts(self, i):
        """What each part of step i takes at each station."""
        sizes = sizes_of_parts(self.samples[i], self.micro_batches[i])
        return [tuple(size * self.sample[:, i] + self.head[:, i]) for size in sizes]

    @cached_property
    def batches(self):
        """The parts of all steps in the form that the planner has them in."""
        kinds = [
            Batches.of(np.ones(1), self.samples[i : i + 1], int(self.micro_batches[i]))
            for i in range(len(self.samples))
        ]
        names = ("larger", "larger_size", "smaller", "smaller_size")
        return {name: np.concatenate([getattr(kind, name) for kind in kinds]) for name in names}

    def closed_form(self):
        """All steps overlapped, by plan.schedule."""
        found = self.batches
        there = found["smaller"] > 0
        large = [q * found["larger_size"] + h for q, h in zip(self.sample, self.head, strict=True)]
        small = [q * found["smaller_size"] + h * there for q, h in zip(self.sample, self.head, strict=True)]
        return overlapped_step(large, small, (found["larger"], found["smaller"]), self.rtt)

    def compiled(self, i, x=1.0):
        """Step i by the kernel, at x times what it takes at the server: seconds and slope."""
        found, (f, u, s, d, b), head = self.batches, self.sample[:, i], self.head[:, i]
        parts = np.array([found[name][i] for name in found])
        return kernel.step(x, (f, u, head[1], s, d, head[3], b), parts, self.rtt[i])


@pytest.fixture(scope="module")
def drawn():
    return Drawn(0, STEPS)


@pytest.fixture(scope="module")
def simulated(drawn):
    return np.array([overlapped_events(drawn.parts(i), drawn.rtt[i]) for i in range(STEPS)])


def test_parts_are_as_the_simulation_divides_them(drawn):
    for samples, parts in zip(drawn.samples[:500], drawn.micro_batches[:500], strict=True):
        assert part_sizes(int(samples), int(parts)) == sizes_of_parts(samples, parts)


def test_the_closed_form_of_an_overlapped_step_is_what_happens(drawn, simulated):
    assert drawn.closed_form() == pytest.approx(simulated, rel=1e-12)


def test_the_compiled_step_is_what_happens(drawn, simulated):
    found = np.array([drawn.compiled(i)[0] for i in range(STEPS)])
    assert found == pytest.approx(simulated, rel=1e-12)


def test_an_overlapped_step_is_never_slower_than_one_in_turn(drawn, simulated):
    in_turn = np.array([in_turn_events(drawn.parts(i), drawn.rtt[i]) for i in range(STEPS)])
    assert (simulated <= in_turn * (1 + 1e-12)).all()
    alone = np.minimum(drawn.micro_batches, drawn.samples) == 1
    assert alone.sum() > 1000
    assert simulated[alone] == pytest.approx(in_turn[alone], rel=1e-12)


def test_the_compiled_slope_lies_between_the_differences_to_both_sides(drawn):
    """A convex function's tangent: where both differences agree, the slope is the derivative."""
    width, smooth = 1e-3, 0
    for i in range(2000):
        before, (here, slope), after = (drawn.compiled(i, 1 + d) for d in (-width, 0, width))
        left, right = (here - before[0]) / width, (after[0] - here) / width
        doubt = 1e-11 * here / width
        assert left - doubt <= slope <= right + doubt
        smooth += right - left <= 2 * doubt
    assert smooth > 1800


def test_many_parts_take_as_long_as_the_slowest_station_or_the_client():
    """Cut ever finer, without heads, a step tends to the busiest of client, up, server and down."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        whole = 10 ** rng.uniform(-1, 1, 5)
        limit = max(whole[0] + whole[4], whole[1], whole[2], whole[3])
        rest = []
        for parts in (100, 10_000, 1_000_000):
            one = [np.array([seconds / parts]) for seconds in whole]
            step = overlapped_step(one, one, (np.array([parts - 1.0]), np.ones(1)), np.zeros(1))[0]
            rest.append(step / limit - 1)
            assert limit * (1 - 1e-9) <= step <= limit + whole.sum() / parts * (1 + 1e-9)
        assert rest[2] <= rest[1] + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_the_latency_of_any_session_is_what_happens(seed):
    rng = np.random.default_rng(seed)
    problem = random_wire_problem(rng, 3)
    cells = [(cut, w) for cut in range(1, problem.layers + 1) for w in range(len(problem.options))]
    for place in rng.permutation(len(cells))[:12]:
        cut, w = cells[place]
        shares = 10 ** rng.uniform(6, 11, 3)
        found = latency(problem, cut, shares, wires=w)
        wanted = [session_events(problem, k, cut, problem.options[w], shares[k]) for k in range(3)]
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_a_compiled_session_is_what_happens(seed):
    rng = np.random.default_rng(seed)
    problem = random_wire_problem(rng, 3, limits=False)
    table = ClientTables.of(problem, CutTables.of(problem), without_server(problem)[0], np.arange(3))
    cells = table.by_cut
    for i in rng.permutation(len(cells.cuts))[:12]:
        cut, wire, share = int(cells.cuts[i]), problem.options[cells.wires[i]], 10 ** rng.uniform(6, 11)
        for k in range(3):
            row, weight = cells.rows[table.pattern[k]], table.weights[k]
            if i < cells.turns:
                found = kernel.in_turn(row, i, weight) + weight[4] * row[4, i] / share
            else:
                found = kernel.overlapped(1 / share, row, i, weight)[0]
                along = kernel.along_server(row, i, weight) + weight[4] * row[4, i] / share
                assert along <= found * (1 + 1e-12)
            assert found == pytest.approx(session_events(problem, k, cut, wire, share), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_work_without_a_share_is_never_done_by_any_wire(seed):
    problem = random_wire_problem(np.random.default_rng(seed), 2, limits=False)
    for cut in np.flatnonzero(problem.costs.server > 0) + 1:
        for w in range(len(problem.options)):
            assert (latency(problem, cut, 0.0, wires=w) == np.inf).all()


def test_overlapping_one_part_is_going_in_turn():
    problem = random_wire_problem(np.random.default_rng(3), 1)
    part = (0.1, 0.2, 0.3, 0.4, 0.5)
    assert overlapped_events([part], 0.25) == pytest.approx(in_turn_events([part], 0.25))
    assert problem.wires.options(1) == tuple(
        Wire("in turn", up, down) for up in problem.wires.up for down in problem.wires.down
    )
