"""Rounds over a grid: what counts, what is left out, and that nobody else is harmed by it."""

import itertools
import json
import math
import pickle
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
import torch
from collecting import clocked, run
from flower_cases import good_node, grid_of, node_study, served, settings, sha256_of, trained, write_four
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch.nn.functional import cross_entropy

from cutwater.base.errors import CutwaterError, EngineError, RunError
from cutwater.flower import executor as executor_module
from cutwater.flower import roster
from cutwater.flower.failures import failure
from cutwater.flower.node import answer
from cutwater.flower.shared_study import study_for
from cutwater.flower.wire import read_order
from cutwater.plan.explain import explain
from cutwater.plan.planners import solve
from cutwater.plan.server_memory import session_bits
from cutwater.runs.metrics import read
from cutwater.serve.admission import Admission
from cutwater.serve.expectations import expectation
from cutwater.stream.client import StreamClient
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.ticket import Ticket
from cutwater.train.aggregate import weights_sha256

EVERYBODY = ["watch", "phone", "tablet", "laptop"]


def _with_report(records: RecordDict, **changes) -> RecordDict:
    records["report"] = ConfigRecord({**records["report"], **changes})
    return records


def _with_seconds(records: RecordDict, **changes) -> RecordDict:
    records["seconds"] = ConfigRecord({**records["seconds"], **changes})
    return records


def _with_tensor(records: RecordDict, make) -> RecordDict:
    arrays = dict(records["weights"])
    name = next(name for name, array in arrays.items() if array.dtype == "float32" and len(array.shape) > 1)
    made = make(name, arrays.pop(name))
    records["weights"] = ArrayRecord({**arrays, **made})
    return records


def _raw(array, *, shape=None, dtype=None, data=None, stype=None):
    return Array(
        dtype=dtype or array.dtype,
        shape=tuple(array.shape) if shape is None else shape,
        stype=stype or array.stype,
        data=array.data if data is None else data,
    )


NAN = b"\x00\x00\xc0\x7f"
INFINITY = b"\x00\x00\x80\x7f"
HUGE = b"\x00\x00\x80\x5f"

TAMPERED = {
    "NaN": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, data=NAN + a.data[4:])}),
    "infinity": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, data=INFINITY + a.data[4:])}),
    "a weight of 1e19": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, data=HUGE + a.data[4:])}),
    "a missing tensor": lambda r: _with_tensor(r, lambda n, a: {}),
    "an unknown tensor": lambda r: _with_tensor(r, lambda n, a: {n: a, "extra": a}),
    "another shape": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, shape=tuple(a.shape)[::-1])}),
    "a broadcastable shape": lambda r: _with_tensor(
        r, lambda n, a: {n: _raw(a, shape=(1,), data=a.data[:4])}
    ),
    "a zero dimension": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, shape=(0, 1 << 40), data=b"")}),
    "another type": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, dtype="float64")}),
    "too few bytes": lambda r: _with_tensor(r, lambda n, a: {n: _raw(a, data=a.data[:-4])}),
    "a pickle": lambda r: _with_tensor(
        r, lambda n, a: {n: _raw(a, stype="numpy.ndarray", data=b"\x80\x04N.")}
    ),
    "no samples": lambda r: _with_report(r, samples=0),
    "negative samples": lambda r: _with_report(r, samples=-90),
    "far too many samples": lambda r: _with_report(r, samples=10**18),
    "samples that are no number": lambda r: _with_report(r, samples=math.nan),
    "too few steps": lambda r: _with_report(r, steps=1),
    "an old round": lambda r: _with_report(r, round=0),
    "another client's name": lambda r: _with_report(r, client="tablet"),
    "another run": lambda r: _with_report(r, run="r0"),
    "a loss that is no number": lambda r: _with_report(r, loss=math.nan),
    "seconds that are no number": lambda r: _with_seconds(r, client_forward=math.nan),
    "more seconds than there were": lambda r: _with_seconds(r, client_forward=1e9),
    "no weights": lambda r: RecordDict({"report": r["report"], "seconds": r["seconds"]}),
    "nothing": lambda r: RecordDict({}),
    "a complaint": lambda r: RecordDict({"failure": ConfigRecord({"reason": "my disk is full"})}),
}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """One round of four clients, and what it must come to without the watch or without anybody missing."""
    given = settings(write_four(tmp_path_factory.mktemp("once"), rounds=1))
    return given, sha256_of(given, EVERYBODY[1:]), sha256_of(given, EVERYBODY)


@pytest.fixture(scope="module")
def server_study(once):
    return study_for(once[0])


def test_two_rounds_over_a_grid_have_the_bits_of_two_rounds_in_process(tmp_path):
    given = settings(write_four(tmp_path))
    over_grid, local = served(grid_of(given), "r1", given), run(study_for(given))
    for there, here in zip(over_grid, local, strict=True):
        assert there.record.weights_sha256 == here.record.weights_sha256
        assert there.record.loss == here.record.loss
        assert there.record.accuracy == here.record.accuracy
    # The second round is planned on what this machine was seen to do, so its cuts, and bytes, are its own.
    there, here = over_grid[0].record, local[0].record
    assert (there.bytes_up, there.bytes_down) == (here.bytes_up, here.bytes_down)
    cuts = {part.cut for part in over_grid[0].outcome.parts}
    assert len(cuts) >= 3, "the case must mix cuts"


def test_a_server_optimizer_has_the_same_bits_over_a_grid_and_goes_on_with_them_after_a_kill(tmp_path):
    more = 'aggregator = "fedadam"\naggregator_options = { lr = 0.01 }'
    given = settings(write_four(tmp_path, rounds=3, more=more), run_dir=str(tmp_path / "run"))
    whole = [each.record.weights_sha256 for each in run(study_for(given))]
    first = served(grid_of(given), "r1", replace(given, rounds=2))
    rest = served(grid_of(given), "r2", given)
    assert [each.record.weights_sha256 for each in (*first, *rest)] == whole
    assert len(rest) == 1
    averaged = settings(write_four(tmp_path, rounds=1))
    assert run(study_for(averaged))[0].record.weights_sha256 != whole[0]


@pytest.mark.parametrize("what", TAMPERED)
def test_an_update_with_a_fault_is_left_out_and_named_and_the_others_are_as_without_it(
    what, once, server_study
):
    given, without_watch, _ = once
    (step,) = served(grid_of(given, watch=TAMPERED[what]), "r1", given, study=server_study)
    assert list(step.record.lost) == ["watch"]
    assert step.record.clients == ("phone", "tablet", "laptop")
    assert step.record.weights_sha256 == without_watch


def test_a_whole_model_with_nan_is_left_out_too(once, server_study):
    given = once[0]
    (step,) = served(grid_of(given, laptop=TAMPERED["NaN"]), "r1", given, study=server_study)
    assert "not finite" in step.record.lost["laptop"]
    assert step.record.weights_sha256 == sha256_of(given, EVERYBODY[:3])


def test_buffers_that_no_state_dict_holds_are_as_in_process_in_every_round(tmp_path):
    path = write_four(tmp_path, rounds=3)
    own = path.read_text().replace('"cnn"', '"drifting_model:build"')
    path.write_text(own.replace("options = { dropout = 0.0, width = 8 }", ""))
    given = settings(path)
    over_grid, local = served(grid_of(given), "r1", given), run(study_for(given))
    assert [step.record.lost for step in over_grid] == [{}] * 3
    assert {part.cut for part in over_grid[0].outcome.parts} > {6}
    assert [step.record.weights_sha256 for step in over_grid] == [
        step.record.weights_sha256 for step in local
    ]


@wraps(cross_entropy)
def overflowing(
    output,
    labels,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """In name and defaults the nodes' loss, or they would refuse to train with this server."""
    value = cross_entropy(output, labels)
    return value if torch.is_grad_enabled() else value * torch.inf


def test_a_test_loss_that_overflows_is_none_and_the_round_counts(once, server_study):
    given, _, sha256 = once
    (step,) = served(grid_of(given), "r1", given, study=replace(server_study, loss=overflowing))
    assert step.record.test_loss is None
    assert step.record.accuracy is not None
    assert step.record.weights_sha256 == sha256


class Impatient:
    """A clock that leaps past the deadline as soon as all but one have answered, so that no test waits."""

    def __init__(self, grid, answers=3):
        self.grid, self.answers, self.ahead = grid, answers, 0.0

    def __call__(self):
        if not self.ahead and self.grid.delivered >= self.answers:
            self.ahead = 1000.0
        return time.monotonic() + self.ahead


def test_a_node_that_never_answers_is_late_at_the_deadline(tmp_path, once):
    given = settings(write_four(tmp_path, rounds=1, more="deadline = 500.0"))
    grid = grid_of(given, watch=lambda records: None)
    (step,) = served(grid, "r1", given, clock=Impatient(grid))
    assert "late" in step.record.lost["watch"]
    assert step.record.weights_sha256 == once[1]
    assert step.record.actual_seconds >= 500


def test_a_late_update_is_refused_as_stale_and_the_next_round_accepts_the_node(tmp_path):
    given = settings(write_four(tmp_path, rounds=2, more="deadline = 500.0"))
    gate, first = threading.Event(), []

    def sleepy(records: RecordDict) -> RecordDict:
        if not first:
            first.append(True)
            gate.wait(60)
        return records

    grid = grid_of(given, watch=sleepy)
    # It answers when the first round is over: what comes while others are read still counts.
    steps = served(grid, "r1", given, clock=Impatient(grid), callbacks=[lambda _: gate.set()])
    after_first = trained(given, EVERYBODY[1:])
    assert "late" in steps[0].record.lost["watch"]
    assert steps[0].record.weights_sha256 == weights_sha256(after_first)
    assert steps[1].record.lost == {}
    assert steps[1].record.weights_sha256 == sha256_of(given, EVERYBODY, after_first, 2)


def _replaying(given, replay):
    """A watch that trains in the first round and, in the next, does ``replay`` with (old, new) order."""
    honest, kept = good_node("watch", given), []

    def handle(message):
        if message.metadata.message_type != "train":
            return honest(message)
        if not kept:
            reply = honest(message)
            kept.extend([message.content, reply.content])
            return reply
        return replay(kept[0], kept[1], message)

    return handle


def _old_order(given):
    """It trains by the old order, with the old ticket."""

    def replay(order, _, message):
        try:
            records = answer(order, "watch", {}, given, study=node_study("watch", given))
        except CutwaterError as error:
            records = failure(error)
        return Message(records, reply_to=message)

    return replay


def _old_answer(_):
    """It sends what it sent before."""
    return lambda order, sent, message: Message(sent, reply_to=message)


def _old_ticket(given):
    """It opens a session with the old ticket, and says that it was the new one's, with weights at will."""

    def replay(order, sent, message):
        old = Ticket.from_text(read_order(order)[0].ticket)
        task = read_order(message.content)[0].task
        expect = expectation(node_study("watch", given), task)
        with pytest.raises(RefusedError, match="round 1 is over for client 'watch'"):
            StreamClient(old, expect, client="watch").__enter__()
        return Message(_with_report(sent, round=task.round), reply_to=message)

    return replay


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (_old_order, "round 1 is over for client 'watch'"),
        (_old_answer, "round and client .*, 1, 'watch'"),
        (_old_ticket, "the server has not seen the session end"),
    ],
)
def test_an_order_a_ticket_or_an_answer_of_an_old_round_counts_for_nothing_in_the_next(
    tmp_path, monkeypatch, what, why
):
    monkeypatch.setattr(executor_module, "SETTLE", 0.2)
    given = settings(write_four(tmp_path, rounds=2))
    grid = grid_of(given)
    grid.nodes[11] = _replaying(given, what(given))
    first, second = served(grid, "r1", given)
    assert first.outcome.parts[0].cut < len(study_for(given).model), "the watch must be split"
    assert first.record.lost == {}
    assert list(second.record.lost) == ["watch"]
    assert re.search(why, second.record.lost["watch"])
    after_first = trained(given, EVERYBODY)
    assert first.record.weights_sha256 == weights_sha256(after_first)
    assert second.record.weights_sha256 == sha256_of(given, EVERYBODY[1:], after_first, 2)


def test_a_ticket_opens_nothing_the_second_time_and_its_first_session_counts_once(once, server_study):
    given, _, with_everybody = once
    study, honest, refusals = node_study("watch", given), good_node("watch", given), []

    def greedy(message):
        reply = honest(message)
        if message.metadata.message_type == "train":
            order, _ = read_order(message.content)
            with pytest.raises(RefusedError) as refused:
                StreamClient(
                    Ticket.from_text(order.ticket), expectation(study, order.task), client="watch"
                ).__enter__()
            refusals.append(refused.value)
        return reply

    grid = grid_of(given)
    grid.nodes[11] = greedy
    (step,) = served(grid, "r1", given, study=server_study)
    assert [refusal.status for refusal in refusals] == [Status.PERMISSION_DENIED]
    assert "used before" in refusals[0].reason
    assert step.record.lost == {}
    assert step.record.weights_sha256 == with_everybody


def test_a_node_that_dies_in_its_session_is_left_out(once, server_study):
    given, without_watch, _ = once

    def die(message):
        if message.metadata.message_type == "query":
            return good_node("watch", given)(message)
        raise RuntimeError("killed")

    grid = grid_of(given)
    grid.nodes[11] = die
    (step,) = served(grid, "r1", given, study=server_study)
    assert "killed" in step.record.lost["watch"]
    assert step.record.weights_sha256 == without_watch


def test_labels_out_of_range_end_that_session_alone(once, server_study):
    given, without_watch, _ = once
    study = study_for(given)
    batches = study.batches
    # What a node does to its own mini-batches is its own business; the server must not believe them.
    object.__setattr__(study, "batches", lambda task: ((x, labels + 10) for x, labels in batches(task)))
    grid = grid_of(given)
    grid.nodes[11] = good_node("watch", given, study=study)
    (step,) = served(grid, "r1", given, study=server_study)
    assert "labels" in step.record.lost["watch"]
    assert step.record.weights_sha256 == without_watch


def test_below_the_quorum_the_round_fails_and_the_model_is_as_it_was(tmp_path):
    given = settings(write_four(tmp_path, rounds=1, more="quorum = 4"))
    study = study_for(given)
    (step,) = served(grid_of(given, watch=TAMPERED["NaN"]), "r1", given, study=study)
    assert "quorum is 4" in step.record.failed
    assert step.record.weights_sha256 == weights_sha256(study.initial)


def test_without_any_node_rounds_fail_and_say_why(tmp_path):
    given = replace(settings(write_four(tmp_path, rounds=1)), wait=0.1)
    grid = grid_of(given)
    grid.gone = set(grid.nodes)
    (step,) = served(grid, "r1", given)
    assert step.record.failed
    assert set(step.record.lost) == set(EVERYBODY)


def test_a_server_that_is_killed_goes_on_after_its_last_committed_round(tmp_path, monkeypatch):
    given = settings(write_four(tmp_path, rounds=3), run_dir=str(tmp_path / "run"))
    whole = run(study_for(given))

    def killed(self, weights):
        """By the time that the round's weights are scored, all its updates are in."""
        scores = evaluate(self, weights)
        if next(rounds) == 2:
            raise KeyboardInterrupt
        return scores

    rounds, evaluate = itertools.count(1), executor_module.FlowerExecutor.evaluate
    monkeypatch.setattr(executor_module.FlowerExecutor, "evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        served(grid_of(given), "r1", given)
    monkeypatch.undo()
    assert [row.round for row in read(tmp_path / "run" / "metrics.jsonl")] == [1]
    steps = served(grid_of(given), "r2", given)
    assert [step.record.round for step in steps] == [2, 3]
    assert steps[-1].record.weights_sha256 == whole[-1].record.weights_sha256
    measured = json.loads((tmp_path / "run" / "measured" / "00003.json").read_text())
    assert {client["name"] for client in measured["clients"]} == set(EVERYBODY)
    # Nothing is emulated, and no model took long enough to be told from polling.
    assert {client["model_timed"] for client in measured["clients"]} == {False}


def test_a_run_that_is_over_leaves_its_folder_to_other_processes(tmp_path):
    given = settings(write_four(tmp_path, rounds=1), run_dir=str(tmp_path / "run"))
    served(grid_of(given), "r1", given)
    lock = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", lock, str(tmp_path / "run" / ".lock")], check=True)


def test_plans_follow_what_was_measured(tmp_path):
    given = settings(write_four(tmp_path, rounds=1, conditions=""))
    study = study_for(given)
    (step,) = served(grid_of(given), "r1", given, study=study)
    estimates = step.progress.estimates
    assert set(estimates.seen) == set(EVERYBODY)
    # This machine is far faster than a watch.
    assert estimates.believed(study.fleet[0]).compute > 2 * study.fleet[0].compute
    # The laptop had the whole model, in a message that took no time: nothing is known of its link.
    assert estimates.believed(study.fleet[3]).up == study.fleet[3].up


ORACLE = '[conditions]\nchange = "jitter"\ncompute_jitter = 1.0\nestimate = "true"'


def test_an_oracle_plans_emulated_rounds_on_what_the_devices_really_do(tmp_path):
    given = settings(write_four(tmp_path, rounds=1, conditions=ORACLE), emulate=True)
    study = study_for(given)
    (step,) = served(grid_of(given), "r1", given, study=study)
    assert step.outcome.plan == clocked(study, 1).plan


def test_an_oracle_is_refused_where_nothing_is_emulated(tmp_path):
    given = settings(write_four(tmp_path, rounds=1, conditions=ORACLE))
    with pytest.raises(RunError, match="nobody knows what real devices can do"):
        study_for(given)


def test_nothing_that_arrives_is_unpickled(once, server_study, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("unpickled")

    given = once[0]
    grid = grid_of(given)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    (step,) = served(grid, "r1", given, study=server_study)
    assert step.record.weights_sha256 == once[2]


def with_server_memory(folder, bits, rounds=2):
    folder.mkdir()
    path = write_four(folder, rounds=rounds)
    memory = f'compute = "0.5 GFLOPS"\nmemory = "{math.ceil(bits / 8)} B"'
    path.write_text(path.read_text().replace('compute = "0.5 GFLOPS"', memory))
    return settings(path)


@pytest.fixture
def refusal(monkeypatch):
    """Set whenever a session did not fit."""
    refused, admit = threading.Event(), Admission.admit

    @wraps(admit)
    def watched(*arguments):
        try:
            admit(*arguments)
        except EngineError:
            refused.set()
            raise

    monkeypatch.setattr(Admission, "admit", watched)
    return refused


def test_a_session_that_does_not_fit_into_the_servers_memory_is_lost_and_the_others_go_on(tmp_path, refusal):
    def until_another_was_refused(records):
        assert refusal.wait(60)
        refusal.clear()
        return records

    study = study_for(settings(write_four(tmp_path)))
    plan = clocked(study, 1).plan
    tasks = [task for task in study.tasks(1, plan) if task.cut < len(study.model)]
    counted = Admission(math.inf, study.profile)
    needs = {task.client: counted.needs(task, expectation(study, task)) for task in tasks}
    first, second = needs
    planned = dict(zip(plan.names, session_bits(plan.problem, plan), strict=True))
    assert needs == pytest.approx({name: planned[name] for name in needs}, rel=0.1), "plans count alike"

    one = with_server_memory(tmp_path / "one", max(needs.values()))
    steps = served(grid_of(one, **{first: until_another_was_refused}), "r1", one)
    assert [list(step.record.lost) for step in steps] == [[second]] * 2, "what a round held is free again"
    assert re.fullmatch(
        r"its session at cut \d needs [\d.]+ kB of the server's memory, but 1 other session holds [\d.]+ kB "
        r"of its [\d.]+ kB: raise memory in \[server\], lower batch_size, or let fewer clients take part .*",
        steps[0].record.lost[second],
    )
    others = [name for name in EVERYBODY if name != second]
    assert steps[0].record.weights_sha256 == sha256_of(one, others)

    both = with_server_memory(tmp_path / "both", sum(needs.values()), rounds=1)
    (step,) = served(grid_of(both), "r1", both)
    assert step.record.lost == {}
    assert step.record.weights_sha256 == sha256_of(both, EVERYBODY)


def test_a_plan_says_whose_sessions_the_server_has_no_room_for(tmp_path):
    study = study_for(settings(write_four(tmp_path)))
    problem = study.problem(list(study.fleet))
    plan = solve(problem)
    needs = session_bits(problem, plan)
    first, second = np.flatnonzero(needs)

    def told(memory):
        return explain(solve(problem.replace(server=replace(problem.server, memory=memory))))

    assert "memory" not in explain(plan)
    assert f"{plan.names[second]} would be lost" in told(float(needs.max()))
    assert f"{plan.names[first]}, {plan.names[second]} would be lost" in told(8.0)
    assert "All sessions together hold" in told(float(needs.sum()))
