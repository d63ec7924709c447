"""A study refuses what can't be trained before the first round, and takes what torch.optim has."""

import numpy as np
import pytest
import torch
from collecting import run
from small_study import small_clients, small_data, small_model, small_study
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from cutwater.base.errors import (
    CutwaterError,
    DataError,
    FileFormatError,
    PlanError,
    RunError,
    ScenarioError,
)
from cutwater.base.schema import read
from cutwater.data.custom import from_datasets
from cutwater.data.partition import Partition
from cutwater.execute.local import sensible_workers, usable_cores
from cutwater.plan.session import Session
from cutwater.profile.optimizers import OPTIMIZER_STATE
from cutwater.scenario.settings import DataSettings, TrainSettings
from cutwater.train.lookup import find_optimizer, named_loss

OPTIMIZERS = sorted(
    name.lower()
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and name != "Optimizer"
)
REFUSED = ("lbfgs", "sparseadam", "muon")


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in REFUSED])
def test_every_optimizer_trains_to_the_same_bits_wherever_the_model_is_cut(name):
    study = small_study(train={"optimizer": name, "lr": 1e-3, "momentum": 0.0, "rounds": 2})
    whole = [step.record.weights_sha256 for step in run(study.with_planner("fedavg"))]
    assert [step.record.weights_sha256 for step in run(study.with_planner("random", seed=3))] == whole
    assert whole[0] != whole[1]


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in REFUSED])
def test_the_memory_of_a_cut_counts_what_the_optimizer_keeps(name):
    weight = nn.Parameter(torch.randn(64, 64))
    optimizer = find_optimizer(TrainSettings(optimizer=name, lr=1e-3))(1e-3)([weight])
    weight.grad = torch.randn(64, 64)
    optimizer.step()
    kept = sum(value.numel() for value in optimizer.state[weight].values() if torch.is_tensor(value))
    # Counters of a step are a few numbers whatever the size.
    assert round(kept / weight.numel(), 2) <= OPTIMIZER_STATE[name] <= 2


def adam(**options):
    return {"optimizer": "adam", "momentum": 0.0, "optimizer_options": options}


def test_momentum_counts_in_the_memory_of_a_cut():
    plain, momentum = (small_study(train={"momentum": m}).profile for m in (0.0, 0.9))
    assert (plain.optimizer, momentum.optimizer) == ("sgd", "momentum")
    more = momentum.column("client_memory_bits") - plain.column("client_memory_bits")
    assert list(more) == list(plain.column("client_bits"))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": "sdg"}, "'sdg' is unknown"),
        ({"optimizer": "lbfgs"}, "line search"),
        ({"optimizer": "adam", "momentum": 0.9}, "refuses lr"),
        ({"optimizer": "muon", "momentum": 0.9}, "'muon' can't take a step on a matrix and a vector"),
        (adam(lr=0.1), "has lr = 0.1, but the learning rate is lr of"),
        (adam(name="x"), "has name = 'x', but the optimizer is named by optimizer of"),
        (adam(clip_value=1), "has clip_value = 1, but clipping is clip_value of"),
        (adam(params=[]), "leave it out"),
        (adam(betas=[0.9]), r"'adam' can't take a step .* with {'betas': \[0.9\]}"),
        (adam(betas=[0.9, 0.9, 0.9]), "'adam' can't take a step"),
        (adam(capturable=True), "'adam' can't take a step"),
        (adam(differentiable=True), "'adam' can't take a step"),
        ({"clip_value": 1e300}, r"'sgd' can't take a step .*'clip_value': 1e\+300"),
        ({"optimizer_options": {"nesterov": True}, "momentum": 0.0}, "[Nn]esterov"),
        ({"loss": "cross_entropie"}, "did you mean 'cross_entropy'"),
        ({"loss": "no.such.module:loss"}, "can't be imported"),
        ({"loss": "math:pi"}, "is float, but must be a function"),
        ({"loss": "mse_loss"}, "can't be computed from the model's output"),
        ({"loss": "small_study:small_clients"}, "can't be computed|must be one number"),
        ({"device": "tpu9"}, "device 'tpu9' can't be used here"),
        ({"device": "meta"}, "device 'meta' can't be used here"),
        ({"device": "hpu"}, "device 'hpu' can't be used here"),
        ({"device": "privateuseone"}, "device 'privateuseone' can't be used here"),
        ({"clients_per_round": 7}, "clients_per_round is 7, but the scenario has 6"),
        ({"quorum": 7}, "quorum is 7, but there are 6 clients"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_settings_that_cannot_be_trained_are_one_sentence_before_the_first_round(train, message):
    with pytest.raises(CutwaterError, match=message) as caught:
        small_study(train=train)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["gradient_clip_val", "max_grad_norm", "grad_clip", "clip_grad_norm"])
def test_other_names_of_clipping_by_the_global_norm_lead_to_it(key):
    with pytest.raises(ScenarioError, match=f"{key} can't be used: clipping by the global norm is clip_norm"):
        read(TrainSettings, {key: 1.0})


def test_a_loss_of_each_sample_is_refused():
    with pytest.raises(RunError, match=r"loss of a mini-batch is \[2\], but must be one number"):
        small_study(loss=lambda output, labels: F.cross_entropy(output, labels, reduction="none"))


def test_a_client_without_samples_is_named():
    data = from_datasets([(torch.randn(6), k % 3) for k in range(5)], [(torch.randn(6), 0)], classes=3)
    with pytest.raises(DataError, match="client 'c5' would have no samples"):
        small_study(data=data)


def test_a_batch_larger_than_a_clients_data_is_refused():
    with pytest.raises(DataError, match="batch_size is 21, but client 'c0' has 20 samples to train on"):
        small_study(session=Session(steps=1, batch_size=21))


def test_local_tests_are_not_trained_on():
    study = small_study(share_out=DataSettings(partition="iid", local_test=0.25))
    assert list(study.fleet.samples) == [len(study.partition[name].train) for name in study.fleet.names]
    assert study.fleet.samples[0] == 15


def test_labels_outside_the_classes_are_refused():
    samples = [(torch.randn(6), k % 3) for k in range(30)]
    with pytest.raises(DataError, match="label 2, but with 2 classes"):
        from_datasets(samples, samples, classes=2)
    with pytest.raises(DataError, match="tells 3 classes apart, but 'clusters' has 5"):
        small_study(data=small_data(classes=5))


def test_a_study_leaves_the_mode_and_the_weights_of_a_model_alone():
    model = small_model().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small_study(model=model)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_a_run_leaves_the_mode_and_the_weights_of_a_model_alone(workers, fails, changed):
    def callback(_):
        if fails:
            raise KeyError("a callback of the user's")

    model = small_model()
    model[1].eval()
    study = small_study(model=model, train={"rounds": 2})
    if changed:
        nn.init.ones_(model[0].weight)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    if fails:
        with pytest.raises(KeyError):
            run(study, workers=workers, callbacks=[callback])
    else:
        run(study, workers=workers, callbacks=[callback])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


class Counting(nn.Linear):
    """A layer with a state that is no tensor."""

    def get_extra_state(self):
        return {"calls": 3}

    def set_extra_state(self, state):
        pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(Counting(6, 3)), "state has '0._extra_state', which is dict, but only tensors"),
        (small_model().requires_grad_(False), "no parameter that requires a gradient"),
        (nn.Sequential(nn.Tanh(), nn.Flatten()), "no parameter that requires a gradient"),
    ],
    ids=["extra state", "frozen", "without parameters"],
)
def test_a_model_that_cannot_be_trained_is_one_sentence(model, message):
    with pytest.raises(RunError, match=message) as caught:
        small_study(model=model, data=small_data())
    assert "\n" not in str(caught.value)


def test_named_losses():
    assert named_loss("cross_entropy") is F.cross_entropy
    assert named_loss("torch.nn.functional:nll_loss") is F.nll_loss


def test_workers_are_no_more_than_the_clients_of_a_round_or_the_cores():
    assert sensible_workers(small_study(train={"clients_per_round": 1})) == 1
    assert sensible_workers(small_study()) == min(usable_cores(), 6)


def test_all_clients_take_part_where_no_number_is_given():
    study = small_study(train={"rounds": 1})
    assert run(study)[0].record.clients == tuple(client.name for client in small_clients())


def test_the_fingerprint_sees_what_has_no_weights():
    quiet, noisy = small_model(), small_model()
    noisy[2][1].p = 0.4
    assert small_study(model=quiet).fingerprint() == small_study().fingerprint()
    assert small_study(model=noisy).fingerprint() != small_study().fingerprint()


def test_the_fingerprint_sees_what_a_trace_says_and_not_where_it_is(tmp_path):
    def of(folder, compute):
        path = tmp_path / folder / "trace.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"round,client,compute,rate\n2,c0,{compute} kFLOPS,1 kB/s\n")
        return small_study(conditions={"change": "trace", "trace": str(path)}).fingerprint()

    here = of("here", 7)
    assert of("there", 7) == here
    assert of("here", 8) != here


class Drawing(Dataset):
    """Samples, at times with noise from a generator of their own, which nobody else seeds."""

    def __init__(self, shift=0.0, noise=0.0):
        self.shift, self.noise, self.own = shift, noise, np.random.default_rng()

    def __len__(self):
        return 140

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError
        noise = self.own.random() if self.own.random() < self.noise else 0.0
        return torch.full((6,), float(index)) + self.shift + noise, index % 3


@pytest.mark.parametrize(("noise", "seen"), [(0.0, True), (0.3, False)])
def test_the_fingerprint_sees_other_inputs_unless_they_are_drawn(noise, seen):
    one, same, other = (
        small_study(data=from_datasets(Drawing(shift, noise), Drawing())).fingerprint() for shift in (0, 0, 1)
    )
    assert one == same
    assert (one != other) is seen


def test_a_trace_of_a_client_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("round,client,compute,rate\n1,ghost,1 kFLOPS,1 kB/s\n")
    with pytest.raises(FileFormatError, match="rows of client 'ghost', but there is no client of that name"):
        small_study(conditions={"change": "trace", "trace": str(path)})
    with pytest.raises(FileFormatError, match="can't be read"):
        small_study(conditions={"change": "trace", "trace": str(tmp_path / "none.csv")})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"planner": "exakt"}, "there is no planner 'exakt': did you mean 'exact'"),
        ({"planner_options": {"left": "none"}}, "planner 'exact' has no option 'left'"),
    ],
)
def test_a_planner_that_is_not_there_is_refused_before_the_first_round(asked, said):
    with pytest.raises(PlanError, match=said):
        small_study(**asked)


class Learned(nn.Module):
    """A loss with a weight of its own."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, output, labels):
        return F.cross_entropy(output * self.temperature, labels)


def test_a_loss_that_would_have_to_be_trained_is_refused():
    with pytest.raises(RunError, match="the loss has a parameter 'temperature' that requires a gradient"):
        small_study(loss=Learned())
    fixed = Learned().requires_grad_(False)
    assert run(small_study(loss=fixed, train={"rounds": 1}))[0].record.loss


@pytest.mark.parametrize("loss", ["cross_entropy", "", 0])
def test_what_is_no_function_is_refused_as_a_loss(loss):
    with pytest.raises(RunError, match=f"loss is {loss!r}, but must be a function"):
        small_study(loss=loss)


def test_a_partition_of_ones_own_is_trained_on_and_known_again():
    clients = small_clients(2, samples=20)
    own = Partition.of({"c0": range(20), "c1": range(50, 71)})
    study = small_study(clients=clients, share_out=own)
    assert study.partition is own
    assert [step.record.weights_sha256 for step in run(study)] == [
        step.record.weights_sha256 for step in run(study.with_planner("fedavg"))
    ]
    other = Partition.of({"c0": range(20), "c1": range(51, 72)})
    assert small_study(clients=clients, share_out=other).fingerprint() != study.fingerprint()
    with pytest.raises(DataError, match="differ in 'c2'"):
        small_study(share_out=own)


def test_a_study_and_its_rounds_print_without_their_weights():
    study = small_study(train={"rounds": 1})
    assert "tensor(" not in repr(study)
    assert "tensor(" not in repr(run(study))


OWN_OPTIMIZER = """
import torch

class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr, scale=1.0):
        super().__init__(params, {"lr": lr, "scale": scale})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"] * group["scale"])

def no_class(params, lr):
    return Signs(params, lr)
"""


def test_an_optimizer_of_ones_own_trains_to_the_same_bits_wherever_the_model_is_cut(tmp_path, monkeypatch):
    (tmp_path / "their_optimizer.py").write_text(OWN_OPTIMIZER)
    monkeypatch.chdir(tmp_path)
    own = {"optimizer": "their_optimizer:Signs", "momentum": 0.0, "optimizer_options": {"scale": 0.1}}
    study = small_study(train=own)
    whole = [step.record.weights_sha256 for step in run(study.with_planner("fedavg"))]
    assert [step.record.weights_sha256 for step in run(study.with_planner("random", seed=3))] == whole
    assert whole != [step.record.weights_sha256 for step in run(small_study())]
    assert study.profile.optimizer == "adam"
    for name, said in {
        "their_optimizer:Sines": "can't be imported .*no attribute 'Sines'",
        "their_optimizer:no_class": "must be a class of torch.optim.Optimizer",
        "no_such_module:Signs": "can't be imported .*No module named",
    }.items():
        with pytest.raises(RunError, match=said):
            small_study(train={**own, "optimizer": name})
    with pytest.raises(RunError, match=r"refuses lr = 0\.05 with .*scales"):
        small_study(train={**own, "optimizer_options": {"scales": 2}})


def test_a_schedule_of_ones_own_trains_as_one_of_ours_would_and_is_tried_before(tmp_path, monkeypatch):
    (tmp_path / "their_rates.py").write_text(
        "def halving(round_):\n    return 0.5 ** (round_ - 1) if round_ < 7 else -1\n"
    )
    monkeypatch.chdir(tmp_path)
    own, ours = {"schedule": "their_rates:halving"}, {"schedule": "exponential", "gamma": 0.5}
    theirs, known, constant = (
        [step.record.weights_sha256 for step in run(small_study(train=train))] for train in (own, ours, {})
    )
    assert theirs == known
    assert theirs != constant
    with pytest.raises(RunError, match=r"'their_rates:halving' gave -1\.0 for round 7"):
        small_study(train={**own, "rounds": 7})
