"""A device's session against a real server: the same bits in parts as in process, and honest seconds."""

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from small_study import small_study
from stream_rig import proxied
from torch import nn

from cutwater.data.custom import from_datasets
from cutwater.execute.emulate import EmulatedDevice, Meter
from cutwater.federate.conditions import Condition
from cutwater.model.halves import join_states
from cutwater.plan.fleet import Client
from cutwater.plan.session import Session
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.stream.client import StreamClient
from cutwater.stream.server import StreamServer
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides
from cutwater.train.step import ServerSide

CUT = 2
SAMPLES = 19
"""In mini-batches of 8, 8 and 3: three parts do not divide the first, and four are more than the last has."""


def model():
    """Batch normalisation on both sides of the cut, over maps, as parts may have one sample."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2)),
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.3), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(24, 3)),
    )


def data():
    random = torch.Generator().manual_seed(2)
    images = torch.randn(80, 1, 4, 4, generator=random)
    samples = [(image, place % 3) for place, image in enumerate(images)]
    return from_datasets(samples[:60], samples[60:], classes=3, name="maps")


@lru_cache(maxsize=8)
def study_of(micro_batches, samples=SAMPLES, batch_size=8):
    return small_study(
        model=model(),
        data=data(),
        clients=[Client(name="k", compute=1e6, rate=1e6, samples=samples)],
        session=Session(epochs=1, batch_size=batch_size, micro_batches=micro_batches),
        train={"optimizer": "adam", "lr": 0.01, "momentum": 0.0},
    )


def task_of(study, **how):
    return Task("k", 1, CUT, seed=5, lr=0.01, samples=study.client("k").samples, **how)


@contextmanager
def hosting_of(study, serving=StreamServer, **how):
    hosting = Hosting(study.job(), study.profile, study.server.compute, **how)
    try:
        with serving(hosting) as server:
            yield hosting, server
    finally:
        hosting.close()


def over_the_stream(study, task, meter=None, **how):
    """The joined weights, what the server has of the session, and its record."""
    with hosting_of(study, **how) as (hosting, server):
        ticket = server.issue(
            run="r", round=1, client=task.client, cut=task.cut, expect=expectation(study, task)
        )
        hosting.expect(ticket.claims.id, task, 1e6, study.initial)
        half = study.job().split(task.cut).client
        weights = {name: study.initial[name] for name in half.state_dict()}
        steps = run_at_device(study, task, ticket, weights, study.batches(task), meter or Meter())
        record = server.wait(ticket, 5)
        trained = hosting.collect(ticket.claims.id)
    assert steps.loss == pytest.approx(trained.loss)
    assert steps.count == trained.steps == record.steps
    return join_states(half.state_dict(), trained.state), trained, record


def in_process(study, task):
    """The same in this process."""
    result = run_both_sides(study.job(), task, study.initial)
    return {name: tensor.clone() for name, tensor in result.state.items()}, result


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("micro_batches", [1, 3, 4])
def test_whole_or_split_the_weights_are_those_of_the_same_parts(micro_batches):
    study = study_of(micro_batches)
    whole, _ = in_process(study, replace(task_of(study), cut=len(study.model)))
    split, _ = in_process(study, task_of(study))
    overlapped, _ = in_process(study, task_of(study, schedule="overlapped"))
    assert_same(whole, split)
    assert_same(whole, overlapped)


def test_parts_are_really_trained_on_their_own():
    """Batch normalisation sees the parts, so their number shows in the weights."""
    found = [in_process(study_of(m), task_of(study_of(m)))[0] for m in (1, 3, 4)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert any(not torch.equal(found[one][name], found[other][name]) for name in found[one])


@pytest.mark.parametrize("codec", ["fp32", "bf16"])
@pytest.mark.parametrize("schedule", ["in turn", "overlapped"])
@pytest.mark.parametrize("micro_batches", [1, 3, 4])
@pytest.mark.parametrize("answer_first", [True, False], ids=["answer first", "in one go"])
def test_over_the_stream_the_weights_are_those_of_the_same_session_in_process(
    micro_batches, schedule, codec, answer_first
):
    study = study_of(micro_batches)
    task = task_of(study, schedule=schedule, up=codec, down=codec)
    here, result = in_process(study, task)
    there, trained, record = over_the_stream(study, task, answer_first=answer_first)
    assert_same(here, there)
    down, up = study.job().model_bytes(task)
    assert (trained.bytes_up, trained.bytes_down) == (result.bytes_up - up, result.bytes_down - down)
    assert (record.parts, record.steps, record.samples) == ({1: 3, 3: 9, 4: 11}[micro_batches], 3, SAMPLES)


def through_a_proxy(study, task, **cut_after):
    """The joined weights, what the server has of the session, and the proxy, which cuts one connection."""
    kept = []

    @contextmanager
    def serving(hosting):
        with proxied(hosting) as (server, proxy):
            proxy.cut_after.update(cut_after)
            kept.append(proxy)
            yield server

    weights, trained, _ = over_the_stream(study, task, serving=serving)
    return weights, trained, kept[0]


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_a_connection_cut_in_the_middle_of_a_window_changes_no_bit(codec, way):
    """Two mini-batches, each a window of four parts: wherever the cut is, parts are on their way."""
    study = study_of(4, samples=56, batch_size=28)
    task = task_of(study, schedule="overlapped", up=codec, down=codec)
    here = weights_sha256(in_process(study, task)[0])
    whole, trained, proxy = through_a_proxy(study, task)
    assert (weights_sha256(whole), proxy.connections) == (here, 1)
    handshake = 0 if way == "up" else 2000  # of the server's certificate, which is no part
    for fraction in (0.5, 0.7, 0.9):
        at = int(handshake + fraction * (proxy.passed[way] - handshake))
        there, again, cut = through_a_proxy(study, task, **{way: at})
        assert cut.connections == 2, "it was cut, and the session went on by another connection"
        assert weights_sha256(there) == here
        assert (again.steps, again.loss) == (trained.steps, trained.loss)


def test_a_codec_changes_what_is_learned_and_halves_what_crosses():
    study = study_of(4)
    coded = over_the_stream(study, task_of(study, schedule="overlapped", up="bf16", down="bf16"))
    plain = over_the_stream(study, task_of(study, schedule="overlapped"))
    assert any(not torch.equal(coded[0][name], plain[0][name]) for name in plain[0])
    assert coded[1].bytes_down * 2 == plain[1].bytes_down
    labels = 8 * SAMPLES
    assert (coded[1].bytes_up - labels) * 2 == plain[1].bytes_up - labels


# Seconds. Only ratios of what was measured in the same test: the machine is as fast as it is.

PARTS = 6
ROWS = 2
STAGE, CARRIED = 0.05, 0.1


def emulated(study, *, stage=STAGE, carried=CARRIED, rtt=0.0):
    """A device that takes so long for each stage of a part, and its link for each way of one."""
    (smashed,) = expectation(study, task_of(study)).smashed
    bits = 8 * (4 * ROWS * torch.Size(smashed.shape).numel())
    flops = ROWS * 1e6
    up, down = (bits + 8 * 8 * ROWS) / carried, bits / carried
    condition = Condition(compute=flops / stage, up=up, down=down, rtt=rtt)
    return EmulatedDevice(condition, client_forward=1e6, client_backward=1e6)


def timed(study, schedule, **device):
    meter = Meter(emulated(study, **device))
    over_the_stream(study, task_of(study, schedule=schedule), meter)
    return meter.seconds


BUSY = (
    "client_forward",
    "client_backward",
    "smashed_upload",
    "gradient_download",
    "server_forward",
    "server_backward",
)


def test_overlapped_parts_are_computed_sent_and_received_at_the_same_time():
    """Theory: six parts take 1.8 s in turn and 0.8 s overlapped, where the link works nearly all the time."""
    study = study_of(PARTS, samples=PARTS * ROWS, batch_size=PARTS * ROWS)
    in_turn, overlapped = timed(study, "in turn"), timed(study, "overlapped")
    assert overlapped["steps"] < 0.8 * in_turn["steps"]
    assert overlapped["steps"] < 0.8 * sum(overlapped[phase] for phase in BUSY)
    assert in_turn["steps"] > 0.9 * sum(in_turn[phase] for phase in BUSY)
    # A busy machine may take longer, but nobody is done sooner. What its hiccup adds to one thing
    # that is slept for, those after it make up for, the model's transfer among them: all are held together.
    computing, carrying = 2 * PARTS * STAGE, PARTS * CARRIED
    link = emulated(study).condition
    down, up = study.job().model_bytes(task_of(study))
    model = 8 * down / link.down + 8 * up / link.up
    assert min(overlapped[phase] for phase in BUSY[2:4]) >= 0.99 * carrying
    slept = ("model_download", "model_upload", *BUSY[:2])
    assert sum(overlapped[phase] for phase in slept) >= 0.99 * (model + computing)
    slept += BUSY[2:4]
    assert sum(in_turn[phase] for phase in slept) >= 0.99 * (model + computing + 2 * carrying)


def test_a_round_trip_delays_what_overlaps_once_and_does_not_occupy_the_link():
    study = study_of(PARTS, samples=PARTS * ROWS, batch_size=PARTS * ROWS)
    rtt = 0.5
    near, far = timed(study, "overlapped"), timed(study, "overlapped", rtt=rtt)
    assert 0.5 * rtt < far["steps"] - near["steps"] < 3 * rtt, "in turn, it would be six of them"
    assert far["smashed_upload"] == near["smashed_upload"]
    assert far["round_trips"] - near["round_trips"] == pytest.approx(rtt, abs=0.05)


def test_without_emulation_a_link_is_never_busier_than_the_steps_took():
    study = study_of(4)
    meter = Meter()
    over_the_stream(study, task_of(study, schedule="overlapped"), meter)
    for phase in BUSY:
        assert 0 < meter.seconds[phase] <= meter.seconds["steps"]
    assert meter.seconds["steps"] <= meter.seconds["session"]


# Shares


def in_windows(client, expect, window):
    """A session whose device computes nothing, so that the server always has work but between windows."""
    (smashed,) = expect.smashed
    for planned in expect.parts():
        if planned.opens and planned.part.number:
            for _ in range(window):
                client.receive()
        tensors = (torch.ones(planned.rows, *smashed.shape),)
        client.send(planned.part, tensors, torch.zeros(planned.rows).long())
    for _ in range(window):
        client.receive()
    client.finish()


def test_with_windows_open_sessions_get_the_shares_that_they_were_promised(monkeypatch):
    """A session's next part waits in the queue before its last is done, or the other would go in between."""
    window, order, differentiate = 16, [], ServerSide.differentiate

    def slow(side, *what):
        time.sleep(0.012)
        order.append(side)
        return differentiate(side, *what)

    monkeypatch.setattr(ServerSide, "differentiate", slow)
    study = study_of(window, samples=2 * window, batch_size=window)
    task = task_of(study, schedule="overlapped")
    expect = expectation(study, task)
    with hosting_of(study) as (hosting, server), ExitStack() as stack:
        tickets, threads = [], []
        for share in (3e6, 1e6):
            ticket = server.issue(run="r", round=1, client="k", cut=CUT, expect=expect)
            hosting.expect(ticket.claims.id, task, share, study.initial)
            client = stack.enter_context(StreamClient(ticket, expect, client="k"))
            tickets.append(ticket)
            threads.append(threading.Thread(target=in_windows, args=(client, expect, window)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        trained = [hosting.collect(ticket.claims.id) for ticket in tickets]
    for each in trained:
        assert each.steps == 2
        assert each.delivery.delivered >= 0.9 * each.delivery.promised
    ends = {side: max(place for place, each in enumerate(order) if each is side) for side in order}
    quick, other = sorted(ends, key=ends.get)
    during = order[order.index(other) : ends[quick]]
    assert during.count(quick) > 1.6 * during.count(other), "three to one by the plan; one to one in turns"
