"""The local engine: the same bits at every cut, with every number of workers, after a worker's death."""

import gc
import os
import re
import signal
import threading
import time
from dataclasses import replace
from traceback import format_exception

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cutwater
from cutwater.base.errors import EngineError, RunError
from cutwater.execute.local import LocalTrainer
from cutwater.train.scores import Score, evaluate
from cutwater.train.session import Job, Task
from cutwater.train.step import optimizer_factory

CLIENTS = ("ann", "bob", "cat", "dan")


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 12), Residual(12), nn.Dropout(0.2), Residual(12), nn.Linear(12, 3)
    )


def batches(task: Task):
    generator = torch.Generator().manual_seed(task.round * 100 + CLIENTS.index(task.client))
    for _ in range(4):
        yield (torch.randn(8, 4, 4, generator=generator),), torch.randint(0, 3, (8,), generator=generator)


def job(name: str = "sgd", data=batches, **options) -> Job:
    return Job(
        model=cutwater.layered(model()),
        loss=F.cross_entropy,
        optimizer=lambda lr: optimizer_factory(name, lr, **options),
        batches=data,
    )


class TestData:
    __test__ = False

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return (torch.randn(6, 4, 4, generator=generator),), torch.randint(0, 3, (6,), generator=generator)


def tasks(cuts) -> list[Task]:
    return [
        Task(client=name, round=1, cut=cut, seed=11 + i, lr=0.05, samples=10 + i)
        for i, (name, cut) in enumerate(zip(CLIENTS, cuts, strict=True))
    ]


def trained(cuts, workers: int = 1, **options) -> dict[str, tuple[float, dict[str, torch.Tensor]]]:
    engine = LocalTrainer(job(**options), TestData(), workers)
    try:
        start = model().state_dict()
        return {
            result.task.client: (result.loss, {k: v.clone() for k, v in result.state.items()})
            for result in engine.sessions(tasks(cuts), start)
        }
    finally:
        engine.close()


def assert_same(left, right) -> None:
    assert left.keys() == right.keys() == set(CLIENTS)
    for client in CLIENTS:
        assert left[client][0] == right[client][0]
        for name, tensor in left[client][1].items():
            assert torch.equal(tensor, right[client][1][name]), (client, name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sgd", {}),
        ("sgd", {"momentum": 0.9}),
        ("adam", {}),
        ("adamw", {"weight_decay": 0.1}),
        ("rmsprop", {}),
    ],
)
def test_sessions_give_the_same_bits_at_every_cut(name, options):
    whole = trained([6, 6, 6, 6], name=name, **options)
    assert_same(trained([1, 2, 3, 4], name=name, **options), whole)
    assert_same(trained([5, 6, 1, 2], name=name, **options), whole)


def test_sessions_give_the_same_bits_with_every_number_of_workers():
    assert_same(trained([1, 3, 5, 6], workers=3), trained([6, 2, 4, 1], workers=1))


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_layers_that_work_in_place_give_the_same_bits_on_either_side_of_the_cut(cut):
    def trained_at(cut: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        inner = [nn.ReLU(inplace=True), nn.Linear(12, 12), nn.Hardtanh(inplace=True)]
        layers = [nn.Flatten(), nn.Linear(16, 12), *inner, nn.Linear(12, 3)]
        subject = replace(job(), model=cutwater.layered(nn.Sequential(*layers)))
        state = {name: tensor.clone() for name, tensor in subject.model.module.state_dict().items()}
        (result,) = LocalTrainer(subject, TestData()).sessions(tasks([cut] * 4)[:1], state)
        return dict(result.state)

    split, whole = trained_at(cut), trained_at(6)
    assert all(torch.equal(split[name], whole[name]) for name in whole)


class Inherited:
    """Garbage of the parent, in a cycle; its end is the parent's business alone."""

    def __init__(self, told: int) -> None:
        self.told, self.parent, self.me = told, os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.parent:
            os.write(self.told, b"x")


def test_a_worker_never_ends_what_it_inherits():
    """gRPC's objects, say, wait for their threads, which no fork takes along: the worker would hang."""

    def collecting_loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        gc.collect()
        return F.cross_entropy(output, labels)

    heard, told = os.pipe()
    os.set_blocking(heard, False)
    gc.disable()
    try:
        Inherited(told)
        engine = LocalTrainer(replace(job(), loss=collecting_loss), TestData(), 2)
        assert len(list(engine.sessions(tasks([1, 3, 5, 6]), model().state_dict()))) == 4
        engine.close()
    finally:
        gc.enable()
    with pytest.raises(BlockingIOError):
        os.read(heard, 1)
    os.close(heard)
    os.close(told)


def test_evaluation_does_not_depend_on_the_number_of_workers():
    scores = []
    for workers in (1, 2, 3):
        engine = LocalTrainer(job(), TestData(), workers)
        scores.append(engine.evaluate(model().state_dict()))
        engine.close()
    assert scores[0] == scores[1] == scores[2]
    assert sum(score.samples for score in scores[0]) == 30


def test_a_split_session_counts_what_crosses_the_network():
    engine = LocalTrainer(job(), TestData())
    split, whole = (next(iter(engine.sessions(tasks([cut] * 4), model().state_dict()))) for cut in (2, 6))
    state = sum(t.numel() * t.element_size() for t in model().state_dict().values())
    assert (whole.bytes_up, whole.bytes_down) == (state, state)
    linear = (16 * 12 + 12) * 4
    assert split.bytes_down == linear + 4 * 8 * 12 * 4
    assert split.bytes_up == linear + 4 * (8 * 12 * 4 + 8 * 8)


def slow_batches(task: Task):
    for batch in batches(task):
        time.sleep(0.15)
        yield batch


def test_a_killed_worker_is_replaced_and_its_session_done_again():
    engine = LocalTrainer(job(data=slow_batches), TestData(), workers=2)
    victim = engine.pool.workers[0].process.pid
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    try:
        results = {
            result.task.client: (result.loss, {k: v.clone() for k, v in result.state.items()})
            for result in engine.sessions(tasks([1, 3, 5, 6]), model().state_dict())
        }
        assert engine.pool.workers[0].process.pid != victim
    finally:
        engine.close()
    assert_same(results, trained([6, 6, 6, 6]))


def test_a_worker_that_dies_while_it_is_idle_is_replaced():
    engine = LocalTrainer(job(), TestData(), workers=2)
    try:
        for worker in engine.pool.workers:
            worker.process.kill()
            worker.process.join()
        results = {
            result.task.client: (result.loss, {k: v.clone() for k, v in result.state.items()})
            for result in engine.sessions(tasks([1, 3, 5, 6]), model().state_dict())
        }
        engine.pool.workers[1].process.kill()
        engine.pool.workers[1].process.join()
        assert len(engine.evaluate(model().state_dict())) == 5
    finally:
        engine.close()
    assert_same(results, trained([6, 6, 6, 6]))


def many_tasks() -> list[Task]:
    """So many that workers have their next before the one at hand is done."""
    return [replace(task, round=round_) for round_ in range(1, 6) for task in tasks([1, 3, 5, 6])]


def test_workers_ahead_of_a_slow_reader_overwrite_nothing_and_may_die_meanwhile():
    start, found = model().state_dict(), {}
    engine = LocalTrainer(job(), TestData(), workers=2)
    try:
        for count, result in enumerate(engine.sessions(many_tasks(), start)):
            time.sleep(0.05)  # both workers do what they have and fill their other buffers
            if count in (2, 7):
                engine.pool.workers[count % 2].process.kill()
            task = result.task
            found[task.client, task.round] = {name: tensor.clone() for name, tensor in result.state.items()}
    finally:
        engine.close()
    alone = LocalTrainer(job(), TestData())
    for result in alone.sessions(many_tasks(), start):
        state = found.pop((result.task.client, result.task.round))
        assert all(torch.equal(state[name], tensor) for name, tensor in result.state.items())
    assert not found


def test_a_session_that_kills_its_workers_is_named_and_the_engine_stays_of_use():
    def deadly(task: Task):
        if task.client == "cat":
            os._exit(7)
        return batches(task)

    engine = LocalTrainer(job(data=deadly), TestData(), workers=2)
    try:
        for _ in range(2):
            with pytest.raises(EngineError, match=r"died 3 times \(exit code 7\) on .*cat"):
                list(engine.sessions(tasks([1, 2, 3, 6]), model().state_dict()))
            assert {worker.tries for worker in engine.pool.workers} == {0}
            assert len(engine.evaluate(model().state_dict())) == 5
    finally:
        engine.close()


def test_what_a_replaced_worker_raises_says_nothing_of_the_one_before(tmp_path):
    died = tmp_path / "died"

    def deadly_once(task: Task):
        if not died.exists():
            died.touch()
            os._exit(7)
        raise ValueError("mine")

    engine = LocalTrainer(job(data=deadly_once), TestData(), workers=2)
    try:
        with pytest.raises(EngineError, match="ValueError: mine") as caught:
            list(engine.sessions(tasks([1, 2, 3, 6])[:1], model().state_dict()))
    finally:
        engine.close()
    way = "".join(format_exception(caught.value))
    assert 'raise ValueError("mine")' in way
    assert "recv_bytes" not in way


def test_workers_whose_watcher_fails_end_at_once_and_in_silence(capfd):
    def fail(tick):
        raise ValueError("mine")

    engine = LocalTrainer(job(), TestData(), workers=2)
    engine.watch = fail
    try:
        with pytest.raises(ValueError, match="mine"):
            list(engine.sessions(tasks([1, 2, 3, 6]), model().state_dict()))
        assert not any(worker.orders for worker in engine.pool.workers)
    finally:
        engine.close()
    assert capfd.readouterr().err == ""


def broken_batches(task: Task):
    for inputs, labels in batches(task):
        yield (inputs[0] * float("nan"),) if task.client == "cat" else inputs, labels


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_a_number_stops_and_names_the_client(workers):
    engine = LocalTrainer(job(data=broken_batches), TestData(), workers)
    try:
        with pytest.raises(RunError, match="client 'cat' is nan in round 1, step 0"):
            list(engine.sessions(tasks([1, 2, 3, 6]), model().state_dict()))
        # The engine is still of use afterwards.
        assert len(engine.evaluate(model().state_dict())) == 5
    finally:
        engine.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_users_loss_raises_is_one_sentence_that_names_client_and_round(workers):
    def failing(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        raise OSError("disk gone\nfor good")

    engine = LocalTrainer(replace(job(), loss=failing), TestData(), workers)
    try:
        with pytest.raises(EngineError, match=r"^client 'ann', round 1: OSError: disk gone, at ") as caught:
            list(engine.sessions(tasks([1, 2, 3, 6])[:1], model().state_dict()))
        with pytest.raises(EngineError, match=r"^the test set: OSError: disk gone, at "):
            engine.evaluate(model().state_dict())
        assert re.fullmatch(r".*test_local\.py:\d+", str(caught.value))
        # The way there, for a traceback, comes from the worker's process, too.
        way = "".join(format_exception(caught.value))
        assert 'raise OSError("disk gone\\nfor good")' in way
    finally:
        engine.close()


def scored(output: torch.Tensor, labels: torch.Tensor, loss=None) -> Score:
    """The score of a model that answers with this output."""

    class Answer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none = nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return output + self.none

    subject = Job(
        model=cutwater.layered(nn.Sequential(Answer())),
        loss=loss or (lambda output, labels: output.sum() * 0),
        optimizer=lambda lr: optimizer_factory("sgd", lr),
        batches=batches,
    )
    state = {name: tensor.clone() for name, tensor in subject.model.module.state_dict().items()}
    (score,) = evaluate(subject, state, [((torch.zeros(len(labels), 1),), labels)])
    return score


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 3), (6, 4, 5), (6, 3, 3)], ids=str)
def test_classes_that_are_second_as_torchs_loss_has_them_are_counted(shape):
    labels = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(1))
    output = F.one_hot(labels, 3).movedim(-1, 1).float()
    for loss in (F.cross_entropy, nn.CrossEntropyLoss()):
        score = scored(output, labels, loss)
        assert (score.right, score.answers) == (labels.numel(), labels.numel())


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 3)], ids=str)
def test_classes_that_are_last_are_counted(shape):
    labels = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(1))
    score = scored(F.one_hot(labels, 3).float(), labels)
    assert (score.right, score.answers) == (labels.numel(), labels.numel())


@pytest.mark.parametrize(
    ("output", "labels"),
    [((6, 1), (6,)), ((6,), (6,)), ((6, 1), (6, 1)), ((6, 3), (6, 3)), ((6, 3), (6, 1)), ((6, 4, 3), (6,))],
    ids=str,
)
def test_labels_that_name_no_class_of_the_output_have_no_answers(output, labels):
    score = scored(torch.randn(output), torch.zeros(labels, dtype=torch.int64))
    assert (score.samples, score.right, score.answers) == (6, 0, 0)


def test_closing_leaves_no_process_behind():
    engine = LocalTrainer(job(), TestData(), workers=2)
    processes = [worker.process for worker in engine.pool.workers]
    engine.close()
    assert not any(process.is_alive() for process in processes)


def test_workers_must_be_positive():
    with pytest.raises(EngineError, match="workers is 0"):
        LocalTrainer(job(), TestData(), 0)
    with pytest.raises(EngineError, match=r"workers is 2\.5, but must be 1 or more, a whole number"):
        LocalTrainer(job(), TestData(), 2.5)


@pytest.mark.parametrize(
    ("name", "reason"), [("lbfgs", "line search"), ("sparseadam", "sparse"), ("sdg", "unknown")]
)
def test_optimizers_that_cannot_be_split_are_refused_by_name(name, reason):
    with pytest.raises(RunError, match=f"'{name}'.*{reason}"):
        optimizer_factory(name, 0.1)


def test_optimizer_options_are_checked_before_training():
    with pytest.raises(RunError, match=r"refuses lr = -1"):
        optimizer_factory("sgd", -1.0)
