"""True conditions."""

import math
from itertools import pairwise

import numpy as np
import pytest

from cutwater.base.errors import FileFormatError
from cutwater.federate.conditions import Condition, Conditions, read_trace
from cutwater.plan.fleet import Client
from cutwater.scenario.settings import CHANGES, ConditionSettings

CLIENT = Client(name="c1", compute=100e9, up=32e6, down=64e6, samples=10)
SAID = Condition(100e9, 32e6, 64e6)


def conditions(seed=7, **options):
    return Conditions.of(ConditionSettings(**options), seed)


def test_constant_conditions_are_what_the_scenario_says():
    assert {conditions().true(CLIENT, round_) for round_ in (1, 2, 100)} == {SAID}


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "trace"])
def test_conditions_are_a_function_of_seed_client_and_round_asked_in_any_order(change):
    made = conditions(change=change, dropout=0.3)
    forward = [(made.true(CLIENT, r), made.lost_at("c1", r)) for r in range(1, 60)]
    again = conditions(change=change, dropout=0.3)
    backward = [(again.true(CLIENT, r), again.lost_at("c1", r)) for r in range(59, 0, -1)]
    assert forward == backward[::-1]


@pytest.mark.parametrize("change", ["jitter", "markov"])
def test_clients_and_seeds_have_conditions_of_their_own(change):
    other = Client(name="c2", compute=100e9, up=32e6, down=64e6, samples=10)
    series = {
        tuple(made.true(device, r) for r in range(1, 40))
        for made, device in (
            (conditions(change=change), CLIENT),
            (conditions(change=change), other),
            (conditions(8, change=change), CLIENT),
        )
    }
    assert len(series) == 3


def test_jitter_is_log_normal_around_the_scenarios_value():
    made = conditions(change="jitter", compute_jitter=0.5, rate_jitter=0.1)
    seen = [made.true(CLIENT, r) for r in range(1, 3001)]
    compute = np.log([condition.compute / SAID.compute for condition in seen])
    rate = np.log([condition.up / SAID.up for condition in seen])
    for logs, sigma in ((compute, 0.5), (rate, 0.1)):
        assert abs(logs.mean()) < 5 * sigma / math.sqrt(3000)
        assert logs.std() == pytest.approx(sigma, rel=0.1)
    assert abs(np.corrcoef(compute, rate)[0, 1]) < 0.1
    assert all(condition.down == pytest.approx(2 * condition.up) for condition in seen), "one link, both ways"


@pytest.mark.parametrize(("p", "q"), [(0.1, 0.5), (0.3, 0.3), (0.8, 0.7), (1.0, 0.9), (1.0, 0.2), (0.5, 0.5)])
def test_markov_spells_have_the_transition_probabilities_asked_for(p, q):
    made = conditions(change="markov", degrade=p, recover=q)
    bad = np.array([made.in_bad_spell("rate", "c1", r) for r in range(1, 4001)])
    to_bad, to_good = bad[1:][~bad[:-1]], ~bad[1:][bad[:-1]]
    for moves, probability in ((to_bad, p), (to_good, q)):
        spread = math.sqrt(probability * (1 - probability) / len(moves))
        assert abs(moves.mean() - probability) <= 5 * spread


def test_bad_spells_slow_links_and_devices_each_at_their_own_time():
    made = conditions(change="markov", degrade=0.3, recover=0.3, slow_compute=0.5, slow_rate=0.25)
    seen = {(c.compute / SAID.compute, c.up / SAID.up) for c in (made.true(CLIENT, r) for r in range(1, 200))}
    assert seen == {(1.0, 1.0), (0.5, 1.0), (1.0, 0.25), (0.5, 0.25)}


def test_without_degradation_all_rounds_are_good():
    made = conditions(change="markov", degrade=0.0, recover=0.0)
    assert not any(made.in_bad_spell("rate", "c1", r) for r in (1, 5, 50))


def test_clients_drop_out_as_often_as_asked_at_any_point_of_their_session():
    made = conditions(dropout=0.2)
    points = [made.lost_at(f"c{k}", r) for k in range(20) for r in range(1, 101)]
    lost = [point for point in points if point is not None]
    assert abs(len(lost) / 2000 - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 2000)
    assert min(lost) < 0.1
    assert max(lost) > 0.9
    assert all(0 <= point < 1 for point in lost)
    assert conditions(dropout=0.0).lost_at("c1", 1) is None


TRACE = """round, client, compute, rate
1,c1,50 GFLOPS,4 MB/s
3,c1,200 GFLOPS,1 MB/s
2,c9,1 TFLOPS,8 Mbit/s
"""


def test_a_trace_holds_until_its_next_row_and_the_scenario_before_the_first(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    made = conditions(change="trace", trace=str(path))
    assert made.true(CLIENT, 1) == made.true(CLIENT, 2) == Condition(50e9, 32e6, 32e6)
    assert made.true(CLIENT, 3) == made.true(CLIENT, 99) == Condition(200e9, 8e6, 8e6)
    late = Client(name="c9", compute=1e9, up=1e6, down=1e6, samples=1)
    assert made.true(late, 1) == Condition(1e9, 1e6, 1e6)
    assert made.true(late, 2) == Condition(1e12, 8e6, 8e6)


def test_a_trace_may_have_a_rate_for_each_direction(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("client,round,up,down,compute\nc1,1,1 MB/s,2 MB/s,1 GFLOPS\n")
    assert read_trace(path).at(CLIENT, 4) == Condition(1e9, 8e6, 16e6)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # the byte order mark of some editors
    assert read_trace(path).at(CLIENT, 4) == Condition(1e9, 8e6, 16e6)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "has columns none"),
        ("round,client,speed\n", "has columns round, client, speed, but a trace has"),
        ("round,client,compute,rate\n1,c1,50,4 MB/s\n", "line 2: compute is '50'"),
        ("round,client,compute,rate\n1,c1,50 GFLOPS,-4 MB/s\n", "line 2: rate is '-4 MB/s'"),
        ("round,client,compute,rate\nx,c1,50 GFLOPS,4 MB/s\n", "line 2: invalid literal"),
        ("round,client,compute,rate\n0,c1,50 GFLOPS,4 MB/s\n", "line 2: round is 0"),
        ("round,client,compute,rate\n1,c1\n", "line 2"),
        (
            "round,client,compute,rate\n" + "1,c1,1 GFLOPS,1 MB/s\n" * 2,
            "line 3: client 'c1' has round 1 twice",
        ),
        ('round,client,compute,rate\n1,"c1,50', "is not CSV"),
        (b"\xff\xfe", "is not CSV"),
    ],
)
def test_a_broken_trace_is_named_with_its_line(tmp_path, content, reason):
    path = tmp_path / "trace.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileFormatError) as caught:
        conditions(change="trace", trace=str(path))
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_a_missing_trace_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"nowhere\.csv can't be read"):
        read_trace(tmp_path / "nowhere.csv")


def test_a_chain_that_always_moves_alternates():
    made = conditions(change="markov", degrade=1.0, recover=1.0)
    bad = [made.in_bad_spell("rate", "c1", r) for r in range(1, 200)]
    assert all(first != second for first, second in pairwise(bad))
