"""The same bits wherever the model is cut, by any number of workers, with what users bring along."""

import random

import numpy as np
import pytest
import torch
from collecting import run
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import cutwater
from cutwater.base.errors import RunError
from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify
from cutwater.model.randomness import drawn_from
from cutwater.train.step import ClientSide, ServerSide, optimizer_factory, train_step


def chain():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


class Augmented(Dataset):
    """Draws from all the generators that transforms draw from."""

    def __init__(self, count):
        self.x, self.y = (
            torch.randn(count, 8, generator=torch.Generator().manual_seed(3)),
            torch.arange(count) % 3,
        )

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        moved = self.x[index] + 0.5 * torch.randn(8) + random.random() + float(np.random.rand())
        return moved, int(self.y[index])


def plain(count):
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(count, 8, generator=generator), torch.arange(count) % 3)


class Aside(nn.Module):
    """Passes something on that the loss never uses, as auxiliary heads do."""

    def __init__(self):
        super().__init__()
        self.main, self.aside = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.main(x))
        return x, self.aside(x)


class Onward(nn.Module):
    def __init__(self, out=8):
        super().__init__()
        self.main = nn.Linear(8, out)

    def forward(self, pair):
        return self.main(pair[0]), pair[1]


class FrozenNorm(nn.Module):
    """Fine-tuning with BatchNorm's statistics as they came."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


CASES = {
    "samples that are augmented": (chain, Augmented, F.cross_entropy, {}),
    "a loss that draws": (chain, plain, lambda o, y: F.cross_entropy(F.dropout(o, 0.3), y), {}),
    "a tensor that crosses for nothing": (
        lambda: nn.Sequential(Aside(), Onward(), Onward(3)),
        plain,
        lambda o, y: F.cross_entropy(o[0], y),
        {"optimizer": "adamw"},
    ),
    "statistics that stay": (FrozenNorm, plain, F.cross_entropy, {}),
}


def study_of(make, data, loss, train):
    torch.manual_seed(0)
    clients = [cutwater.Client(name=f"p{i}", compute=1e5 * 4**i, rate=2e6, samples=20) for i in range(4)]
    return cutwater.Study.of(
        make(),
        cutwater.from_datasets(data(80), data(20)),
        clients,
        cutwater.Server(200e6),
        cutwater.Session(steps=3, batch_size=6),
        loss=loss,
        train=cutwater.TrainSettings(rounds=2, lr=0.05, seed=1, **train),
        share_out=cutwater.DataSettings(partition="iid"),
    )


@pytest.mark.parametrize("name", CASES)
def test_cuts_and_workers_change_no_bit(name):
    found = set()
    for workers in (1, 2):
        study = study_of(*CASES[name])
        torch.manual_seed(workers)  # what a process has drawn before is none of a run's business
        steps = run(study, workers=workers)
        found.add((steps[-1].record.weights_sha256, steps[-1].record.test_loss))
    assert len(found) == 1
    study = study_of(*CASES[name])
    rounds = list(verify(study, LocalTrainer(study.job(), study.test(), 1), 2))
    assert all(each.agrees for each in rounds), [each.differs for each in rounds]


def test_a_model_that_keeps_statistics_in_training_keeps_them_here():
    study = study_of(*CASES["statistics that stay"])
    (*_, last) = run(study, workers=1)
    state = last.progress.weights
    assert state["norm.num_batches_tracked"] == 0
    assert torch.equal(state["norm.running_mean"], torch.zeros(8))
    assert not torch.equal(state["norm.weight"], torch.ones(8))
    model = cutwater.layered(FrozenNorm(), (torch.randn(4, 8),))
    whole = cutwater.join(*model.split(2))
    assert whole.train().norm.training is False
    assert whole.norm is model.module.norm
    assert whole.eval().training is False


def test_what_the_loss_does_not_depend_on_stays_as_it_is():
    model = cutwater.layered(nn.Sequential(Aside(), Onward(), Onward(3)), (torch.randn(4, 8),))
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    client_half, server_half = model.split(1)
    make = optimizer_factory("sgd", 0.1, weight_decay=0.5)
    loss = lambda o, y: F.cross_entropy(o[0], y)  # noqa: E731
    client, server = ClientSide(client_half, make, 1), ServerSide(server_half, make, 1, loss)
    train_step(client, server, loss, 0, (torch.randn(4, 8),), torch.tensor([0, 1, 2, 0]))
    after = model.module.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.rpartition(".")[0] for name in changed} == {"0.main", "1.main", "2.main"}


def test_a_client_of_which_nothing_counts_is_left_as_it_is():
    client = ClientSide(nn.Linear(2, 2), optimizer_factory("sgd", 0.1, weight_decay=0.5), 1)
    before = client.half.weight.clone()
    smashed = client.forward(0, (torch.ones(1, 2),))
    client.backward([torch.zeros_like(smashed[0])], unused=(0,))
    assert torch.equal(client.half.weight, before)


def test_draws_follow_from_the_parts_and_leave_no_trace():
    def draw():
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with drawn_from(1, "a"):
        first = draw()
    with drawn_from(1, "b"):
        other = draw()
    with drawn_from(1, "a"):
        assert draw() == first
    assert all(mine != theirs for mine, theirs in zip(first, other, strict=True))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_a_loss_without_a_gradient_is_refused_before_the_first_round():
    with pytest.raises(RunError, match="the loss has no gradient"):
        study_of(chain, plain, lambda o, y: F.cross_entropy(o.detach(), y), {})
