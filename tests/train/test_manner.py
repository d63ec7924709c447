"""Clipping by the norm, rates by step and autocast: the same bits at every cut, in process and deployed."""

import math

import pytest
import torch
from small_study import small_study
from torch import nn

import cutwater
from cutwater import Session, TrainSettings
from cutwater.base.errors import ModelError, RunError, ScenarioError
from cutwater.serve.loopback import LoopbackTrainer
from cutwater.train.aggregate import weights_sha256
from cutwater.train.manner import Clip, Manner
from cutwater.train.session import Task, run_both_sides
from cutwater.train.step import Part, ServerSide, optimizer_factory
from cutwater.train.three_parts import Back, MiddleSide

IN_PARTS = Session(steps=3, batch_size=6, micro_batches=3)
WAYS = {
    "norm": {"train": {"clip_norm": 0.05}},
    "norm in parts": {"train": {"clip_norm": 0.05}, "session": IN_PARTS},
    "steps": {"train": {"schedule": "cosine", "schedule_by": "step", "warmup": 2, "optimizer": "adamw"}},
    "session": {"train": {"schedule": lambda step: 1 / step, "schedule_by": "session"}},
    "bf16": {"session": Session(steps=3, batch_size=6, autocast="bf16")},
    "all": {
        "train": {"clip_norm": 0.1, "schedule": "linear", "schedule_by": "step", "warmup": 2},
        "session": Session(steps=3, batch_size=6, micro_batches=2, autocast="bf16"),
    },
}


def made(way):
    given = {**way, "train": {"momentum": 0.0, **way.get("train", {})}}
    return small_study(**given)


def task(study, cut, **how):
    return Task(client="c1", round=2, cut=cut, seed=7, lr=study.train.lr, samples=21, **how)


@pytest.mark.parametrize("name", WAYS)
def test_the_bits_are_the_same_at_every_cut_and_differ_from_those_without(name):
    study, plain = (
        made(WAYS[name]),
        small_study(session=WAYS[name].get("session", Session(steps=2, batch_size=5))),
    )
    if name == "bf16":
        plain = small_study(session=Session(steps=3, batch_size=6), train={"momentum": 0.0})
    depth = len(study.model)
    found = {
        weights_sha256(run_both_sides(study.job(), task(study, cut), study.initial).state)
        for cut in range(1, depth + 1)
    }
    assert len(found) == 1
    assert weights_sha256(run_both_sides(plain.job(), task(plain, depth), plain.initial).state) not in found


@pytest.mark.parametrize("name", ["norm", "steps", "bf16", "all"])
@pytest.mark.parametrize("schedule", ["in turn", "overlapped"])
def test_a_session_over_the_stream_has_the_bits_of_one_process(name, schedule):
    study = made(WAYS[name])
    tasks = [task(study, cut, schedule=schedule) for cut in (1, 3)]
    trainer = LoopbackTrainer(study)
    try:
        deployed = [
            (weights_sha256(one.state), one.bytes_up) for one in trainer.sessions(tasks, study.initial)
        ]
    finally:
        trainer.close()
    here = [run_both_sides(study.job(), one, study.initial) for one in tasks]
    assert deployed == [(weights_sha256(one.state), one.bytes_up) for one in here]


def test_the_norm_is_torchs_and_so_is_what_is_left_of_the_gradients():
    study = made(WAYS["norm"])
    model, places = study.model.module, study.model.places
    grads = {name: torch.randn_like(one) for name, one in model.named_parameters()}
    for name, one in model.named_parameters():
        one.grad = grads[name].clone()
    clip = Clip(0.5, places)
    total = clip.add(0.0, model.named_parameters())
    clip.apply(total, model.named_parameters())
    mine = [one.grad.clone() for one in model.parameters()]
    for name, one in model.named_parameters():
        one.grad = grads[name].clone()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    assert math.sqrt(total) == pytest.approx(float(norm), rel=1e-6)
    for one, other in zip(mine, model.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad)
    model.zero_grad()


def test_a_server_takes_no_norm_that_can_not_be_and_no_mini_batch_before_it():
    half = nn.Linear(3, 2)
    manner = Manner(clip=Clip(1.0, {"weight": 0, "bias": 1}))
    server = ServerSide(half, optimizer_factory("sgd", 0.1), 1, nn.functional.cross_entropy, manner=manner)
    smashed, labels = (torch.ones(4, 3, requires_grad=True),), torch.zeros(4).long()
    server.send(Part(0), smashed, labels)
    with pytest.raises(RunError, match="before the norm of the gradients of the last was told"):
        server.send(Part(1), smashed, labels)
    with pytest.raises(RunError, match="told as the sum of squares of all gradients, but the server's alone"):
        server.clip(0.0)
    server.clip(server.receive().norm)
    server.send(Part(1), smashed, labels)


def test_a_middle_takes_the_norm_of_the_tail_where_it_is_due_and_nowhere_else():
    manner = Manner(clip=Clip(1.0, {"weight": 0, "bias": 1}))
    middle = MiddleSide(nn.Linear(3, 2), optimizer_factory("sgd", 0.1), 1, manner=manner)
    smashed, back = (torch.ones(4, 3, requires_grad=True),), (torch.ones(4, 2),)
    parts = Part(0, 0.5, False), Part(1, 0.5, True)
    for part in parts:
        middle.forward(part, smashed)
    with pytest.raises(RunError, match=r"2\.0 was told .* of the tail's gradients, but none is due here"):
        middle.backward(parts[0], Back(back, norm=2.0))
    assert middle.backward(parts[0], Back(back)).norm is None
    for wrong in (None, -1.0):
        with pytest.raises(RunError, match="of the tail's gradients, but 0 or more is due"):
            middle.backward(parts[1], Back(back, norm=wrong))
    reply = middle.backward(parts[1], Back(back, norm=2.0))
    assert reply.norm > 2.0
    with pytest.raises(RunError, match="before the norm of the gradients of the last was told"):
        middle.forward(Part(2), smashed)
    with pytest.raises(RunError, match="told as the sum of squares of all gradients, but the server's alone"):
        middle.clip(2.0)
    middle.clip(reply.norm)
    middle.forward(Part(2), smashed)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_by_step_are_those_of_transformers(schedule):
    optimization = pytest.importorskip("transformers.optimization")
    train = TrainSettings(rounds=3, schedule=schedule, schedule_by="step", warmup=4)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    theirs = getattr(optimization, f"get_{schedule}_schedule_with_warmup")(optimizer, 4, 15)
    for step in range(15):
        assert train.rates(1 + step // 5, 5)(step % 5) == pytest.approx(
            optimizer.param_groups[0]["lr"], abs=1e-12
        )
        optimizer.step()
        theirs.step()


def test_by_session_every_round_begins_anew():
    train = TrainSettings(rounds=9, schedule="linear", schedule_by="session", warmup=1)
    assert [train.rates(round_, 3)(step) for round_ in (1, 7) for step in range(3)] == [0, 1, 0.5] * 2


def test_what_crosses_as_bf16_is_priced_and_counted_as_that():
    half, full = (small_study(session=Session(steps=1, batch_size=6, autocast=one)) for one in ("bf16", None))
    cut = half.profile.cuts[0]
    assert (cut.smashed_bits, cut.gradient_bits) == (12 * 16, 12 * 16)
    assert full.profile.cuts[0].smashed_bits == 12 * 32
    moved = [run_both_sides(one.job(), task(one, 1), one.initial) for one in (half, full)]
    labels, smashed = 6 * 8, 6 * 12
    assert [one.bytes_up - one.bytes_down for one in moved] == [labels, labels]
    assert moved[1].bytes_down - moved[0].bytes_down == 2 * smashed


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        ({"clip_norm": 1.0, "clip_value": 1.0}, "one way or the other"),
        ({"clip_norm": 0}, "clip_norm is 0"),
        ({"schedule_by": "epoch"}, "schedule_by is 'epoch'"),
        ({"schedule": "exponential", "schedule_by": "step", "gamma": 2}, "gamma is 2"),
    ],
)
def test_settings_that_mean_nothing_are_refused(train, reason):
    with pytest.raises(ScenarioError, match=reason):
        TrainSettings(**train)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_across_two_cuts_all_is_the_same_too(micro_batches):
    study = small_study(
        session=Session(labels="stay", steps=3, batch_size=6, autocast="bf16", micro_batches=micro_batches),
        train={
            "clip_norm": 0.05,
            "schedule": "linear",
            "schedule_by": "step",
            "warmup": 2,
            "momentum": 0.0,
        },
    )
    tasks = [task(study, cut, second_cut=second) for cut, second in ((4, 0), (1, 2), (1, 3), (2, 3))]
    found = {weights_sha256(run_both_sides(study.job(), one, study.initial).state) for one in tasks}
    assert len(found) == 1


class Casting(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.first(x)
        return self.last(x.float())


def test_autocast_in_a_forward_is_refused_with_what_to_do():
    with pytest.raises(ModelError, match=r"take torch.autocast out.*Session\(autocast=\"bf16\"\)"):
        cutwater.layered(Casting(), torch.randn(2, 6))
