"""A frozen prefix that repeats itself sends a row once a session: FedAvg's bits, and the planned bytes."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from small_study import small_study
from stream_rig import proxied
from torch import nn

from cutwater.base.errors import EngineError
from cutwater.data.custom import from_datasets
from cutwater.execute.emulate import Meter
from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify
from cutwater.model.halves import join_states
from cutwater.plan.fleet import Client
from cutwater.plan.latency import session_bits
from cutwater.plan.places import place_of
from cutwater.plan.session import Session, Wires
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.serve.loopback import LoopbackTrainer
from cutwater.stream.client import StreamClient
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides

EPOCHS, SAMPLES, CUT = 3, 24, 2
"""In mini-batches of 8 and parts of 4: all alike, as a row's last bits may depend on those beside it."""


def prefixed(*, dropout=0.0, norm=False):
    """Two frozen layers, one that draws or normalises if asked for, and two that learn."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(6, 32),
        nn.Sequential(nn.Linear(32, 48), nn.BatchNorm1d(48) if norm else nn.LayerNorm(48), nn.Tanh()),
        nn.Sequential(nn.Linear(48, 16), nn.Dropout(0.2), nn.Tanh()),
        nn.Sequential(nn.Linear(16, 8), nn.Tanh()),
        nn.Linear(8, 3),
    )
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    model[1].append(nn.Dropout(dropout))
    return model


def study_of(model=None, *, labels="go", micro_batches=1, batch_size=8, data=None, steps=None, wires=None):
    length = {"steps": steps} if steps else {"epochs": EPOCHS}
    session = Session(**length, batch_size=batch_size, micro_batches=micro_batches, labels=labels)
    return small_study(
        model=model or prefixed(),
        data=data,
        clients=[Client(name="k", compute=1e6, rate=1e6, samples=SAMPLES)],
        session=session,
        wires=wires or Wires(),
        train={"optimizer": "adam", "lr": 0.01, "momentum": 0.0},
    )


def task_of(study, cut=CUT, **how):
    return Task("k", 1, cut, seed=5, lr=0.01, samples=study.client("k").samples, **how)


def in_process(study, task):
    result = run_both_sides(study.job(), task, study.initial)
    return weights_sha256(result.state), result


def over_the_stream(study, task, client=StreamClient):
    """The weights' digest, the server's record, and what it has of the session."""
    with closing(Hosting(study.job(), study.profile, 1e6)) as hosting, proxied(hosting) as (server, proxy):
        cuts = {"cut": task.cut, "second_cut": task.second_cut}
        ticket = server.issue(run="r", round=1, client="k", expect=expectation(study, task), **cuts)
        hosting.expect(ticket.claims.id, task, 1e6, study.initial)
        half = study.job().split(task.cut, task.second_cut).client
        weights = {name: study.initial[name] for name in half.state_dict()}
        with pytest.MonkeyPatch.context() as patch:
            if client is not StreamClient:
                patch.setattr("cutwater.serve.device.StreamClient", type("C", (client,), {"proxy": proxy}))
            run_at_device(study, task, ticket, weights, study.batches(task), Meter())
        record, trained = server.wait(ticket, 10), hosting.collect(ticket.claims.id)
    assert record.failure is None
    return weights_sha256(join_states(half.state_dict(), trained.state)), record, trained


def one_epoch(study, task):
    """Bytes up of a single pass over the samples, labels included, and of a number for every row of all."""
    row = study.profile.cuts[task.cut - 1].smashed_bits // 8 + (0 if task.second_cut else 8)
    return SAMPLES * row, 4 * SAMPLES * EPOCHS


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_three_epochs_send_one_epoch_and_the_bits_are_fedavgs_in_process_and_over_the_stream(micro_batches):
    study = study_of(micro_batches=micro_batches)
    whole, _ = in_process(study, task_of(study, len(study.model)))
    task = task_of(study, once=True)
    here, result = in_process(study, task)
    there, record, trained = over_the_stream(study, task)
    assert here == there == whole
    once, numbers = one_epoch(study, task)
    assert result.bytes_up == trained.bytes_up == record.tensors_up == once + numbers
    assert result.bytes_down == sum(study.job().traffic(CUT).fixed.values())
    assert record.kept_bytes == once
    plain, every = in_process(study, task_of(study))
    assert plain == whole
    assert every.bytes_up == EPOCHS * once


def test_rows_whose_last_bits_depend_on_those_beside_them_go_again_and_the_bits_are_fedavgs():
    """Parts of 5 and 4 samples, of 3 and 3, of 1 and 1: what torch makes of a row may differ."""
    study = study_of(micro_batches=2, batch_size=9)
    whole, _ = in_process(study, task_of(study, len(study.model)))
    task = task_of(study, once=True)
    here, result = in_process(study, task)
    there, record, trained = over_the_stream(study, task)
    assert here == there == whole
    once, numbers = one_epoch(study, task)
    assert once + numbers <= result.bytes_up == trained.bytes_up <= EPOCHS * once + numbers
    assert record.kept_bytes == once


@pytest.mark.parametrize("lost", ["up", "down"])
def test_a_broken_connection_costs_no_bit_and_no_row(lost):
    study = study_of()
    task = task_of(study, once=True)
    here, result = in_process(study, task)

    class Breaking(StreamClient):
        """Loses its connection around every second part: before it is sent, or when its reply is due."""

        def receive(self):
            if self._done % 2:
                if lost == "down":
                    packed, connection = self._exchange._packed, self._connections.connected()
                    self._connections.send(connection, packed, asks=True)
                    connection.received = packed.number + 1
                self.proxy.cut()
            return super().receive()

    there, record, trained = over_the_stream(study, task, Breaking)
    assert here == there
    assert record.openings > 3
    assert trained.bytes_up == result.bytes_up
    assert record.kept_bytes == one_epoch(study, task)[0]


@pytest.mark.parametrize("codec", ["lossless", "bf16", "int8", "topk"])
def test_a_codec_codes_a_row_the_first_time_alike_in_process_and_over_the_stream(codec):
    study = study_of()
    task = task_of(study, once=True, up=codec)
    here, result = in_process(study, task)
    there, _, trained = over_the_stream(study, task)
    assert here == there
    assert result.bytes_up == trained.bytes_up
    assert (here == in_process(study, task_of(study))[0]) == (codec == "lossless")


def test_labels_that_stay_do_so_and_smashed_data_goes_up_once():
    study = study_of(labels="stay")
    whole, _ = in_process(study, task_of(study, len(study.model)))
    task = task_of(study, once=True, second_cut=4)
    here, result = in_process(study, task)
    there, _, trained = over_the_stream(study, task)
    assert here == there == whole
    once, numbers = one_epoch(study, task)
    learned = study.job().traffic(CUT, 4).bytes_up
    back = EPOCHS * SAMPLES * study.profile.cuts[3].gradient_bits // 8
    assert result.bytes_up - learned == trained.bytes_up == once + numbers + back


def test_the_planner_counts_what_is_sent_and_asks_for_it():
    for micro_batches, labels in ((1, "go"), (2, "go"), (1, "stay")):
        wires = Wires(up=("fp32", "int8"), schedule=("in turn",))
        study = study_of(micro_batches=micro_batches, labels=labels, wires=wires)
        cut = (CUT, 4) if labels == "stay" else (CUT, 0)
        problem = study.problem([study.client("k")])
        for place, wire in enumerate(problem.options):
            task = task_of(study, second_cut=cut[1], up=wire.up, once=True)
            at = place_of(*cut, len(study.model))
            assert problem.sends_once(at, place)
            up, _ = session_bits(problem, at, wires=place)
            labels_sent = 8 * SAMPLES if labels == "go" else 0
            assert in_process(study, task)[1].bytes_up == up.item() / 8 + labels_sent


@pytest.mark.parametrize(
    ("model", "repeats"),
    [
        (prefixed(), [True, True, False, False, False]),
        (prefixed(dropout=0.1), [True, False, False, False, False]),
        (prefixed(norm=True), [True, False, False, False, False]),
    ],
)
def test_a_profile_says_where_samples_repeat_themselves(model, repeats):
    assert [cut.repeats for cut in study_of(model).profile.cuts] == repeats


class Drawing:
    """A dataset that augments its samples."""

    def __len__(self):
        return 40

    def __getitem__(self, place):
        return torch.randn(6), place % 3


def tasks_of(study):
    plan = study.with_planner("splitfed", cut=CUT)
    from cutwater.federate.clock import clock_only

    (outcome,) = clock_only(plan, 1)
    return study.tasks(1, outcome.plan)


def test_rows_are_sent_once_only_where_that_is_less():
    assert [task.once for task in tasks_of(study_of())] == [True]
    assert [task.once for task in tasks_of(study_of(steps=2))] == [False]
    drawing = from_datasets(Drawing(), classes=3, name="drawn")
    study = study_of(data=drawing)
    assert study.profile.cuts[CUT - 1].repeats
    assert [task.once for task in tasks_of(study)] == [False]
    overlapped = study_of(micro_batches=2, wires=Wires(schedule=("overlapped",)))
    assert [task.once for task in tasks_of(overlapped)] == [False]


def test_what_draws_in_spite_of_its_profile_is_sent_as_often_as_it_comes():
    """Then it costs numbers, and neither bits nor memory beyond a row for each sample."""
    study = study_of(prefixed(dropout=0.1))
    whole, _ = in_process(study, task_of(study, len(study.model)))
    task = task_of(study, once=True)
    there, record, trained = over_the_stream(study, task)
    assert there == whole
    once, numbers = one_epoch(study, task)
    assert trained.bytes_up == EPOCHS * once + numbers
    assert record.kept_bytes == once


def test_a_plan_by_the_loop_is_verified_over_the_stream():
    study = study_of()
    study = replace(study, train=replace(study.train, rounds=1))
    with (
        closing(LocalTrainer(study.job(), study.test())) as trainer,
        closing(LoopbackTrainer(study)) as stream,
    ):
        (check,) = verify(study, trainer, 1, stream=stream)
    assert check.agrees, check.differs


def test_rows_that_get_gradients_do_not_go_once():
    study = study_of()
    with pytest.raises(EngineError, match="where parts go in turn and no gradient comes back"):
        expectation(study, task_of(study, 3, once=True))
