"""A session whose cut moves between two mini-batches ends with the bits of FedAvg."""

from functools import lru_cache
from itertools import permutations

import pytest
import torch
from moving_server import STEPS, bare_ends, job_of, trained

from cutwater.base.errors import RunError
from cutwater.train.aggregate import weights_sha256
from cutwater.train.kept_side import SideState, give
from cutwater.train.movable import Crossing, why_fixed, why_not
from cutwater.train.session import Task

LAYERS = 6
THOROUGHLY = ("momentum", "adam", "adam in parts, clipped")
"""What is tried at every moment; the others at one for each pair."""
PAIRS = list(permutations(range(1, LAYERS), 2))
MANNERS = {
    "momentum": ("sgd", {"momentum": 0.9}, {}),
    "adam": ("adam", {}, {}),
    "adam in parts, clipped": ("adam", {}, {"micro_batches": 3, "clip": 0.05}),
    "momentum, rates by step": (
        "sgd",
        {"momentum": 0.9, "weight_decay": 0.1},
        {"micro_batches": 2, "rates": lambda step: 1.0 / (1 + step)},
    ),
    "nadam": ("nadam", {}, {"clip": 0.05}),
    "asgd": ("asgd", {}, {}),
}


@lru_cache
def job_by(manner):
    optimizer, options, how = MANNERS[manner]
    return job_of(optimizer, options, **how)


@lru_cache
def fedavg(manner):
    return weights_sha256(trained(job_by(manner), LAYERS))


@pytest.mark.parametrize("manner", MANNERS)
def test_every_pair_of_cuts_at_every_moment_gives_the_bits_of_fedavg(manner):
    job = job_by(manner)
    for place, (cut, to) in enumerate(PAIRS):
        for moment in range(1, STEPS) if manner in THOROUGHLY else (1 + place % (STEPS - 1),):
            found = weights_sha256(trained(job, cut, {moment: to}))
            assert found == fedavg(manner), f"from {cut} to {to} after {moment} steps"


@pytest.mark.parametrize("path", [(3, 1, 5, 2), (1, 4, 1, 4), (4, 5, 3, 1)])
def test_a_cut_may_move_again_and_again(path):
    first, *others = path
    job = job_by("adam in parts, clipped")
    moves = {moment + 1: to for moment, to in enumerate(others)}
    assert weights_sha256(trained(job, first, moves)) == fedavg("adam in parts, clipped")


def task_of(**how):
    return Task(**{"client": "k", "round": 1, "cut": 3, "seed": 7, "lr": 0.05, "samples": 6, **how})


class Listing(torch.optim.SGD):
    """Keeps a list of every weight."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one]["seen"] = [1]


def by_groups(parameters, lr):
    return torch.optim.SGD([{"params": [one], "lr": lr} for one in parameters])


@pytest.mark.parametrize(
    ("how", "optimizer", "why"),
    [
        ({"cut": LAYERS}, "sgd", "whole model"),
        ({"second_cut": 4}, "sgd", "three parts"),
        ({"once": True}, "sgd", "go up once"),
        ({"down": "int8"}, "sgd", "codec 'int8' is lossy"),
        ({}, Listing, "more than tensors and numbers"),
        ({}, by_groups, "one group"),
        ({"up": "lossless"}, "adafactor", None),
    ],
)
def test_one_rule_says_which_sessions_stay_where_they_are(how, optimizer, why):
    found = why_fixed(job_of(optimizer, {}), task_of(**how))
    assert found is None if why is None else why in found


def test_a_cut_moves_to_another_below_the_last_between_layers_that_learn():
    job = job_of("sgd", {})
    assert [to for to in range(LAYERS + 1) if why_not(job, task_of(), to) is None] == [1, 2, 4, 5]
    job.model.module[4].requires_grad_(False)
    assert "do not learn" in why_not(job, task_of(), 5)
    assert why_not(job, task_of(), 1) is None


def written(job, task, to):
    side = job.client_side(task)
    for number in range(2):
        smashed = side.forward(number, (torch.randn(4, 1, 5, 5),))
        side.backward([torch.ones_like(one) for one in smashed])
    return give(side, job.between(task.cut, to))


def test_what_came_is_as_both_ends_know_it_beforehand_or_refused():
    job, task = job_of("adam", {}), task_of()
    crossing, came = Crossing.of(job, task, 1), written(job, task, 1)
    crossing.check(came)
    assert came.tensors.keys() == {*crossing.weights, *crossing.state}
    name = "half/2.weight"

    def without(name):
        return {key: one for key, one in came.tensors.items() if key != name}

    wrong = [
        (SideState(without(name), came.plain), "lack '2.weight'"),
        (SideState({**came.tensors, name: torch.zeros(3)}, came.plain), "but it must be"),
        (SideState({**came.tensors, "half/0.weight": torch.zeros(3)}, came.plain), "unknown tensor"),
        (SideState(came.tensors, {}), "not as it is written"),
        (SideState(came.tensors, {**came.plain, "step": "1"}), "not as it is written"),
        (SideState(came.tensors, {**came.plain, "optimizer": {"state": 3}}), "not as it is written"),
    ]
    for layers, why in wrong:
        with pytest.raises(RunError, match=why):
            crossing.check(layers)


def test_layers_whose_optimizer_cannot_be_written_down_do_not_move():
    job = job_of(Listing, {})
    with pytest.raises(RunError, match="can't move"):
        written(job, task_of(), 1)


def test_what_moves_is_what_lies_between_two_cuts():
    job = job_of("sgd", {})
    norms = {
        f"4.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert job.between(3, 5).keys() == job.between(5, 3).keys() == norms | {"4.0.weight", "4.0.bias"}
    assert not job.between(3, 4)


class Fading(torch.optim.SGD):
    """Counts its steps in its group, and in a plain number beside every weight."""

    def __init__(self, params, lr):
        super().__init__(params, lr, momentum=0.9)
        self.param_groups[0]["count"] = 0

    def step(self, closure=None):
        (group,) = self.param_groups
        group["count"] += 1
        for one in group["params"]:
            times = self.state[one].get("times", 0) + 1
            self.state[one]["times"] = times
            one.grad.div_(times * group["count"])
        super().step(closure)


def test_an_optimizer_of_ones_own_moves_with_its_numbers():
    job = job_of(Fading, {})
    whole = weights_sha256(trained(job, LAYERS))
    assert {weights_sha256(trained(job, 4, {2: to})) for to in (1, 5)} == {whole}
    assert {weights_sha256(trained(job, cut, {3: 4})) for cut in (1, 5)} == {whole}


@pytest.mark.parametrize("optimizer", ["sgd", Fading])
def test_a_side_that_had_nothing_to_train_goes_on_with_the_rates_and_groups_of_the_other(optimizer):
    job = job_of(optimizer, {}, rates=lambda step: 1.0 / (1 + step), make=bare_ends)
    whole = weights_sha256(trained(job, 4, make=bare_ends))
    for cut, to in permutations((1, 2, 3), 2):
        assert weights_sha256(trained(job, cut, {2: to}, make=bare_ends)) == whole, (cut, to)
