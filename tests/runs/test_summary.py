"""A run in a few numbers, each with one definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import a_line, write_run

from cutwater.federate.record import deviation
from cutwater.plan.latency import PHASES
from cutwater.runs.reader import read_run
from cutwater.runs.summary import common_target, compare, phase_totals, plan_error, summary, time_to
from cutwater.scenario.goal import Goal, Target

SECONDS = st.floats(1e-6, 1e6)


def test_summary_of_a_run():
    lost = {"x": "late"}
    made = [
        a_line(1, virtual_seconds=2.0, accuracy=0.5, planned_seconds=1.0, actual_seconds=2.0, lost=lost),
        a_line(2, virtual_seconds=6.0, accuracy=0.9, planned_seconds=4.0, actual_seconds=3.0),
        a_line(3, virtual_seconds=9.0, loss=None, planned_seconds=3.0, actual_seconds=9.0, failed="quorum"),
    ]
    result = summary(made)
    assert (result.rounds, result.failed, result.lost) == (3, 1, 1)
    assert (result.accuracy, result.best_accuracy, result.loss) == (0.9, 0.9, 1.0)
    assert (result.virtual_seconds, result.bytes_up, result.bytes_down) == (9.0, 9, 12)
    error = result.plan_error
    assert (error.mean, error.worst, error.worst_round) == (0.625, 1.0, 1)
    assert time_to(made, Target.parse("accuracy>=0.8")).virtual_seconds == 6.0
    assert time_to(made, Target.parse("accuracy>=0.95")) is None
    assert summary([]).rounds == 0
    assert plan_error([]) is None


def test_a_summary_has_the_last_of_every_metric_and_the_best_model():
    best = {"metric": "f1", "better": "max", "round": 1, "value": 0.7, "waited": 1}
    spread = {"mean": 0.5, "deviation": 0.1, "least": 0.4, "most": 0.6, "clients": 2}
    made = [
        a_line(1, test_loss=2.0, metrics={"f1": 0.7, "mae": 1.0}, local_tests={"mae": spread}),
        a_line(2, test_loss=1.5, metrics={"f1": 0.6}, best=best, stopped="stopped early"),
        a_line(3, best=best, stopped="stopped early"),
    ]
    result = summary(made)
    assert (result.test_loss, result.metrics) == (1.5, {"f1": 0.6, "mae": 1.0})
    assert (result.best.round, result.best.value, result.stopped) == (1, 0.7, "stopped early")
    assert result.local_tests["mae"].mean == 0.5
    assert made[0].to_json() == a_line(1, **made[0].to_json() | {"round": 1}).to_json()


def test_runs_without_accuracy_are_compared_by_what_is_kept_or_by_test_loss():
    losses = [[a_line(1, test_loss=2.0), a_line(2, test_loss=1.0)], [a_line(1, test_loss=1.5)], []]
    assert common_target(losses) == Target(Goal("test_loss", "min"), 1.5)
    best = {"metric": "f1", "better": "max", "round": 1, "value": 0.7}
    kept = [[a_line(1, test_loss=2.0, metrics={"f1": 0.7}, best=best)]]
    assert common_target(kept) == Target(Goal("f1", "max"), 0.7)
    assert common_target([[]]) is None


def test_a_round_that_took_half_of_what_was_planned_was_off_by_half():
    assert deviation(10.0, 5.0) == -0.5
    assert plan_error([a_line(1, planned_seconds=10.0, actual_seconds=5.0)]).mean == 0.5


@pytest.mark.parametrize(("planned", "actual"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1e-200, 1e200)])
def test_what_has_no_quotient_is_no_error_of_the_plan(planned, actual):
    line = a_line(1, planned_seconds=planned, actual_seconds=actual)
    assert line.deviation is None
    assert plan_error([line]) is None


@given(st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=8))
def test_the_plans_error_is_that_of_the_rounds_that_did_not_fail(rounds):
    lines = [
        a_line(number, planned_seconds=planned, actual_seconds=actual, failed="quorum" if failed else None)
        for number, (planned, actual, failed) in enumerate(rounds, 1)
    ]
    far = [abs(actual / planned - 1) for planned, actual, failed in rounds if not failed]
    found = plan_error(lines)
    if far:
        assert found.mean == pytest.approx(sum(far) / len(far))
        assert found.worst == max(far) == abs(lines[found.worst_round - 1].deviation)
    else:
        assert found is None


def test_runs_are_compared_at_the_most_that_all_of_them_reach(tmp_path):
    short = read_run(write_run(tmp_path / "short", rounds=2))
    long = read_run(write_run(tmp_path / "long", rounds=5, planner="fedavg"))
    best = [max(line.accuracy for line in run.lines) for run in (short, long)]
    found = compare([short, long])
    assert found.target == Target(Goal("accuracy", "max"), min(best))
    assert min(best) == best[0]
    assert found.base == 1
    ours, base = found.runs
    assert (ours.reached.round, base.reached.round) == (2, 2)
    assert ours.speed_up == base.reached.virtual_seconds / ours.reached.virtual_seconds
    assert (ours.same_rounds, ours.common_rounds) == (2, 2)
    assert compare([long]).target.value == best[1]
    unreached = Target.parse("accuracy>=1")
    assert [row.reached for row in compare([short, long], unreached).runs] == [None, None]


def test_a_run_that_was_never_tested_does_not_change_what_the_others_are_compared_at(tmp_path):
    tested = read_run(write_run(tmp_path / "tested", rounds=2))
    begun = write_run(tmp_path / "begun", rounds=1)
    (begun / "metrics.jsonl").unlink()
    found = compare([read_run(begun), tested])
    assert found.target.value == tested.lines[-1].accuracy
    assert (found.runs[0].reached, found.runs[1].speed_up) == (None, None)


def test_totals_by_phase_are_of_the_updates_that_count(tmp_path):
    rounds, _ = read_run(write_run(tmp_path / "run", rounds=4)).rounds()
    assert [bool(each.failed) for each in rounds] == [False, False, True, False]
    counted = [client for each in rounds if not each.failed for client in each.clients if client.done]
    for total, phase in zip(phase_totals(rounds), PHASES, strict=True):
        actual = sum(getattr(client.actual, phase) for client in counted)
        assert (total.phase, total.actual) == (phase, pytest.approx(actual))
        assert total.deviation == deviation(total.planned, total.actual)
    assert phase_totals(()) == ()
