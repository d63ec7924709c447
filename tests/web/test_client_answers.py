"""What a page is told of clients, wires and steps is what the planner says, number for number."""

import csv
import io
import json

import numpy as np
import pytest
from test_page_state import BODY, CATALOGUE

from cutwater.plan.busy import RESOURCES, Busy
from cutwater.plan.exact import exact
from cutwater.plan.latency import PHASES
from cutwater.plan.problem import Problem
from cutwater.plan.session import Session, Wires
from cutwater.plan.timeline import timeline
from cutwater.web.answers import plan_answer, plan_csv
from cutwater.web.state import read_asked
from cutwater.web.step import MOST_PARTS, client_data

CSV = (
    "name,compute,rate,samples,rtt\na,1 MFLOPS,1 MB/s,80,30 ms\nb,20 MFLOPS,0.02 MB/s,90,\n"
    "c,400 GFLOPS,90 MB/s,90,\n"
)
SESSION = {"steps": 5, "batch_size": 16, "micro_batches": 4}
WIRE = {"up": "int8", "down": "bf16", "schedule": "overlapped"}


def asked(**change):
    return read_asked(BODY | {"fleet": {"csv": CSV}, "session": SESSION, "wire": WIRE} | change, CATALOGUE)


def decoded(body: bytes):
    line, _, rest = body.partition(b"\n")
    head = json.loads(line)
    columns = np.frombuffer(rest, "<f8").reshape(len(head["columns"]), head["count"])
    return head, dict(zip(head["columns"], columns, strict=True))


def test_the_page_plans_for_the_parts_wires_and_round_trips_that_it_names():
    problem = asked().problem
    assert problem.session == Session(**SESSION)
    assert problem.wires == Wires(up=("int8",), down=("bf16",), schedule=("overlapped",))
    assert problem.fleet.rtt.tolist() == [0.03, 0, 0]


def test_columns_are_those_of_the_exact_plan_and_sessions_are_as_long_as_their_latency():
    question = asked()
    given = question.problem
    plan = exact(Problem(given.profile, given.fleet, given.server, given.session, given.wires))
    head, columns = decoded(plan_answer(question))
    assert plan.phases.overlap.max() > 0
    assert plan.phases.round_trips.max() > 0
    np.testing.assert_array_equal(columns["session"], plan.latencies)
    np.testing.assert_array_equal(columns["overlap"], plan.phases.overlap)
    for phase in PHASES:
        np.testing.assert_array_equal(columns[phase], getattr(plan.phases, phase))
    for k, client in enumerate(plan.clients):
        wire = head["wires"][int(columns["wire"][k])]
        assert (wire["schedule"], wire["up"], wire["down"]) == (client.schedule, client.up, client.down)
        assert head["resources"][int(columns["waits"][k])] == Busy.of(plan[k].phases).waits_for


def test_the_chosen_clients_step_is_its_timeline():
    for name in ("a", "b", "c"):
        question = asked(client=name)
        head, _ = decoded(plan_answer(question))
        told, step = head["client"], timeline(question.problem, question.plan, name)
        assert told["name"] == name
        assert told["step"]["seconds"] == step.seconds
        assert told["step"]["waits_for"] == step.waits_for
        stays = {(stay.part, stay.station): stay for stay in step.stays}
        assert len(told["step"]["stays"]) == len(stays)
        for row in told["step"]["stays"]:
            stay = stays[row["part"], row["station"]]
            assert (row["begin"], row["end"], row["arrives"]) == (stay.begin, stay.end, stay.arrives)
            assert (row["lane"], row["critical"]) == (stay.lane, stay.critical)
        found = Busy.of(question.plan[name].phases)
        assert {row["name"]: row["seconds"] for row in told["busy"]} == found.named()
        assert [row["name"] for row in told["busy"]] == list(RESOURCES)
        assert told["waits_for"] == found.waits_for
        assert told["seconds"] == question.plan[name].latency


def test_without_a_choice_or_with_one_that_is_gone_the_bottleneck_is_shown():
    for change in ({}, {"client": "gone"}):
        question = asked(**change)
        assert decoded(plan_answer(question))[0]["client"]["name"] == question.plan.bottleneck.name


def test_bytes_stand_beside_those_of_the_same_plan_with_fp32():
    question = asked()
    plan, problem = question.plan, question.problem
    split = next(client for client in plan.clients if client.mode == "split")
    up, down = client_data(problem, plan, split.name)["bytes"]
    assert (up["bytes"], down["bytes"]) == (split.bytes_up, split.bytes_down)
    assert (up["codec"], down["codec"]) == ("int8 (lossy)", "bf16 (lossy)")
    costs, k = problem.costs, plan.place(split.name)
    model, moved = costs.bits[split.cut - 1], costs.smashed[split.cut - 1] * problem.work[k]
    assert up["fp32"] == (model + moved) / 8
    assert split.bytes_up < up["fp32"]
    assert up["part"] == split.bytes_up / up["fp32"]
    plain = asked(wire={"schedule": "overlapped"})
    for name in ("a", "b", "c"):
        for way in client_data(plain.problem, plain.plan, name)["bytes"]:
            assert way["bytes"] == pytest.approx(way["fp32"], rel=1e-12)


def test_lossy_is_said_where_a_codec_is_and_only_there():
    head, _ = decoded(plan_answer(asked()))
    assert head["lossy"].startswith("Lossy: ")
    assert [wire["text"] for wire in head["wires"]] == ["overlapped; int8 (lossy) up, bf16 (lossy) down"]
    for wire in ({}, {"up": "lossless", "down": "lossless"}):
        head, _ = decoded(plan_answer(asked(wire=wire)))
        assert head["lossy"] is None
        assert not any("lossy" in wire["text"] or wire["lossy"] for wire in head["wires"])
    whole, _ = decoded(plan_answer(asked(server="0 GFLOPS")))
    assert whole["lossy"] is None
    assert whole["client"]["wire"] is None


def test_a_step_in_very_many_parts_is_not_drawn_but_planned():
    many = SESSION | {"batch_size": 10**6, "micro_batches": MOST_PARTS + 1}
    told = decoded(plan_answer(asked(session=many)))[0]["client"]
    assert told["step"] is None
    assert told["seconds"] > 0
    most = SESSION | {"batch_size": 10**6, "micro_batches": MOST_PARTS}
    assert len(decoded(plan_answer(asked(session=most)))[0]["client"]["step"]["sizes"]) == MOST_PARTS


def test_the_plan_as_csv_says_how_and_its_seconds_add_up():
    question = asked()
    rows = list(csv.DictReader(io.StringIO(plan_csv(question))))
    for row, client in zip(rows, question.plan.clients, strict=True):
        assert None not in row
        phases = sum(float(row[f"{phase}_seconds"]) for phase in PHASES) - float(row["overlap_seconds"])
        assert phases == pytest.approx(float(row["latency_seconds"])) == client.latency
        split = client.mode == "split"
        assert row["schedule"] == (client.schedule if split else "")
        assert (row["up"], row["lossy"]) == (("int8", "yes") if split else ("", "no"))
        assert float(row["bytes_up"]) == client.bytes_up
        assert row["waits_for"] == Busy.of(question.plan[client.name].phases).waits_for
    assert {row["lossy"] for row in rows} == {"yes", "no"}
