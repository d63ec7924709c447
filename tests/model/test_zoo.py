"""The zoo: the published models, as the paper's layers, for any input and any number of classes."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.model import zoo
from cutwater.model.zoo.parts import Residual, StochasticDepth

IMAGE_MODELS = ["cnn", "efficientnet_v2_s", "mlp", "resnet18", "resnet50", "vit_tiny"]
"""One of each kind."""


def on_meta(name, input, classes=10, **options):
    with torch.device("meta"):
        return zoo.build(name, input, classes, **options)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "layers", "published"),
    [
        ("efficientnet_v2_s", 1 + 40 + 1, 21_458_488),
        ("efficientnet_v2_m", 1 + 57 + 1, 54_139_356),
        ("efficientnet_v2_l", 1 + 79 + 1, 118_515_272),
        ("resnet18", 1 + 8 + 1, 11_689_512),
        ("resnet34", 1 + 16 + 1, 21_797_672),
        ("resnet50", 1 + 16 + 1, 25_557_032),
        ("vit_tiny", 1 + 12 + 1, 5_717_416),
    ],
)
def test_published_models_have_the_published_number_of_parameters(name, layers, published):
    model = on_meta(name, "3x224x224", 1000)
    assert parameters(model) == published
    assert len(model) == layers


def test_buffers_of_v2_m_are_the_running_statistics_alone():
    model = on_meta("efficientnet_v2_m", "3x224x224", 1000)
    kinds = {name.rpartition(".")[2] for name, _ in model.named_buffers()}
    assert kinds == {"running_mean", "running_var", "num_batches_tracked"}


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_is_a_sequential_whose_children_are_the_layers(name):
    model = on_meta(name, "16" if name == "text_transformer" else "1x28x28")
    assert isinstance(model, nn.Sequential)
    layered = cutwater.layered(model)
    assert [layer.name for layer in layered.layers] == [child for child, _ in model.named_children()]
    assert all(list(child.parameters()) for child in model), "a layer without weights would be a useless cut"


@settings(deadline=None, max_examples=12)
@given(
    name=st.sampled_from(IMAGE_MODELS),
    channels=st.integers(1, 4),
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    classes=st.integers(1, 20),
)
def test_image_models_take_any_size_any_channels_and_any_number_of_classes(
    name, channels, height, width, classes
):
    spec = f"{channels}x{height}x{width}"
    model = on_meta(name, spec, classes)
    assert model(zoo.example_input(name, spec, 2, device="meta")).shape == (2, classes)


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18", "vit_tiny", "efficientnet_v2_s"])
def test_eight_by_eight_digits_train(name):
    torch.manual_seed(0)
    model = zoo.build(name, "1x8x8", 10)
    loss = nn.functional.cross_entropy(model(zoo.example_input(name, "1x8x8", 4)), torch.arange(4))
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_text_transformer_reads_shorter_sequences_too():
    model = zoo.build("text_transformer", "12", 3, vocabulary=50, width=16, depth=2, heads=2)
    tokens = zoo.example_input("text_transformer", "12", 4, vocabulary=50)
    assert tokens.dtype == torch.int64
    assert 0 <= tokens.min() <= tokens.max() < 50
    assert model(tokens).shape == model(tokens[:, :5]).shape == (4, 3)


def test_a_transformer_of_a_billion_parameters_can_be_built_on_meta():
    model = on_meta("text_transformer", "512", 2, width=2048, depth=20, heads=16)
    assert parameters(model) > 1e9
    assert len(model) == 22


def test_options_reach_the_model():
    model = on_meta("mlp", "64", 10, widths=[32, 32, 32])
    assert [child for child, _ in model.named_children()] == ["hidden_1", "hidden_2", "hidden_3", "head"]
    assert parameters(on_meta("mlp", "floats:64", 10, widths=[])) == 64 * 10 + 10
    assert on_meta("resnet18", "3x32x32", small_stem=True)[0](
        torch.empty(1, 3, 32, 32, device="meta")
    ).shape == (
        1,
        64,
        32,
        32,
    )


def test_efficientnet_keeps_the_originals_settings():
    model = on_meta("efficientnet_v2_m", "3x384x384", 1000)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {norm.eps for norm in norms} == {1e-3}
    assert model.head.dropout.p == 0.3
    blocks = list(model)[1:-1]
    rates = {index: b.depth.probability for index, b in enumerate(blocks) if isinstance(b, Residual)}
    assert rates == {index: 0.2 * index / 57 for index in rates}
    assert len(rates) == 51, "all blocks but the first of the six stages that change shape"


def test_convolutions_start_with_the_variance_of_he():
    torch.manual_seed(0)
    conv = zoo.build("resnet18", "3x32x32").stage4_2.branch.conv2
    assert conv.weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)


@pytest.fixture(scope="module")
def v2_m():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return zoo.build("efficientnet_v2_m", "1x28x28", 10)


def test_residual_blocks_of_efficientnet_start_as_identities(v2_m):
    blocks = [module for module in v2_m.modules() if isinstance(module, Residual)]
    for block in blocks:
        norms = [module for module in block.branch.modules() if isinstance(module, nn.BatchNorm2d)]
        assert not norms[-1].weight.any()
        assert all(norm.weight.eq(1).all() for norm in norms[:-1])
    last = blocks[-1].train()
    x = torch.randn(2, 512, 2, 2)
    assert torch.equal(last(x), x)


def test_grouped_convolutions_of_efficientnet_start_by_the_fan_out_of_one_group(v2_m):
    for module in v2_m.modules():
        if isinstance(module, nn.Conv2d) and module.groups > 1:
            assert module.weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.1)
    every = [m.weight.flatten() for m in v2_m.modules() if isinstance(m, nn.Conv2d) and m.groups > 1]
    assert torch.cat(every).std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.01)


def test_the_classifier_of_efficientnet_starts_small(v2_m):
    classifier = v2_m.head.classifier
    assert classifier.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not classifier.bias.any()


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_plain_sgd_learns_residual_nets_from_the_original_s_start(name):
    """Why their last γ is not 0: they need no identities."""
    torch.manual_seed(0)
    model = zoo.build(name, "1x8x8", 4).train()
    x, y = torch.randn(16, 1, 8, 8), torch.arange(16) % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    told = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    assert told[-1] < told[0] / 4


@given(probability=st.floats(0, 0.9), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_stochastic_depth_drops_whole_samples_and_scales_the_rest(probability, seed):
    torch.manual_seed(seed)
    drop = StochasticDepth(probability)
    x = torch.rand(16, 3, 2, 2) + 1
    factors = (drop(x) / x).flatten(1)
    assert torch.allclose(factors, factors[:, :1].expand_as(factors))
    kept = factors[:, 0] != 0
    assert torch.allclose(factors[kept], torch.tensor(1 / (1 - probability)))
    assert torch.equal(drop.eval()(x), x)


def test_stochastic_depth_keeps_the_mean():
    torch.manual_seed(0)
    mean = StochasticDepth(0.3)(torch.ones(200_000, 1)).mean().item()
    assert mean == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", zoo.names())
def test_example_inputs_are_the_same_on_every_call_and_leave_the_generator_alone(name):
    spec = "16" if name == "text_transformer" else "1x8x8"
    before = torch.get_rng_state()
    assert torch.equal(zoo.example_input(name, spec, 3), zoo.example_input(name, spec, 3))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("0x28", "size of zero"),
        ("1x0x28", "size of zero"),
        ("", "not a shape"),
        ("x28", "not a shape"),
        ("-1x28x28", "not a shape"),
        ("1x28.5x28", "not a shape"),
        ("huge", "not a shape"),
        ("pixels:28", "not a shape"),
        (28, "not a shape"),
    ],
)
def test_nonsense_shapes_are_refused_by_value(spec, words):
    with pytest.raises(ModelError, match=words) as caught:
        zoo.build("cnn", spec)
    assert str(spec) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "spec", "options", "words"),
    [
        ("text_transformer", "1x28x28", {}, "takes token ids"),
        ("cnn", "128", {}, "takes images"),
        ("cnn", "tokens:1x28x28", {}, "takes images"),
        ("mlp", "tokens:64", {}, "takes numbers"),
        ("resnet18", "28x28", {}, "takes images"),
        ("vit_tiny", "1x28x28", {"heads": 5}, "5 heads"),
        ("vit_tiny", "1x28x28", {"patch": 0}, "patch"),
        ("vit_tiny", "1x28x28", {"depth": 0}, "depth"),
        ("text_transformer", "8", {"vocabulary": 0}, "vocabulary"),
        ("cnn", "1x28x28", {"dropout": 7}, "between 0 and 1"),
        ("cnn", "1x28x28", {"width": "wide"}, "can't be built"),
        ("efficientnet_v2_s", "1x28x28", {"stochastic_depth": 1.5}, "stochastic depth"),
        ("cnn", "1x28x28", {"widht": 4}, "did you mean 'width'"),
    ],
)
def test_models_refuse_what_they_cannot_be(name, spec, options, words):
    with pytest.raises(ModelError, match=words):
        on_meta(name, spec, **options)


@pytest.mark.parametrize("classes", [0, -1, 2.5, True, None])
def test_a_number_of_classes_is_a_whole_number_from_one_on(classes):
    with pytest.raises(ModelError, match="classes"):
        zoo.build("mlp", classes=classes)


def test_a_number_of_classes_may_be_numpys():
    assert zoo.build("mlp", classes=np.int64(7))(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


def test_an_unknown_model_is_answered_with_the_nearest_name():
    with pytest.raises(ModelError, match=r"'resnet81'.*did you mean 'resnet18'"):
        zoo.build("resnet81")


@pytest.fixture
def user_models(tmp_path, monkeypatch):
    """A folder with a user's own models, as the current one."""
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def plain(): return nn.Linear(4, 2)\n"
        "def sized(input, classes, width=8): return nn.Linear(input[0], classes * width)\n"
        "def anything(**settings): return nn.Linear(len(settings), 1)\n"
        "def broken(): raise RuntimeError('no weights here')\n"
        "def not_a_model(): return 3\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_a_users_function_gets_what_it_takes(user_models):
    assert zoo.build(f"{user_models}:plain").weight.shape == (2, 4)
    assert zoo.build(f"{user_models}:sized", "5x2", 3).weight.shape == (24, 5)
    assert zoo.build(f"{user_models}:sized", "5x2", 3, width=1).weight.shape == (3, 5)
    assert zoo.build(f"{user_models}:anything").weight.shape == (1, 2)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("broken", "RuntimeError: no weights here"),
        ("not_a_model", "returned int"),
        ("number", "must be a function"),
        ("missing", "can't be imported"),
    ],
)
def test_a_users_function_that_gives_no_model_is_one_sentence(user_models, function, words):
    with pytest.raises(ModelError, match=words):
        zoo.build(f"{user_models}:{function}")


def test_a_users_module_that_does_not_exist_is_one_sentence():
    with pytest.raises(ModelError, match=r"no_such_package.*package\.module:function"):
        zoo.build("no_such_package.models:build")


def test_one_size_means_tokens_to_a_users_model_unless_it_says_otherwise():
    assert zoo.example_input("mine:model", "6", 2).dtype == torch.int64
    assert zoo.example_input("mine:model", "floats:6", 2).dtype == torch.float32
    assert zoo.example_input("mine:model", "6x2", 2).shape == (2, 6, 2)
