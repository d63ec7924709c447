"""`verify` finds that bits agree where they do, and says which tensor differs where they don't."""

from dataclasses import replace

import pytest
import torch
from small_study import small_clients, small_model, small_study
from torch import nn

from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify


def checks(study, rounds=2):
    engine = LocalTrainer(study.job(), study.test())
    try:
        return list(verify(study, engine, rounds))
    finally:
        engine.close()


def test_all_three_ways_of_training_agree():
    study = small_study()
    found = checks(study, 3)
    assert [check.round for check in found] == [1, 2, 3]
    assert all(check.agrees for check in found)
    for check in found:
        assert list(check.digests) == list(check.cuts) == ["fedavg", "exact plan", "random cuts"]
        assert len(set(check.digests.values())) == 1
        assert set(check.cuts["fedavg"]) == {len(study.model)}
    assert len({cut for check in found for cut in check.cuts["random cuts"]}) > 1
    assert len({check.digests["fedavg"] for check in found}) == 3


def test_deadlines_and_limits_do_not_get_in_the_way():
    """Whoever trains, trains in all three ways, and FedAvg is the reference even where it is impossible."""
    limited = [replace(client, rate=None, forbidden=frozenset({4})) for client in small_clients()]
    study = small_study(
        clients=limited,
        train={"deadline": 1e-3, "clients_per_round": 3, "over_selection": 0.5},
        conditions={"dropout": 0.3},
    )
    found = checks(study)
    assert all(check.agrees for check in found)
    assert all(4 not in check.cuts["random cuts"] for check in found)
    assert all(len(check.cuts["fedavg"]) == 3 for check in found)


def test_every_round_trains_whatever_drops_out_otherwise():
    study = small_study(train={"quorum": 6}, conditions={"dropout": 0.999999})
    found = checks(study)
    assert all(check.clients == tuple(study.fleet.names) for check in found)
    assert len({check.digests["fedavg"] for check in found}) == 2


class Forgetful(nn.Module):
    """Counts its calls: a model that is not a function of its inputs can't be the same wherever it is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.weight = nn.Parameter(torch.ones(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.weight * (1 + 1e-3 * self.calls)


def test_a_difference_is_found_and_its_tensor_named():
    layers = list(small_model())
    study = small_study(model=nn.Sequential(layers[0], Forgetful(), *layers[1:]))
    found = checks(study, 1)
    assert not found[0].agrees
    assert found[0].differs["exact plan"] == "0.weight"
    assert found[0].to_json()["agrees"] is False


@pytest.mark.parametrize("planner", ["splitfed", "alternating"])
def test_any_planner_can_be_verified(planner):
    (check,) = checks(small_study(planner=planner), 1)
    assert check.agrees
    assert list(check.digests)[1] == f"{planner} plan"
