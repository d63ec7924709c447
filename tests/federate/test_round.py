"""The virtual clock of a round: who counts, when it ends, what fails."""

from dataclasses import replace

import numpy as np
import pytest
from collecting import clocked
from hypothesis import given, settings
from hypothesis import strategies as st
from small_study import small_clients, small_study

from cutwater.base.errors import PlanError
from cutwater.federate.clock import play
from cutwater.federate.conditions import Condition
from cutwater.federate.round import under
from cutwater.plan.baselines import fedavg
from cutwater.plan.fleet import Client
from cutwater.plan.problem import Band, Problem
from cutwater.runs.layout import ROUND_FORMAT
from cutwater.scenario.settings import TrainSettings

STUDY = small_study()


def problem(seconds: list[float]) -> Problem:
    """Clients whose whole-model sessions take so many seconds, by eq. (19) turned round."""
    costs = STUDY.problem(STUDY.fleet[:1]).costs
    work = STUDY.session.steps * STUDY.session.batch_size
    rate = 1e15
    clients = []
    for k, wanted in enumerate(seconds):
        compute = work * costs.client[-1] / (wanted - 2 * costs.bits[-1] / rate)
        clients.append(Client(name=f"c{k}", compute=compute, rate=rate, samples=20))
    return STUDY.problem(clients)


def outcome(seconds, lost_at=None, **train):
    truth = problem(seconds)
    plan = fedavg(truth)
    return play(3, plan, truth, dict.fromkeys(plan.names) | (lost_at or {}), TrainSettings(**train))


def test_a_client_that_would_never_be_done_is_named():
    truth = problem([1.0, 2.0])
    plan = fedavg(truth)
    slow = replace(truth.clients[1], rate=None, up=1e-310, down=1e-310)
    endless = STUDY.problem([truth.clients[0], slow])
    for lost_at in (None, 0.5):
        lost = {"c0": None, "c1": lost_at}
        with pytest.raises(PlanError, match="client 'c1' would never be done in round 3"):
            play(3, plan, endless, lost, TrainSettings(deadline=5.0))


# Equal times are made likely, because ties are where orders go wrong.
TIMES = st.lists(st.sampled_from([1.0, 2.0, 2.0, 3.0, 5.0, 8.0]), min_size=1, max_size=9)


@st.composite
def rounds(draw):
    """(seconds, lost_at, settings) of a round."""
    seconds = draw(TIMES)
    lost = {
        f"c{k}": draw(st.floats(0, 1, exclude_max=True))
        for k in range(len(seconds))
        if draw(st.integers(0, 3)) == 0
    }
    train = {
        "deadline": draw(st.none() | st.sampled_from([0.5, 1.5, 2.0, 4.0, 10.0])),
        "clients_per_round": draw(st.none() | st.integers(1, len(seconds))),
    }
    train["quorum"] = draw(st.integers(1, train["clients_per_round"] or len(seconds)))
    return seconds, lost, train


@settings(deadline=None, max_examples=300)
@given(rounds())
def test_a_round_clock_only(case):
    """Everything that must hold of any round, checked from the outside."""
    seconds, lost, train = case
    result = outcome(seconds, lost, **train)
    took = {part.name: float(part.actual.total) for part in result.parts}
    wanted = min(train["clients_per_round"] or len(seconds), len(seconds))
    deadline = train["deadline"] or np.inf
    counted = [part.name for part in result.parts if part.outcome == "done"]

    # Nobody counts who was lost, came after the deadline, or in excess; the others have a reason each.
    assert not set(counted) & set(lost)
    assert all(took[name] <= deadline for name in counted)
    assert len(counted) <= wanted
    assert set(result.lost) == set(took) - set(counted)
    assert all(result.lost.values())

    # Whoever could have counted and does not was slower than all who do, or as slow and later in the fleet.
    order = list(took)
    for name in set(took) - set(counted) - set(lost):
        if took[name] <= deadline:
            assert len(counted) == wanted
            assert all((took[one], order.index(one)) < (took[name], order.index(name)) for one in counted)

    # The round ends with the last that counts if they are enough, and otherwise waits for what may come.
    if len(counted) == wanted:
        assert result.seconds == max(took[name] for name in counted)
    else:
        ends = [took[name] * lost.get(name, 1.0) for name in took]
        assert result.seconds == min(max(ends), deadline)
    assert result.seconds <= deadline
    assert result.bottleneck in took

    # Quorum.
    assert (result.failed is not None) == (len(counted) < train["quorum"])
    assert list(result.done) == ([] if result.failed else counted)


@settings(deadline=None, max_examples=100)
@given(rounds(), st.randoms(use_true_random=False))
def test_times_do_not_depend_on_the_order_of_clients(case, random):
    seconds, lost, train = case
    straight = outcome(seconds, lost, **train)
    order = list(range(len(seconds)))
    random.shuffle(order)
    moved = {f"c{order.index(int(name[1:]))}": part for name, part in lost.items()}
    shuffled = outcome([seconds[k] for k in order], moved, **train)
    assert shuffled.seconds == straight.seconds
    assert (shuffled.failed is None) == (straight.failed is None)
    assert len(shuffled.done) == len(straight.done)


def test_ties_go_to_the_fleets_order():
    result = outcome([3.0, 2.0, 2.0, 2.0], clients_per_round=2)
    assert result.done == ("c1", "c2")
    assert result.seconds == pytest.approx(2.0)
    assert result.lost["c3"].startswith("late: 2 s, the round ended after 2 s")


def test_a_deadline_leaves_late_clients_out_and_ends_the_round():
    result = outcome([1.0, 2.0, 9.0], deadline=4.0)
    assert result.done == ("c0", "c1")
    assert result.seconds == 4.0
    assert result.bottleneck == "c2"
    assert "late: 9 s" in result.lost["c2"]


def test_a_client_that_finishes_on_the_deadline_counts():
    exact = float(outcome([2.0]).parts[0].actual.total)
    assert outcome([2.0], deadline=exact).done == ("c0",)


def test_over_selection_takes_the_first_and_does_not_wait_for_the_rest():
    result = outcome([5.0, 1.0, 3.0, 2.0], clients_per_round=2, over_selection=1.0)
    assert result.done == ("c1", "c3")
    assert result.seconds == pytest.approx(2.0)
    assert result.bottleneck == "c3"


def test_over_selection_makes_up_for_a_client_that_drops_out():
    result = outcome([5.0, 1.0, 3.0, 2.0], {"c1": 0.5}, clients_per_round=2, over_selection=1.0)
    assert result.done == ("c2", "c3")
    assert result.lost["c1"] == "dropped out after 50% of its session"


def test_a_round_waits_for_a_client_until_it_is_lost():
    result = outcome([1.0, 10.0], {"c1": 0.6})
    assert result.done == ("c0",)
    assert result.seconds == pytest.approx(6.0)
    assert result.bottleneck == "c1"


def test_a_round_that_everybody_leaves_ends_with_the_last_to_leave():
    result = outcome([4.0, 10.0], {"c0": 0.5, "c1": 0.5})
    assert result.seconds == pytest.approx(5.0)
    assert result.done == ()
    assert "0 of 2 clients were done, but the quorum is 1" in result.failed


def test_below_quorum_a_round_fails_and_says_how_many_were_done():
    result = outcome([1.0, 2.0, 9.0], deadline=3.0, quorum=3)
    assert result.failed == "2 of 3 clients were done, but the quorum is 3"
    assert result.done == ()
    assert result.seconds == 3.0


def test_the_plan_is_made_on_beliefs_and_the_clock_runs_on_the_truth():
    study = small_study(train={"clients_per_round": 4}, conditions={"change": "jitter", "rate_jitter": 1.0})
    result = clocked(study, 2)
    for part in result.parts:
        assert float(part.planned.total) == pytest.approx(result.plan[part.name].latency)
        assert float(part.actual.total) != pytest.approx(float(part.planned.total))
        # The server keeps its promise: what differs is on the client and on the link.
        assert part.actual.server_forward == part.planned.server_forward
        assert part.actual.client_forward != part.planned.client_forward
    assert result.seconds == max(float(part.actual.total) for part in result.parts)


def test_an_oracle_plans_what_then_happens():
    study = small_study(conditions={"change": "markov", "degrade": 0.5, "estimate": "true"})
    for round_ in (1, 2, 3):
        result = clocked(study, round_)
        assert result.seconds == pytest.approx(result.plan.latency)


def test_conditions_replace_compute_and_rates_and_nothing_else():
    clients = small_clients(2)
    changed = under(clients, [Condition(1.0, 2.0, 3.0), Condition(4.0, 5.0, 6.0)], {})
    assert [(c.compute, c.up, c.down) for c in changed] == [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]
    for client, other in zip(clients, changed, strict=True):
        assert replace(client, rate=None, compute=1.0, up=1.0, down=1.0) == replace(
            other, rate=None, compute=1.0, up=1.0, down=1.0
        )


def test_a_round_as_json_tells_planned_from_actual():
    study = small_study(conditions={"change": "jitter", "dropout": 0.3})
    document = ROUND_FORMAT.document(clocked(study, 1).kept)
    assert document["format"] == "cutwater.round"
    assert len(document["clients"]) == len(study.fleet)
    for client in document["clients"]:
        assert sum(client["planned"].values()) == pytest.approx(client["planned_seconds"])
        assert sum(client["actual"].values()) == pytest.approx(client["actual_seconds"])


def test_where_links_are_shared_the_clock_runs_on_the_rates_that_were_planned():
    own = small_study()
    capacity = 0.5 * float(own.fleet.up.sum())
    study = small_study(band=Band(up=capacity))
    round_ = clocked(study, 1)
    assert round_.plan.rates[0].sum() <= capacity * (1 + 1e-9)
    assert round_.seconds == pytest.approx(round_.plan.latency)
    tasks = study.tasks(1, round_.plan)
    assert [task.rate_up for task in tasks] == round_.plan.rates[0].tolist()
    assert {task.rate_down for task in tasks} == {0.0}
    assert study.fingerprint() != own.fingerprint()
    assert {task.rate_up for task in own.tasks(1, clocked(own, 1).plan)} == {0.0}


def test_a_link_that_turns_out_slower_than_its_rate_is_what_the_clock_runs_on():
    markov = {"change": "markov", "degrade": 1.0, "recover": 1e-6, "slow_rate": 0.1}
    study = small_study(band=Band(up=1e12, down=1e12), conditions=markov)
    round_ = clocked(study, 2)
    assert round_.seconds > round_.plan.latency
