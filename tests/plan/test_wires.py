"""Plans over wires: what a better wire can do, what clients can use, and what is refused."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from plan_cases import make_profile, network_like
from planning_anew import assert_planned_anew
from wire_cases import crossing_profile, random_client, random_wire_problem

from cutwater.base.errors import PlanError
from cutwater.plan.exact import exact
from cutwater.plan.fleet import Client
from cutwater.plan.latency import latency, session_bits
from cutwater.plan.planners import planners, solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.plan.value import Plan
from cutwater.plan.whatif import Increment
from cutwater.plan.worth import PARTS, worth

SEEDS = pytest.mark.parametrize("seed", range(25))


def made(seed, count=3, *, wires=None, micro_batches=4, **limits):
    """A problem without limits whose sessions are steps of 12 samples each."""
    rng = np.random.default_rng(seed)
    profile = crossing_profile(rng, 4)
    fleet = [random_client(rng, f"c{k}", profile) for k in range(count)]
    fleet = [replace(each, rate=None, batch_size=None, steps=3, epochs=None, **limits) for each in fleet]
    session = Session(steps=3, batch_size=12, micro_batches=micro_batches)
    return Problem(profile, fleet, Server(10 ** rng.uniform(8, 10)), session, wires or Wires())


@SEEDS
def test_more_equal_parts_without_heads_never_make_the_optimum_slower(seed):
    """It holds where every mini-batch is divided evenly, messages have no heads and all may overlap.

    Then a step takes what its slowest station does and an m-th of the rest; the round trip counts once.
    """
    found = [exact(made(seed, micro_batches=m)).latency for m in (1, 2, 3, 4, 6, 12)]
    assert all(finer <= coarser * (1 + 1e-9) for coarser, finer in pairwise(found))


@SEEDS
def test_fewer_bits_or_one_more_codec_never_make_the_optimum_slower(seed):
    plain = exact(made(seed)).latency
    half = exact(made(seed, wires=Wires(up=("bf16",), down=("bf16",)))).latency
    assert half <= plain * (1 + 1e-9)
    both = exact(made(seed, wires=Wires(up=("fp32", "int8"), down=("fp32", "topk")))).latency
    assert both <= plain * (1 + 1e-9)


@SEEDS
def test_a_smaller_round_trip_never_makes_the_optimum_slower(seed):
    problem = random_wire_problem(np.random.default_rng(seed), 3)
    nearer = problem.replace(clients=problem.fleet.replace(rtt=problem.fleet.rtt * 0.5))
    assert exact(nearer).latency <= exact(problem).latency * (1 + 1e-9)


@SEEDS
@pytest.mark.parametrize("codecs", [("bf16", "fp16"), ("fp16", "bf16")])
def test_of_two_codecs_with_the_same_bits_the_first_is_taken(seed, codecs):
    plan = exact(made(seed, wires=Wires(up=codecs, down=codecs)))
    for client in plan.clients:
        assert (client.up, client.down) == (codecs[0], codecs[0])


def test_where_there_is_nothing_to_overlap_parts_go_in_turn():
    problem = made(0, samples=1)
    one_sample = [replace(each, rate=None, steps=None, epochs=2) for each in problem.fleet]
    plan = exact(problem.replace(clients=one_sample))
    assert (plan.shares > 0).any()
    assert {client.schedule for client in plan.clients} == {"in turn"}


@SEEDS
def test_a_client_uses_only_what_it_can(seed):
    wires = Wires(up=("int4", "bf16", "fp32"), down=("int4", "bf16", "fp32"))
    plan = exact(made(seed, wires=wires, codecs=frozenset({"bf16"}), schedules=frozenset({"in turn"})))
    for client in plan.clients:
        assert (client.schedule, client.up, client.down) == ("in turn", "bf16", "bf16")


def test_a_client_that_can_use_nothing_of_what_is_offered_is_refused():
    with pytest.raises(PlanError, match=r"client 'c0' can use only int8, but \[wire\] offers .*fp32"):
        made(0, codecs=frozenset({"int8"}))
    with pytest.raises(PlanError, match="client 'c0' can use only overlapped, but"):
        made(0, schedules=frozenset({"overlapped"}), wires=Wires(schedule="in turn"))


def test_memory_for_one_part_but_not_for_all_means_going_in_turn():
    roomy = made(1, wires=Wires(up=("int8",)))
    cut = int(exact(roomy).cuts[exact(roomy).shares.argmax()])
    by_wire = dict.fromkeys(("in turn", "overlapped"))
    for schedule in by_wire:
        alone = made(1, wires=Wires(up=("int8",), schedule=schedule))
        by_wire[schedule] = alone.allowed.memory[0, cut - 1]
    assert by_wire["in turn"] < by_wire["overlapped"]
    between = 0.5 * (by_wire["in turn"] + by_wire["overlapped"])
    forbidden = frozenset({1, 2, 3, 4} - {cut})
    tight = made(1, wires=Wires(up=("int8",)), memory=between, forbidden=forbidden)
    assert {client.schedule for client in exact(tight).clients} == {"in turn"}
    enough = made(1, wires=Wires(up=("int8",)), memory=by_wire["overlapped"], forbidden=forbidden)
    assert {client.schedule for client in exact(enough).clients} == {"overlapped"}


@SEEDS
def test_lossless_is_priced_as_it_is_and_a_header_for_each_tensor_of_a_message(seed):
    problem = made(seed, wires=Wires(up=("fp32", "lossless")))
    plain, coded = (i for i, wire in enumerate(problem.options) if wire.schedule == "in turn")
    for cut in range(1, problem.layers):
        tensors = sum(one.dtype == "float32" for one in problem.profile.cuts[cut - 1].crossing)
        more = session_bits(problem, cut, wires=coded)[0] - session_bits(problem, cut, wires=plain)[0]
        assert more == pytest.approx(64 * tensors * problem.steps.parts)
        assert (latency(problem, cut, 1e9, wires=coded) >= latency(problem, cut, 1e9, wires=plain)).all()
    assert {client.up for client in exact(problem).clients} == {"fp32"}


@SEEDS
def test_plans_with_wires_survive_json(seed):
    plan = exact(random_wire_problem(np.random.default_rng(seed), 3))
    again = Plan.from_json(json.loads(json.dumps(plan.to_json(), allow_nan=False)))
    assert again == plan
    assert again.latencies == pytest.approx(plan.latencies, rel=1e-12)
    assert [(c.schedule, c.up, c.down) for c in again.clients] == [
        (c.schedule, c.up, c.down) for c in plan.clients
    ]


def test_more_parts_than_samples_are_refused():
    with pytest.raises(PlanError, match="micro_batches is 33, but the mini-batches of the session have 32"):
        Session(epochs=1, micro_batches=33)
    small = Client(name="small", compute=1e9, rate=1e7, samples=9, batch_size=3)
    session = Session(epochs=1, batch_size=8, micro_batches=4)
    with pytest.raises(PlanError, match="micro_batches is 4, but the mini-batches of client 'small' have 3"):
        Problem(network_like(5), [small], Server(1e9), session)
    with pytest.raises(PlanError, match="client 'small'"):
        session.of(small)


def test_an_unknown_codec_or_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(PlanError, match=r"up is 'int6'.*int8"):
        Wires(up="int6")
    with pytest.raises(PlanError, match=r"schedule is 'overlaped'.*overlapped"):
        Wires(schedule="overlaped")


def test_codecs_that_a_profile_cannot_price_are_refused_in_a_sentence():
    profile = make_profile([100, 200, 300], [1e6, 2e6, 3e6], [400, 300, 200])
    client = Client(name="c", compute=1e8, rate=1e6, samples=64)
    session = Session(epochs=1)
    sentence = "the profile of 'made' does not tell which tensors cross its cuts, so int8 can't be priced"
    with pytest.raises(PlanError, match=f"{sentence}: make it anew with cutwater profile, or add fp32"):
        Problem(profile, [client], Server(1e10), session, Wires(up="int8"))
    either = Wires(up=("int8", "fp32"))
    plan = exact(Problem(profile, [client], Server(1e10), session, either))
    assert (plan["c"].mode, plan["c"].up) == ("split", "fp32")
    only = replace(client, rate=None, codecs=frozenset({"int8", "fp32"}))
    Problem(profile, [only], Server(1e10), session, either)
    both_coded = Wires(up=("int8", "fp32"), down=("int8", "fp32"))
    only = replace(client, rate=None, codecs=frozenset({"int8"}))
    with pytest.raises(PlanError, match=f"{sentence} for 'c': .*to the client's codecs"):
        Problem(profile, [only], Server(1e10), session, both_coded)


@pytest.mark.parametrize("name", planners())
def test_planners_that_know_nothing_of_wires_plan_with_one_that_works(name):
    if name == "exhaustive":
        return
    profile = make_profile([100, 200, 300], [1e6, 2e6, 3e6], [400, 300, 200])
    client = Client(name="c", compute=1e8, rate=1e6, samples=64, forbidden={3})
    if name == "fedavg":
        client = replace(client, rate=None, forbidden=frozenset())
    problem = Problem(profile, [client], Server(1e10), Session(epochs=1), Wires(up=("int8", "fp32")))
    assert solve(problem, name)["c"].up in ("fp32", "int8")


@SEEDS
def test_more_server_compute_is_worth_what_the_slopes_say(seed):
    """-dT/dF with overlapped clients, against planning anew with a trifle more."""
    problem = random_wire_problem(np.random.default_rng(seed), 3)
    plan = exact(problem, leftover="none")
    F, trifle = problem.server.compute, 1e-7
    more = exact(problem.replace(server=Server(F * (1 + trifle))), leftover="none")
    wanted = (plan.latency - more.latency) / (F * trifle)
    assert plan.marginal[0] == pytest.approx(wanted, rel=1e-3, abs=1e-4 * plan.latency / F)


@SEEDS
def test_what_a_change_is_worth_is_what_planning_anew_finds(seed):
    problem = random_wire_problem(np.random.default_rng(seed), 3)
    step = Increment(
        compute=float(problem.fleet.compute.min()) * 0.3, rate=float(problem.fleet.up.min()) * 0.3
    )
    assert_planned_anew(problem, step)


@SEEDS
def test_advice_is_given_where_the_plan_is_made(seed):
    plan = exact(random_wire_problem(np.random.default_rng(seed), 3))
    again = Plan.from_json(plan.to_json())
    assert "each planned anew" in plan.explain() or "No single change helps" in plan.explain()
    assert "What would help most is told where the plan is made." in again.explain()
    assert again.explain().splitlines()[0] == plan.explain().splitlines()[0]


def test_a_planner_that_looks_at_no_other_wire_says_so():
    several = made(1, wires=Wires(up=("fp32", "int8"), down=("fp32",)))
    told = "steps in turn, fp32 up, fp32 down: looks at no other schedule or codec"
    say_so = set()
    for name in planners():
        plan = solve(several, name)
        if plan.outcome.endswith(told):
            say_so.add(name)
        cut_nobody = bool((plan.cuts == plan.layers).all())
        assert plan.outcome.endswith(told) != (name == "exact" or cut_nobody), name
        assert "looks at" not in solve(made(1, micro_batches=1), name).outcome, "there is no other"
    assert {"splitfed", "random"} <= say_so


def test_where_clients_can_use_different_wires_a_planner_says_which_it_took():
    several = made(1, wires=Wires(up=("fp32", "int8"), down=("fp32", "int8")), micro_batches=1)
    several = several.replace(clients=several.fleet.replace(codecs={0: ("int8",)}))
    outcome = solve(several, "splitfed").outcome
    ways = "steps in turn, fp32 up, fp32 down; steps in turn, int8 up, int8 down"
    assert outcome.endswith(f"{ways}: looks at no other schedule or codec")


@pytest.mark.parametrize("seed", range(5))
def test_what_each_wire_is_worth_is_the_optimum_of_that_wire_and_round_trip(seed):
    problem = made(seed)
    limited = problem.replace(clients=problem.fleet.replace(codecs={0: ("fp32",)}))
    heard = []
    grid = worth(limited, lambda: heard.append(1), codecs=("fp32", "int8"), rtt=0.25)
    assert len(heard) == len(grid) == 2 * len([parts for parts in PARTS if parts <= 12])
    for cell in grid:
        far = made(seed, wires=Wires.both_ways(cell.codec), micro_batches=cell.micro_batches, rtt=0.25)
        assert cell.latency == pytest.approx(exact(far).latency, rel=1e-12)
        assert (cell.rtt, cell.lossy) == (0.25, cell.codec == "int8")
    own = {(cell.codec, cell.micro_batches): cell for cell in worth(problem)}
    assert own["int8", 4].latency == exact(made(seed, wires=Wires.both_ways("int8"))).latency
    assert own["int8", 4].rtt is None
