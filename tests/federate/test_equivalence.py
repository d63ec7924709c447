"""Split training gives FedAvg's bits: any cuts, any optimizer, dropout on, any number of workers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from collecting import trained_by

from cutwater.data.custom import from_datasets
from cutwater.data.samples import Data
from cutwater.federate.study import Study
from cutwater.model import zoo
from cutwater.plan.fleet import Client
from cutwater.plan.problem import Server
from cutwater.plan.session import Session
from cutwater.scenario.settings import DataSettings, TrainSettings

MODELS = {
    "efficientnet_v2_s": ("1x8x8", {}),
    "resnet18": ("1x8x8", {}),
    "vit_tiny": ("1x8x8", {"dropout": 0.1}),
    "text_transformer": ("12", {"dropout": 0.1}),
}
OPTIMIZERS = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 1e-4},
    "adam": {"optimizer": "adam"},
}
ROUNDS = 2


def data_for(input_: str) -> Data:
    random = torch.Generator().manual_seed(5)
    shape = tuple(int(size) for size in input_.split("x"))
    draw = (
        torch.randn if len(shape) == 3 else lambda *s, generator: torch.randint(0, 50, s, generator=generator)
    )
    samples = [(draw(*shape, generator=random), int(k % 4)) for k in range(60)]
    return from_datasets(samples[:48], samples[48:], classes=4)


def settings(optimizer: str) -> TrainSettings:
    return TrainSettings(clients_per_round=2, seed=3, evaluate_every=99, lr=1e-4, **OPTIMIZERS[optimizer])


def study(model: str, optimizer: str) -> Study:
    input_, options = MODELS[model]
    torch.manual_seed(1)
    module = zoo.build(model, input=input_, classes=4, **options)
    clients = [Client(name=f"c{k}", compute=1e9 * (k + 1), rate=8e6, samples=16) for k in range(3)]
    return Study.of(
        module,
        data_for(input_),
        clients,
        Server(20e9),
        Session(steps=2, batch_size=4),
        train=settings(optimizer),
        share_out=DataSettings(partition="iid"),
    )


def train(study_: Study, planner: str, workers: int = 1, **options) -> tuple[list[str], set[int]]:
    """The digest of the global weights after each round, and the cuts that were used."""
    steps = trained_by(study_.with_planner(planner, **options), ROUNDS, workers)
    cuts = {part.cut for step in steps for part in step.outcome.parts}
    return [step.record.weights_sha256 for step in steps], cuts


@pytest.fixture(scope="module", params=MODELS)
def discovered(request) -> Study:
    """A model that is taken apart and profiled once for all optimizers."""
    return study(request.param, "sgd")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_random_cuts_give_the_weights_of_fedavg_after_every_round(discovered, optimizer):
    subject = replace(discovered, train=settings(optimizer))
    whole, cuts = train(subject, "fedavg")
    assert cuts == {len(subject.model)}
    assert len(set(whole)) == ROUNDS
    split, cuts = train(subject, "random", seed=9)
    assert len(cuts) > 1
    assert split == whole
    two_workers, _ = train(subject, "random", workers=2, seed=4)
    assert two_workers == whole


@pytest.fixture(scope="module")
def vit() -> Study:
    return study("vit_tiny", "sgd")


def test_the_plan_changes_the_clock_but_not_the_weights(vit):
    digests, seconds = [], []
    for planner in ("fedavg", "exact", "greedy"):
        steps = trained_by(vit.with_planner(planner), 2)
        digests.append([step.record.weights_sha256 for step in steps])
        seconds.append(steps[-1].record.virtual_seconds)
    assert digests[0] == digests[1] == digests[2]
    assert seconds[1] < seconds[0]


def test_a_different_seed_gives_different_weights(vit):
    other = replace(vit, train=replace(vit.train, seed=4))
    assert train(vit, "fedavg")[0] != train(other, "fedavg")[0]


def test_the_fingerprint_of_a_study_changes_with_what_matters_and_with_nothing_else(vit):
    one = vit
    same = study("vit_tiny", "sgd")
    assert one.fingerprint() == same.fingerprint()
    assert one.fingerprint() == replace(one, train=replace(one.train, rounds=99)).fingerprint()
    for changed in (
        one.with_planner("fedavg"),
        replace(one, server=Server(1e9)),
        replace(one, train=replace(one.train, lr=0.5)),
        replace(one, fleet=one.fleet.replace(compute=np.full(3, 7e9))),
        study("vit_tiny", "adam"),
    ):
        assert changed.fingerprint() != one.fingerprint()
