"""Several jobs on one server: optimal by two objectives, within an interval by the third."""

import numpy as np
import pytest
from evidence import evidence
from plan_cases import make_profile, network_like, random_fleet, random_problem
from scip_jobs import scip_jobs_optimum
from wire_cases import random_wire_problem

from cutwater.base.errors import PlanError
from cutwater.plan.curve import Cell, lower_hull
from cutwater.plan.exact import exact
from cutwater.plan.fastest_jobs import curve_of
from cutwater.plan.fleet import Client
from cutwater.plan.jobs import OBJECTIVES, Job, plan_jobs
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session


def random_jobs(seed, *, most=3):
    """A few small jobs, and a server that is smaller than they would like."""
    rng = np.random.default_rng(seed)
    problems = [
        random_problem(
            rng,
            network_like(int(rng.integers(4, 9)), seed * 7 + j),
            int(rng.integers(1, most + 1)),
            limits=bool(seed % 2),
        )
        for j in range(2 + seed % 2)
    ]
    F = float(rng.uniform(0.05, 1) * sum(problem.server.compute for problem in problems))
    weights = rng.uniform(0.5, 3, len(problems)).tolist()
    return [Job(f"j{j}", problem, w) for j, (problem, w) in enumerate(zip(problems, weights, strict=True))], F


def busy_problem(seed):
    """Clients with so much data that all of them need the server."""
    fleet = random_fleet(np.random.default_rng(seed), 6).replace(samples=np.full(6, 3000))
    return Problem(network_like(20, seed), fleet, Server(2e12), Session(epochs=20))


@pytest.mark.parametrize("seed", evidence(6, 200))
def test_jobs_equal_scip_and_its_optimum_lies_in_every_interval(seed):
    jobs, F = random_jobs(seed, most=2)
    for objective in OBJECTIVES:
        plan = plan_jobs(jobs, Server(F), objective)
        factors = [job.weight / (plan[job.name].alone if objective == "slowdown" else 1) for job in jobs]
        problems = [job.problem for job in jobs]
        optimum = scip_jobs_optimum(problems, F, factors, summed=objective == "sum")
        assert plan.value == pytest.approx(optimum, rel=1e-6 if objective != "sum" else 2e-6)
        # SCIP keeps its own constraints to 1e-9 of the largest numbers, which is less good of small ones.
        assert plan.lower_bound <= optimum * (1 + 1e-6)
        assert optimum <= plan.value * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_fleet_in_two_jobs_is_as_fast_as_in_one(seed):
    rng = np.random.default_rng(seed)
    whole = random_wire_problem(rng, 6, codecs=2) if seed % 2 else random_problem(rng, network_like(20), 9)
    clients = list(whole.fleet)
    halves = [whole.replace(clients=some) for some in (clients[:2], clients[2:])]
    plan = plan_jobs([Job("a", halves[0]), Job("b", halves[1])], whole.server, "slowest")
    best = exact(whole)
    assert plan.value == pytest.approx(best.latency, rel=1e-9)
    assert plan.gap < 1e-9
    assert plan.lower_bound <= best.latency * (1 + 1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_job_has_the_server_to_itself(objective):
    problem = random_problem(np.random.default_rng(4), network_like(12), 5)
    plan = plan_jobs([Job("only", problem)], problem.server, objective)
    assert plan["only"].latency == pytest.approx(exact(problem).latency, rel=1e-12)
    assert plan["only"].slowdown == pytest.approx(1.0)


def test_jobs_that_are_alike_get_equal_parts_and_weights_shift_them():
    problem = busy_problem(1)
    alike = plan_jobs([Job("a", problem), Job("b", problem)], problem.server)
    assert alike["a"].part == pytest.approx(alike["b"].part, rel=1e-6)
    shifted = plan_jobs([Job("a", problem), Job("b", problem, weight=1.05)], problem.server)
    assert shifted["b"].part > shifted["a"].part
    assert shifted["a"].slowdown == pytest.approx(1.05 * shifted["b"].slowdown, rel=1e-6)


def test_a_job_that_no_share_helps_leaves_the_server_to_the_other():
    profile = make_profile([8e6, 8e7, 9e7], [1e7, 5e7, 9e7], [8e9, 8e9, 8e9])
    slow = Client(name="far", compute=1e9, rate=1e6, samples=100)
    stuck = Problem(profile, [slow], Server(1e12), Session(epochs=1))
    other = random_problem(np.random.default_rng(3), network_like(12), 4)
    for objective in OBJECTIVES:
        plan = plan_jobs([Job("stuck", stuck), Job("other", other)], other.server, objective)
        assert plan["stuck"].part == 0
        assert plan["other"].latency == pytest.approx(exact(other).latency, rel=1e-9)
        assert plan["stuck"].saved == 0


def test_the_slower_jobs_wait_for_nobody_and_the_rest_is_shared_out_further():
    """Lexicographic: with the slowest job settled, the others are as fast as what it leaves allows."""
    for seed in range(2, 30, 3):
        jobs, F = random_jobs(seed)
        plan = plan_jobs(jobs, Server(F), "slowest")
        ranked = sorted(plan.jobs, key=lambda job: -job.job.weight * job.latency)
        left = F - ranked[0].part
        rest = plan_jobs([job.job for job in ranked[1:]], Server(left), "slowest")
        second = ranked[1].job.weight * ranked[1].latency
        assert second <= rest.value * (1 + 1e-6)
        assert sum(job.part for job in plan.jobs) <= F * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_parts_have_a_smaller_sum(seed):
    jobs, F = random_jobs(seed, most=8)
    plan = plan_jobs(jobs, Server(F), "sum")
    rng = np.random.default_rng(seed)
    for _ in range(10):
        parts = rng.dirichlet(np.ones(len(jobs))) * F
        value = sum(
            job.weight * exact(job.problem.replace(server=Server(part)), leftover="none").latency
            for job, part in zip(jobs, parts, strict=True)
        )
        assert value >= plan.value * (1 - 2e-6)
        assert value >= plan.lower_bound


@pytest.mark.parametrize(("clients", "gap"), [(5, 0.01), (30, 0.001)])
def test_the_interval_of_a_sum_is_narrow(clients, gap):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        jobs = [Job(str(j), random_problem(rng, network_like(30, j), clients, limits=True)) for j in range(3)]
        assert plan_jobs(jobs, jobs[0].problem.server, "sum").gap <= gap


@pytest.mark.parametrize("wires", [False, True])
def test_a_curve_lies_above_the_corners_of_its_cells(wires):
    rng = np.random.default_rng(5)
    problem = random_wire_problem(rng, 4, codecs=2) if wires else random_problem(rng, network_like(20), 8)
    curve = curve_of(problem, problem.server.compute)
    low, high = exact(problem).latency, curve.last if np.isfinite(curve.last) else 3 * curve.ceiling
    for start, end in np.sort(rng.uniform(low, high, (20, 2)), axis=1):
        hull = lower_hull(Cell.of(curve, start, end).corners())
        corners = [(corner.time, corner.need) for corner in reversed(hull)]
        for T in np.linspace(start, end, 7, endpoint=False):
            least = np.interp(T, *zip(*corners, strict=True))
            assert curve.demand(T)[0] >= least * (1 - 1e-9)


def test_the_derivative_is_what_a_little_more_of_it_saves():
    problems = [busy_problem(seed) for seed in range(2)]
    plan = plan_jobs([Job(str(j), problem) for j, problem in enumerate(problems)], Server(2e12), "slowest")
    for job in plan.jobs:
        more = job.job.problem.replace(server=Server(job.part * (1 + 1e-5)))
        saved = (job.latency - exact(more).latency) / (job.part * 1e-5)
        assert job.marginal == pytest.approx(saved, rel=1e-3)
        assert 0 < job.saved <= job.marginal * 0.01 * 2e12 * (1 + 1e-6)


def test_a_weight_may_be_a_number_of_numpys():
    problem = random_problem(np.random.default_rng(1), network_like(6), 2)
    for weight in (np.float32(2), np.float64(2), np.int64(2), 2):
        found = Job("a", problem, weight).weight
        assert (type(found), found) == (float, 2.0)
    for wrong in (True, "2", np.float32("nan"), -np.int64(1)):
        with pytest.raises(
            PlanError, match=r"the weight of job 'a' is .*, but must be a finite number above 0"
        ):
            Job("a", problem, wrong)


def test_a_part_of_the_server_keeps_its_memory():
    jobs = [Job(str(j), busy_problem(j)) for j in range(2)]
    plan = plan_jobs(jobs, Server(2e12, memory=8e9))
    assert all(job.plan.problem.server == Server(job.part, memory=8e9) for job in plan.jobs)
    assert all("of memory" in job.plan.explain() for job in plan.jobs)


def test_mistakes_are_told_in_a_sentence():
    problem = random_problem(np.random.default_rng(1), network_like(6), 2)
    job = Job("a", problem)
    with pytest.raises(PlanError, match="there is no objective 'slow': did you mean 'slowest'"):
        plan_jobs([job], problem.server, "slow")
    with pytest.raises(PlanError, match="two jobs are called 'a'"):
        plan_jobs([job, job], problem.server)
    with pytest.raises(PlanError, match="there are no jobs"):
        plan_jobs([], problem.server)
    with pytest.raises(PlanError, match="the weight of job 'a' is 0, but must be a finite number above 0"):
        Job("a", problem, 0)
    with pytest.raises(PlanError, match="there is no job 'b'"):
        plan_jobs([job], problem.server)["b"]
