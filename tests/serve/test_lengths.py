"""Samples of different lengths over a real stream: the bits of one process, within bounds known before."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from language_study import language_study, ragged
from test_labels_stay import differing, hosted, in_process, over_the_stream, task_of
from tied_models import WORDS, Embedded, pairs
from torch import nn

from cutwater import Pad, from_datasets
from cutwater.base.errors import DataError, RunError
from cutwater.data.lengths import extremes
from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify
from cutwater.serve.expectations import expectation
from cutwater.serve.loopback import LoopbackTrainer
from cutwater.stream.client import StreamClient
from cutwater.stream.refusal import RefusedError
from cutwater.train.step import Reply, train_step


class Halving(nn.Module):
    """Half as many positions after its second layer, so that sizes on the wire are not those of samples."""

    def __init__(self):
        super().__init__()
        self.words, self.first = nn.Embedding(WORDS, 6), nn.Conv1d(6, 6, 3, padding=1)
        self.fewer = nn.Conv1d(6, 6, 2, stride=2, padding=1)
        self.out = nn.Conv1d(6, 3, 1)

    def forward(self, tokens):
        value = self.words(tokens).transpose(1, 2)
        value = torch.relu(self.fewer(torch.relu(self.first(value))))
        return self.out(value).mean(2)


def summed(output, labels):
    return nn.functional.cross_entropy(output, labels.clamp(min=0).sum(1) % 3)


def study_of(model=None, *, labels="go", collate="pad", longest=None, micro_batches=1, **more):
    data = from_datasets(ragged(), ragged(8, seed=5), collate=collate, longest=longest)
    model = model or Embedded(tied=labels == "stay")
    return language_study(model, labels=labels, data=data, micro_batches=micro_batches, **more)


@pytest.mark.parametrize(
    ("codec", "how"),
    [
        ("fp32", {}),
        ("fp32", {"micro_batches": 2}),
        ("lossless", {}),
        ("int8", {"micro_batches": 2}),
    ],
)
@pytest.mark.parametrize("schedule", ["in turn", "overlapped"])
def test_padded_to_the_longest_of_a_mini_batch_a_session_has_the_bits_of_one_process(codec, how, schedule):
    study = study_of(**how)
    lengths = {tuple(batch.inputs[0].shape) for batch in study.batches(task_of(study, (1, 0)))}
    assert len(lengths) > 1, "they differ"
    with hosted(study) as (server, hosting):
        for cut in range(1, len(study.model)):
            task = task_of(study, (cut, 0), up=codec, down=codec, schedule=schedule)
            there, _, _, trained = over_the_stream(study, task, server, hosting)
            here, result = in_process(study, task)
            assert not differing(here, there), cut
            down, up = study.job().model_bytes(task)
            assert (trained.bytes_up, trained.bytes_down) == (result.bytes_up - up, result.bytes_down - down)


@pytest.mark.parametrize("codec", ["fp32", "bf16"])
def test_so_has_one_whose_labels_stay(codec):
    study = study_of(labels="stay", micro_batches=2)
    with hosted(study) as (server, hosting):
        for pair in pairs(study.model)[::3]:
            task = task_of(study, pair, up=codec, down=codec)
            assert not differing(in_process(study, task)[0], over_the_stream(study, task, server, hosting)[0])


def test_verify_agrees_in_process_and_over_the_stream():
    study = study_of()
    with closing(LocalTrainer(study.job(), study.test())) as here, closing(LoopbackTrainer(study)) as stream:
        (check,) = verify(study, here, 1, stream=stream)
    assert check.agrees, check.differs


def test_sizes_may_be_up_to_those_of_the_longest_sample_and_no_more_is_held():
    study = study_of(Halving(), loss=summed)
    longest = max(len(one["tokens"]) for one in ragged())
    sizes = [expectation(study, task_of(study, (cut, 0))) for cut in range(1, len(study.model))]
    found = {(one.smashed[0].shape, one.smashed[0].varies) for one in sizes}
    assert {((6, longest), (1,)), ((6, longest // 2 + 1), (1,))} <= found
    fixed = study_of(Halving(), loss=summed, collate=Pad(to=longest))
    assert [expectation(fixed, task_of(fixed, (cut, 0))).held_bytes for cut in (1, 2)] == [
        one.held_bytes for one in sizes[:2]
    ]
    assert not expectation(fixed, task_of(fixed, (1, 0))).smashed[0].varies


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (1, r"has shape \(4, 9, 8\), but the plan says \(samples, 1 to 8, 8\)"),
        (8, "but the plan allows 1280"),
    ],
)
def test_the_server_refuses_what_is_longer_before_it_is_allocated(labels, reason):
    study, wide = study_of(), study_of(longest=9)
    task = task_of(study, (1, 0))
    expect, lax = expectation(study, task), expectation(wide, task)
    assert lax.smashed[0].shape == (9, 8)
    given = (torch.randn(4, 9, 8),), torch.zeros(4, labels, dtype=torch.int64)
    with hosted(study) as (server, hosting):
        ticket = server.issue(run="r", round=1, client="c1", cut=1, expect=expect)
        hosting.expect(ticket.claims.id, task, 1e6, study.initial)
        with StreamClient(ticket, lax, client="c1") as stream, pytest.raises(RefusedError, match=reason):
            stream.step(0, *given)
        assert server.wait(ticket, 10).failure is not None


@pytest.mark.parametrize("said", [{}, {"size_0_0": 9.0}, {"size_0_0": 2.5}, {"size_0_0": 0.0}])
def test_a_size_of_what_is_coded_must_be_said_and_be_within_the_bounds(said):
    study = study_of()
    expect = expectation(study, task_of(study, (1, 0), up="int8"))
    planned = next(expect.parts())
    sent = torch.randn(planned.rows, 5, 8)
    coded = expect.up.encode(planned.number, (sent,))
    with pytest.raises(
        RefusedError, match=r"'smashed\.0' is said to have a size of .* the plan allows 1 to 8"
    ):
        expect.came_up(planned, coded, said)
    (found,) = expect.came_up(planned, coded, {"size_0_0": 5.0})
    assert found.shape == sent.shape


def test_a_device_whose_own_samples_are_longer_says_what_to_set():
    study = study_of()
    wide = from_datasets(ragged(seed=9, longest=11), collate="pad")
    task = task_of(study, (2, 0))
    with hosted(study) as (server, hosting):
        strange = replace(study, data=replace(wide, name="own"))
        strange.__dict__["example_batches"] = study.example_batches
        with pytest.raises(
            DataError, match=r"client 'c1' has input 0 of \[\d+\], but .* \[8\] at most.*longest"
        ):
            over_the_stream(strange, task, server, hosting)
    declared = study_of(longest=11)
    strange = replace(declared, data=replace(wide, longest=11))
    with hosted(declared) as (server, hosting):
        there, *_ = over_the_stream(strange, task, server, hosting)
    assert not differing(there, in_process(strange, task)[0])


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 6), nn.Embedding(8, 6)
        self.out = nn.Linear(6, WORDS)

    def forward(self, tokens):
        return self.out(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))


def test_a_longest_that_the_model_or_a_sample_contradicts_is_refused_before_training():
    study = study_of(Positions(), longest=12)
    with pytest.raises(RunError, match="longest is 12, but the model can't take samples of that size"):
        expectation(study, task_of(study, (2, 0)))
    study = study_of(longest=5)
    with pytest.raises(DataError, match="longest is 5, but a sample of 'own data' has a size of 8"):
        expectation(study, task_of(study, (1, 0)))


def test_gradients_of_another_size_are_refused_by_the_device():
    study = study_of()
    task, job = task_of(study, (1, 0)), study.job()
    batch = next(iter(study.batches(task)))

    class Wrong:
        def send(self, part, smashed, labels):
            self.smashed = smashed

        def receive(self):
            return Reply((self.smashed[0][:, :-1].clone(),), 1.0)

    with pytest.raises(RunError, match=r"gradients of shapes .* came for tensors of shapes"):
        train_step(job.client_side(task), Wrong(), job.loss, 0, *batch)


def test_the_largest_and_the_smallest_of_every_size_are_found():
    data = from_datasets(
        [{"a": [1] * a, "b": [2] * b, "labels": 0} for a, b in ((3, 5), (4, 2), (4, 9), (1, 5))],
        collate="pad",
    )
    found = extremes(data.train, "it")
    assert (found.largest, found.smallest) == ((1, 2), (1, 3))
    assert found.varies == ((0,), (0,), ())
    assert data.train.batch(torch.tensor(found.largest).numpy()).inputs[1].shape[1] == 9


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"collate": "pad", "longest": 0}, "longest is 0, but must be a whole number of at least 1"),
        ({"collate": "pad", "longest": "8"}, "longest is '8', but must be a whole number"),
        ({"longest": 8}, "longest is 8, but without a collate function all samples have one size"),
    ],
)
def test_a_longest_that_means_nothing_is_refused(options, reason):
    rows = [{"a": [1, 2], "labels": 0}] * 3
    with pytest.raises(DataError, match=reason):
        from_datasets(rows, **options)
