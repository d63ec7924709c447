"""The cost of every cut: what a real split step runs, whatever the model."""

import json
import os
import subprocess
import sys
import textwrap
from inspect import Parameter, signature

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cutwater
from cutwater.base.errors import CutwaterError, FileFormatError, ModelError
from cutwater.model import zoo
from cutwater.profile.count import load_model, profile_layered, profile_model
from cutwater.profile.fit import fit
from cutwater.profile.flops import EXACT, OperatorCounter
from cutwater.profile.options import RESERVED
from cutwater.profile.values import Profile

CASES = {
    "cnn": ("1x12x12", {}),
    "efficientnet_v2_s": ("1x8x8", {}),
    "mlp": ("1x8x8", {}),
    "resnet18": ("2x9x7", {}),
    "text_transformer": ("9", {"width": 32}),
    "vit_tiny": ("1x8x8", {"width": 24, "patch": 2, "depth": 3}),
}


@pytest.fixture(scope="module")
def v2_m():
    return profile_model("efficientnet_v2_m", "1x28x28", 10, count="paper")


def test_the_papers_model_has_59_layers_and_its_determination_coefficients(v2_m):
    fitted = fit(v2_m)
    assert len(v2_m) == 59
    assert round(fitted.r2_model, 4) == 0.9482
    assert round(fitted.r2_compute, 4) == 0.9659
    assert round(fitted.r2_smashed, 3) == 0.906


def test_the_papers_model_has_its_mult_adds_and_smashed_data(v2_m):
    assert v2_m.cuts[-1].client_forward_flops / 2 == pytest.approx(0.11245e9, rel=1e-4)
    assert v2_m.kappa == 4.7
    assert v2_m.total_flops == pytest.approx(5.7 * v2_m.cuts[-1].client_forward_flops)
    elements = {cut.cut: cut.smashed_bits // 32 for cut in v2_m.cuts}
    assert (elements[1], elements[10], elements[59]) == (24 * 14 * 14, 80 * 4 * 4, 10)


def step_by_step(layered, x, cut):
    """FLOPs of a real split step, in the order of the fields of a Cut."""
    client, server = layered.split(cut)
    counters = []

    def counted(function):
        with OperatorCounter(EXACT) as counter:
            result = function()
        counters.append(counter.flops)
        return result

    smashed = counted(lambda: client(x))
    onward = smashed.detach().requires_grad_()
    loss = F.cross_entropy(counted(lambda: server(onward)), torch.zeros(len(x), dtype=torch.int64))
    counted(loss.backward)
    counted(lambda: smashed.backward(onward.grad))
    client_forward, server_forward, server_backward, client_backward = counters
    return client_forward, client_backward, server_forward, server_backward


@pytest.mark.parametrize("name", CASES)
def test_the_count_is_what_a_real_split_step_runs(name):
    spec, options = CASES[name]
    layered, x = load_model(name, spec, 5, 2, **options)
    profile = profile_layered(layered, x)
    for cut in {*range(1, len(profile), 1 if len(profile) < 20 else 9), len(profile) - 1}:
        row = profile.cuts[cut - 1]
        counted = (
            row.client_forward_flops,
            row.client_backward_flops,
            row.server_forward_flops,
            row.server_backward_flops,
        )
        assert tuple(2 * amount for amount in counted) == step_by_step(layered, x, cut)


class Skipping(nn.Module):
    """Not a row of layers: a skip, operations between the modules, a constant."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.inner = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.last = nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.last((x + 2 * F.silu(self.inner(x))).mean((2, 3)))


def test_the_count_of_a_discovered_model_is_what_its_real_split_step_runs():
    x = torch.randn(2, 1, 6, 6)
    layered = cutwater.layered(Skipping(), x)
    assert len(layered) > 1
    for row in profile_layered(layered, x).cuts[:-1]:
        counted = (row.client_forward_flops, row.client_backward_flops)
        assert tuple(2 * amount for amount in counted) == step_by_step(layered, x, row.cut)[:2]


def test_several_tensors_that_cross_a_cut_are_all_sent():
    x = torch.randn(2, 1, 6, 6)
    layered = cutwater.layered(Skipping(), x, granularity="fine")
    profile = profile_layered(layered, x)
    widths = set()
    for row in profile.cuts[:-1]:
        smashed = layered.split(row.cut).client(x)
        crossing = smashed if isinstance(smashed, tuple) else (smashed,)
        widths.add(len(crossing))
        assert row.smashed_bits == 32 * sum(tensor.numel() for tensor in crossing) // 2
        assert row.client_forward_flops + row.server_forward_flops == profile.cuts[-1].client_forward_flops
    assert widths == {1, 2}, "the skip crosses together with the branch"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", ["exact", "paper"])
def test_client_and_server_add_up_to_the_whole_model_at_every_cut(name, count):
    spec, options = CASES[name]
    profile = profile_model(name, spec, 5, count=count, **options)
    client = profile.column("client_forward_flops") + profile.column("client_backward_flops")
    server = profile.column("server_forward_flops") + profile.column("server_backward_flops")
    assert client + server == pytest.approx(profile.total_flops)
    assert server[-1] == 0
    assert (client[1:] >= client[:-1]).all()
    with torch.device("meta"):
        parameters = sum(p.numel() for p in zoo.build(name, spec, 5, **options).parameters())
    assert profile.total_bits == 32 * parameters


class NeedsNumbers(nn.Module):
    """Can't run on tensors without memory: it looks at a value."""

    def forward(self, x):
        assert x.flatten()[0].item() == x.flatten()[0].item()
        return x


@pytest.mark.parametrize("name", CASES)
def test_counting_without_memory_equals_counting_with_it(name):
    spec, options = CASES[name]
    layered, x = load_model(name, spec, 5, 2, **options)
    light = nn.Sequential(nn.Identity(), *layered.module)
    heavy = nn.Sequential(NeedsNumbers(), *layered.module)
    settings = {"optimizer": "adam", "model": "same"}
    expected = profile_layered(cutwater.layered(light), x, **settings)
    assert profile_layered(cutwater.layered(heavy), x, **settings) == expected


@given(batch=st.integers(2, 9))
@settings(deadline=None, max_examples=6)
def test_amounts_are_for_one_sample_whatever_the_batch(batch):
    def amounts(size):
        cuts = profile_model("cnn", "1x10x10", batch_size=size).cuts
        return [(c.client_bits, c.client_forward_flops, c.smashed_bits, c.gradient_bits) for c in cuts]

    assert amounts(batch) == amounts(2)


def test_profiling_leaves_the_model_and_the_generator_as_they_are():
    layered, x = load_model("cnn", "1x12x12", 10, 4)
    layered.module.eval()
    F.cross_entropy(layered.module(x), torch.zeros(4, dtype=torch.int64)).backward()
    before = {key: value.clone() for key, value in layered.module.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in layered.module.parameters()]
    generator = torch.get_rng_state()
    profile_layered(layered, x)
    assert not layered.module.training
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in layered.module.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(layered.module.parameters(), gradients, strict=True))


def test_a_model_on_meta_and_the_same_model_with_weights_have_one_profile():
    assert profile_model("cnn", "1x12x12", 10, batch_size=4) == profile_layered(
        *load_model("cnn", "1x12x12", 10, 4), model="cnn", input="1x12x12", classes=10
    )


def test_a_frozen_beginning_gets_no_gradient_back():
    model = nn.Sequential(nn.Linear(8, 6).requires_grad_(False), nn.Linear(6, 4), nn.Linear(4, 2))
    first, second, _ = profile_layered(cutwater.layered(model), torch.zeros(2, 8)).cuts
    assert (first.client_bits, first.client_backward_flops, first.gradient_bits) == (0, 0, 0)
    assert first.smashed_bits == 6 * 32
    # The second layer is the first that learns: it makes no gradient for its input.
    assert second.client_backward_flops == 2 * 6 * 4
    assert second.gradient_bits == second.smashed_bits == 4 * 32


def test_half_precision_halves_what_is_sent():
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2)).to(torch.bfloat16)
    cut, _ = profile_layered(cutwater.layered(model), torch.zeros(2, 8, dtype=torch.bfloat16)).cuts
    assert (cut.client_bits, cut.smashed_bits) == (16 * 54, 16 * 6)


def test_tied_weights_count_once_and_rule_their_cuts_out():
    shared = nn.Linear(8, 8)
    model = nn.Sequential(shared, nn.Linear(8, 8), shared, nn.Linear(8, 2))
    cuts = profile_layered(cutwater.layered(model), torch.zeros(2, 8)).cuts
    assert [cut.client_bits // 32 for cut in cuts] == [72, 144, 144, 162]
    assert [cut.ruled_out is None for cut in cuts] == [False, False, True, True]


def test_constants_that_are_no_buffers_are_understood():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.ones(8)
            self.inner = nn.Linear(8, 2)

        def forward(self, x):
            return self.inner(x + self.shift + torch.arange(8))

    cut = profile_layered(cutwater.layered(nn.Sequential(Shifted())), torch.zeros(2, 8)).cuts[0]
    assert cut.client_forward_flops == 2 * 8 * 2


def test_sizes_of_a_profile_may_be_numpys_numbers():
    counted = profile_model("cnn", "1x12x12", np.int64(10), batch_size=np.int32(4))
    assert counted == profile_model("cnn", "1x12x12", 10, batch_size=4)
    assert Profile.from_json(json.loads(json.dumps(counted.to_json()))) == counted


def test_a_profile_reads_back_equal_from_json(v2_m):
    assert Profile.from_json(json.loads(json.dumps(v2_m.to_json()))) == v2_m


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("batch_size", value) for value in (None, 0, -1, 1.5, True, "32")),
        *((text, value) for text in ("model", "input", "count", "optimizer") for value in ([], None, 3, {})),
        *(("kappa", value) for value in ("x", None, -1, float("nan"), float("inf"), 10**400, True)),
        *(("classes", value) for value in ("ten", 1.5, [])),
    ],
)
def test_a_spoiled_profile_is_refused_by_the_name_of_its_field(v2_m, field, value):
    with pytest.raises(FileFormatError, match=rf"^p\.json {field} is .*, but must be "):
        Profile.from_json(v2_m.to_json() | {field: value}, "p.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("client_bits", value) for value in (10**400, -1, "1", None, float("nan"))),
        *(("cut", value) for value in (1.0, "1", [1], None)),
        *(("name", 3), ("stage", None), ("ruled_out", 0), ("client_memory_bits", float("inf"))),
    ],
)
def test_a_spoiled_cut_of_a_profile_is_refused_by_the_name_of_its_field(v2_m, field, value):
    document = v2_m.to_json()
    document["cuts"][0] |= {field: value}
    with pytest.raises(FileFormatError, match=rf"^p\.json cuts\[0\] {field} is .*, but must be ") as told:
        Profile.from_json(document, "p.json")
    assert len(str(told.value)) < 150


@pytest.mark.parametrize("cuts", [None, 3, "cuts", [None], ["cut"], [{}], {"1": {}}, []])
def test_a_profile_without_proper_cuts_is_refused(v2_m, cuts):
    with pytest.raises(CutwaterError):
        Profile.from_json(v2_m.to_json() | {"cuts": cuts})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": "exakt"}, "did you mean 'exact'"),
        ({"optimizer": "adamm"}, "did you mean 'adam'"),
        ({"batch_size": 0}, "batch size is 0, but must be a whole number from 1 to 1,000,000,000"),
        ({"batch_size": True}, "batch size is True, but must be a whole number"),
        ({"kappa": 4.7}, "the exact count finds it itself"),
        ({"count": "paper", "kappa": 0.0}, "above zero"),
        ({"count": "paper", "kappa": float("nan")}, "finite"),
        ({"input": "0x28"}, "size of zero"),
        ({"depth": 3}, "no option 'depth'"),
        ({"device": "cpu"}, "option 'device' is no option of a model"),
        ({"batch": 3}, "option 'batch' is no option of a model"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, words):
    with pytest.raises(ModelError, match=words):
        profile_model(**{"name": "cnn", **changes})


def test_every_name_that_profiling_passes_itself_is_reserved():
    passed = {
        parameter.name
        for function in (profile_model, load_model, zoo.build, zoo.example_input)
        for parameter in signature(function).parameters.values()
        if parameter.kind is not Parameter.VAR_KEYWORD
    }
    assert passed == set(RESERVED)


def test_kappa_scales_the_papers_backward_pass():
    low, high = (profile_model("cnn", count="paper", kappa=kappa) for kappa in (1.0, 3.0))
    assert high.column("client_backward_flops") == pytest.approx(3 * low.column("client_backward_flops"))
    assert low.column("client_forward_flops") == pytest.approx(high.column("client_forward_flops"))


def test_a_layer_that_fails_is_named_with_the_reason():
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(5, 2))
    with pytest.raises(ModelError, match=r"layer 2 \('1'\) fails: RuntimeError"):
        profile_layered(cutwater.layered(model), torch.zeros(2, 8))


def test_examples_must_hold_a_batch():
    layered = cutwater.layered(nn.Sequential(nn.Linear(8, 6)))
    for nothing in ((), {}, torch.tensor(1.0)):
        with pytest.raises(ModelError, match="batch"):
            profile_layered(layered, nothing)


def test_a_users_function_that_needs_numbers_is_built_for_real(tmp_path, monkeypatch):
    (tmp_path / "needs_numbers.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def model(classes):\n"
        "    rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]\n"
        "    return nn.Sequential(nn.Linear(6, 4), *map(nn.Dropout, rates), nn.Linear(4, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    profile = profile_model("needs_numbers:model", "floats:6", 3)
    assert profile.total_bits == 32 * (28 + 15)
    assert (profile.model, profile.input, profile.classes) == ("needs_numbers:model", "floats:6", 3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and peaks are read the Linux way")
def test_a_billion_parameters_are_profiled_within_one_gibibyte():
    program = """
        import resource
        gibibyte = 2**30
        resource.setrlimit(resource.RLIMIT_DATA, (gibibyte, gibibyte))
        from cutwater.profile.count import profile_model
        profile = profile_model("text_transformer", "512", 2, width=2048, depth=20, heads=16)
        assert profile.total_bits > 32e9, profile.total_bits
        assert len(profile) == 22
        # getrusage would report the parent's peak, which a child inherits.
        status = dict(line.split(":") for line in open("/proc/self/status"))
        print(int(status["VmHWM"].split()[0]) * 1024)
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2**30
