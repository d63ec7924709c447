"""A mini-batch in parts: the gradient of the whole, and the same bits however the parts cross a cut."""

import itertools

import numpy as np
import pytest
import torch
from codec_ends import transfer
from collecting import run
from torch import nn
from torch.nn import functional as F

import cutwater
from cutwater.base.errors import PlanError
from cutwater.codec import find_codec
from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify
from cutwater.model.randomness import derive_seed
from cutwater.plan.session import Wires, part_sizes
from cutwater.train.step import ClientSide, Part, ServerSide, optimizer_factory, train_step
from cutwater.train.wire import Coder, InProcess

SIZES = (10, 7, 2)
"""Of mini-batches: none that 4 divides, and one with fewer samples than parts."""


def noisy():
    """All that could tell parts from wholes: statistics, dropout, and a layer that works in place."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def batches():
    random = torch.Generator().manual_seed(9)
    return [(torch.randn(n, 1, 6, 6, generator=random), torch.arange(n) % 3) for n in SIZES]


def trained(cut, parts, *, overlapped=False, up="fp32", down="fp32", make=noisy):
    """The model after three mini-batches, and their losses."""
    layers = cutwater.layered(make(), (torch.randn(2, 1, 6, 6),))
    halves, optimizer = layers.split(cut), optimizer_factory("adam", 0.01)
    client, server = ClientSide(halves.client, optimizer, 7), None
    if cut < len(layers):
        side = ServerSide(halves.server, optimizer, 7, F.cross_entropy)
        server = InProcess(side, Coder.of(up, "up", 7), Coder.of(down, "down", 7))
    losses, first = [], 0
    for inputs, labels in batches():
        how = {"micro_batches": parts, "overlapped": overlapped}
        losses.append(train_step(client, server, F.cross_entropy, first, (inputs,), labels, **how))
        first += len(part_sizes(len(labels), parts))
    return {name: value.clone() for name, value in layers.module.state_dict().items()}, losses


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_every_cut_and_schedule_gives_the_whole_models_bits(parts):
    whole, losses = trained(6, parts)
    for cut, overlapped, codec in itertools.product(range(1, 6), (False, True), ("fp32", "lossless")):
        split, found = trained(cut, parts, overlapped=overlapped, up=codec, down=codec)
        assert same(split, whole), (cut, overlapped, codec)
        assert found == losses


def test_the_parts_matter_where_statistics_are_taken_of_them():
    assert not same(trained(6, 1)[0], trained(6, 4)[0])


def plain():
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_the_gradients_of_parts_add_up_to_the_mini_batchs(parts):
    whole, losses = trained(4, 1, make=plain)
    divided, found = trained(4, parts, make=plain)
    assert found == pytest.approx(losses, rel=1e-5)
    for name, value in whole.items():
        assert torch.allclose(divided[name], value, atol=2e-4), name


def test_gradients_are_weighted_by_samples_and_not_by_parts():
    layers = nn.Linear(4, 1, bias=False)
    x, y = torch.randn(5, 4), torch.randn(5)
    loss = lambda output, wanted: ((output[:, 0] - wanted) ** 2).mean()  # noqa: E731
    wanted = torch.autograd.grad(loss(layers(x), y), layers.weight)[0]
    client = ClientSide(layers, optimizer_factory("sgd", 1.0), 0)
    before = layers.weight.detach().clone()
    train_step(client, None, loss, 0, (x,), y, micro_batches=2)
    assert torch.allclose(before - layers.weight, wanted, atol=1e-6)


@pytest.mark.parametrize("codec", ["bf16", "int8", "int4", "topk"])
def test_a_lossy_codec_is_the_same_by_either_schedule_and_another_than_none(codec):
    in_turn, losses = trained(2, 3, up=codec, down=codec)
    overlapped, found = trained(2, 3, overlapped=True, up=codec, down=codec)
    assert same(in_turn, overlapped)
    assert losses == found
    assert not same(in_turn, trained(2, 3)[0])


class Recording(ServerSide):
    def send(self, part, smashed, labels):
        self.seen = smashed
        super().send(part, smashed, labels)


def test_the_server_sees_what_the_codec_leaves_and_what_is_no_float_as_it_is():
    class Keep(nn.Module):
        def forward(self, both):
            return both[0] * (1 + both[1][:, None])

    side = Recording(Keep(), optimizer_factory("sgd", 0.1), 0, F.cross_entropy)
    wire = InProcess(side, Coder.of("int8", "up", 3), Coder.of("bf16", "down", 3))
    values, numbers = torch.randn(4, 3, requires_grad=True), torch.tensor([1, 0, 2, 5])
    wire.send(Part(8), (values, numbers), torch.tensor([0, 1, 2, 0]))
    wanted = transfer(find_codec("int8"), values.detach().numpy(), derive_seed(3, "up", 8, 0))
    assert np.array_equal(side.seen[0].detach().numpy(), wanted)
    assert torch.equal(side.seen[1], numbers)
    gradient = wire.receive().gradients[0]
    assert torch.equal(gradient, gradient.bfloat16().float())
    assert wire.up == 4 * (3 + 4) + 4 * 8 + 4 * 8  # a byte each and a scale a sample; numbers; labels
    assert wire.down == 4 * 3 * 2


def study(parts, wires, **session):
    data = torch.utils.data.TensorDataset(torch.randn(80, 1, 6, 6), torch.arange(80) % 3)
    clients = [
        cutwater.Client(name=f"c{k}", compute=(1 + k) * 1e5, rate=4e6, samples=20, rtt=0.01) for k in range(3)
    ]
    return cutwater.Study.of(
        noisy(),
        cutwater.from_datasets(data, data),
        clients,
        cutwater.Server(200e6),
        cutwater.Session(batch_size=8, micro_batches=parts, **session),
        train=cutwater.TrainSettings(rounds=2, lr=0.05, momentum=0.9, seed=1),
        share_out=cutwater.DataSettings(partition="iid"),
        wires=wires,
    )


@pytest.mark.parametrize(("parts", "session"), [(3, {"epochs": 1}), (4, {"steps": 3})])
def test_a_run_in_parts_is_fedavgs_in_parts(parts, session):
    torch.manual_seed(3)
    made = study(parts, Wires(up="lossless", down="fp32"), **session)
    for check in verify(made, LocalTrainer(made.job(), made.test(), 1), 2):
        assert check.agrees, check.differs
    schedules = {client.schedule for client in run(made)[0].outcome.plan.clients if client.mode == "split"}
    assert schedules == {"overlapped"}


def test_a_lossy_run_is_one_run_by_any_number_of_workers_and_named_in_its_rounds():
    found = set()
    for workers in (1, 2):
        torch.manual_seed(3)
        rounds = run(study(2, Wires(up="int8", down="bf16"), steps=3), workers=workers)
        found.add(rounds[-1].record.weights_sha256)
        split = [part for part in rounds[0].outcome.parts if part.mode == "split"]
        assert split
        assert {(part.up, part.down) for part in split} == {("int8", "bf16")}
    assert len(found) == 1


def test_the_clock_counts_overlap_and_round_trips():
    torch.manual_seed(3)
    (first, _) = run(study(4, Wires(), steps=3))
    for part in first.outcome.parts:
        busy = sum(part.actual)
        assert part.actual_seconds == pytest.approx(busy - part.actual.overlap)
        if part.mode == "split":
            assert part.actual.overlap > 0
            assert part.actual.round_trips == pytest.approx(3 * 0.01)


def test_more_parts_than_samples_are_refused_in_one_sentence():
    with pytest.raises(
        PlanError, match="micro_batches is 9, but the mini-batches of the session have 8 samples"
    ):
        cutwater.Session(steps=1, batch_size=8, micro_batches=9)
