"""What the figures say, checked against the planner and against itself."""

import numpy as np
import pytest

from cutwater.plan.latency import latency, whole_model_latency
from cutwater.plan.planners import solve
from cutwater.reproduce.paper_setup import SHARE, lone_client, ten


def test_the_best_cut_is_the_smallest_of_all_latencies(quick_values):
    values = quick_values("cut-latency")
    problem = lone_client()
    seconds = [float(latency(problem, cut, SHARE)[0]) for cut in range(1, problem.layers + 1)]
    assert values.latency == pytest.approx(seconds)
    assert min(seconds) == pytest.approx(values.best)
    assert values.fedavg == pytest.approx(float(whole_model_latency(problem)[0]))


def test_the_kinds_of_time_add_up_to_the_latency(quick_values):
    values = quick_values("cut-latency")
    assert np.sum(list(values.groups.values()), axis=0) == pytest.approx(values.latency)
    for round_ in (quick_values("clients").fedavg, quick_values("clients").alternating):
        assert np.sum(list(round_.groups.values()), axis=0) == pytest.approx(round_.latencies)


def test_fedavg_sends_no_smashed_data_and_uses_no_server(quick_values):
    groups = quick_values("clients").fedavg.groups
    assert set(groups["smashed data and gradients"]) == {0.0}
    assert set(groups["server-side training"]) == {0.0}


def test_the_last_iteration_is_what_the_plan_s_trace_ends_with(quick_values):
    values = quick_values("convergence")
    trace = solve(ten(), "alternating").trace
    assert values.latencies == tuple(turn.latency for turn in trace)
    assert values.optimum <= min(values.latencies)


def test_a_larger_server_never_makes_the_optimum_slower(quick_values):
    values = quick_values("server")
    assert list(values.exact) == sorted(values.exact, reverse=True)
    assert all(
        best <= other * (1 + 1e-9) for best, other in zip(values.exact, values.alternating, strict=True)
    )


def test_no_plan_of_the_thousand_fleets_beats_the_optimum(quick_values):
    values = quick_values("gap")
    assert values.gaps.min() > -1e-6
    assert np.all(values.last_gaps >= values.gaps)
    assert sum(values.ended.values()) == len(values.optimum)


def test_the_two_ways_to_kappa_agree(quick_values):
    values = quick_values("kappa")
    ratios = np.array(values.backward) / np.array(values.forward)
    assert values.kappa == pytest.approx(np.median(ratios))


def test_the_regression_costs_most_where_its_form_is_wrong(quick_values):
    values = quick_values("models")
    efficientnet, resnet = values.studies[0], values.studies[1]
    assert not efficientnet.wrong
    assert "smashed data" in resnet.wrong
    assert resnet.most > efficientnet.most
    assert resnet.most > 5 * resnet.most_on_true_costs
