"""The layers of models nobody prepared for it, and the bits of the whole at every cut."""

import copy
from contextlib import suppress
from functools import cache

import pytest
import sample_models as models
import torch
from split_checks import check_every_cut, check_joins, step, usable_cuts
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.model.randomness import RandomStream

IMAGES = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))
VECTORS = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
SEQUENCES = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(3))
TOKENS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(4))
KEEP = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0]])

CASES = {
    models.ResNet: (
        IMAGES,
        ["conv1", "bn1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "fc"],
    ),
    models.DenseNet: (
        IMAGES,
        [
            "features.conv0",
            "features.denseblock1.denselayer1",
            "features.denseblock1.denselayer2",
            "features.denseblock1.denselayer3",
            "features.transition1",
            "features.denseblock2.denselayer1",
            "features.denseblock2.denselayer2",
            "features.norm5",
            "classifier",
        ],
    ),
    models.UNet: (IMAGES, ["stem", "down.0", "down.1", "up.0", "up.1", "head"]),
    models.MaskedEncoder: ((SEQUENCES, KEEP.float()), ["embed", "blocks.0", "blocks.1", "blocks.2", "head"]),
    models.Decoder: (TOKENS, ["tokens", "positions", "blocks.0", "blocks.1", "blocks.2", "head"]),
    models.MixtureOfExperts: (
        TOKENS,
        [
            "tokens",
            "positions",
            *(f"{part}.{index}" for index in range(3) for part in ("blocks", "routers")),
            "head",
        ],
    ),
    models.Shifted: (TOKENS, ["source", "blocks.0", "blocks.1", "target", "head"]),
    models.Permuting: (IMAGES, ["patches", "norm", "blocks.0", "blocks.1", "head"]),
    models.Noisy: (VECTORS, ["first", "second", "third", "last"]),
    models.Deep: (VECTORS, ["stem", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "head"]),
    models.Quantised: (VECTORS, ["stem", "blocks.0", "blocks.1", "head"]),
    models.Frozen: (VECTORS, ["backbone.0", "backbone.1", "backbone.2", "backbone.3", "adapter", "head"]),
    models.Reversible: (VECTORS, ["stem", "blocks.0", "blocks.1", "blocks.2", "head"]),
    models.TwoTowers: (
        {"left": SEQUENCES[:, 0, :4].clone(), "right": SEQUENCES[:, 1].clone()},
        ["right.0", "right.1", "right.2", "merge", "head"],
    ),
    models.WithAuxiliary: (VECTORS, ["first", "second", "third", "head"]),
    models.Recurrent: (TOKENS, ["embed", "lstm", "gru", "head"]),
    models.TorchTransformer: (
        SEQUENCES,
        ["embed", "encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "head"],
    ),
    models.Counting: (VECTORS, ["stem", "blocks.0", "blocks.1", "head"]),
}
FINE = (
    models.ResNet,
    models.DenseNet,
    models.UNet,
    models.MaskedEncoder,
    models.Permuting,
    models.Noisy,
    models.Deep,
    models.Quantised,
    models.Frozen,
    models.Reversible,
    models.WithAuxiliary,
    models.Recurrent,
    models.Counting,
)


def make(kind, **options):
    torch.manual_seed(0)
    return kind(**options)


@cache
def found(kind):
    """The layers of a model on its case's inputs."""
    return cutwater.layered(make(kind), CASES[kind][0])


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_layers_are_the_models_own_blocks_and_every_cut_gives_the_bits_of_the_whole(kind):
    inputs, names = CASES[kind]
    layered = found(kind)
    assert [layer.name for layer in layered.layers] == names
    assert layered.exact or kind is models.Permuting  # another layout in memory takes another kernel
    assert not layered.ruled_out
    check_every_cut(layered, inputs)
    check_joins(layered)


@pytest.mark.parametrize("kind", FINE, ids=lambda kind: kind.__name__)
def test_fine_cuts_fall_inside_blocks_and_give_the_bits_of_the_whole(kind):
    inputs, names = CASES[kind]
    layered = cutwater.layered(make(kind), inputs, granularity="fine")
    assert len(layered) >= len(names)
    check_every_cut(layered, inputs, batches=(2,))
    check_joins(layered)


def test_a_fine_cut_inside_a_dense_block_sends_a_tuple_of_all_that_later_layers_need():
    layered = cutwater.layered(make(models.DenseNet), IMAGES, granularity="fine")
    cut = 1 + [layer.name for layer in layered.layers].index("features.denseblock1.denselayer2.conv")
    smashed = layered.split(cut).client(IMAGES)
    assert [tuple(value.shape) for value in smashed] == [(3, 6, 8, 8), (3, 4, 8, 8), (3, 4, 8, 8)]


def test_no_two_cuts_send_the_same_memory_with_the_same_parameters_behind():
    layered = cutwater.layered(make(models.ResNet), IMAGES, granularity="fine")
    seen = set()
    for cut in usable_cuts(layered):
        crossing = tuple(layered.train_program.frontier(cut))
        weights = sum(len(layered.parameters_of_layer[layer]) for layer in range(1, cut + 1))
        assert (crossing, weights) not in seen
        seen.add((crossing, weights))


def test_what_crosses_between_blocks_is_one_activation_and_perhaps_a_mask():
    layered = found(models.MaskedEncoder)
    for cut in (1, 2, 3):
        mask, activation = layered.split(cut).client(SEQUENCES, KEEP.float())
        assert (mask.requires_grad, activation.requires_grad) == (False, True)
        assert mask.shape == KEEP.shape
    assert layered.split(4).client(SEQUENCES, KEEP.float()).shape == (3, 8)  # pooled, no mask needed


def test_where_less_crosses_before_the_next_block_the_cut_is_there():
    client, _ = found(models.ResNet).split(6)
    assert client(IMAGES).shape == (3, 12)  # after pooling, which belongs to no block


def test_the_data_of_one_tower_does_not_cross_while_the_other_is_computed():
    inputs = CASES[models.TwoTowers][0]
    for granularity in ("block", "fine"):
        layered = cutwater.layered(make(models.TwoTowers), inputs, granularity=granularity)
        raw = [node for node in layered.train_program.graph.nodes if node.op == "placeholder"]
        for cut in usable_cuts(layered):
            assert not set(raw) & set(layered.train_program.frontier(cut))


def test_keyword_inputs_are_taken_by_keyword_and_by_position():
    inputs = CASES[models.TwoTowers][0]
    client, server = found(models.TwoTowers).split(1)
    by_name = server(client(**inputs))
    assert torch.equal(by_name, server(client(inputs["left"], inputs["right"])))
    assert torch.equal(by_name, cutwater.join(client, server)(right=inputs["right"], left=inputs["left"]))


def test_an_output_with_fields_comes_back_as_the_model_gives_it():
    layered = found(models.WithAuxiliary)
    client, server = layered.split(1)
    train = server.train()(client.train()(VECTORS))
    assert isinstance(train, models.Prediction)
    assert train.hidden.shape == (3, 3)
    assert server.eval()(client.eval()(VECTORS)).hidden is None


def test_tied_weights_rule_out_the_cuts_between_their_uses_and_no_others():
    tied = cutwater.layered(make(models.TiedLanguageModel), TOKENS)
    assert set(tied.ruled_out) == set(range(1, len(tied)))
    assert "embed.weight is used in layers 1 and 6" in tied.ruled_out[1]
    partly = cutwater.layered(make(models.TiedLanguageModel, tie_output=False), TOKENS)
    assert [layer.name for layer in partly.layers][2:4] == ["blocks.1", "blocks.2"]
    assert set(partly.ruled_out) == {3}
    assert "blocks.1.fc1.weight" in partly.ruled_out[3]
    check_every_cut(partly, TOKENS)
    check_joins(partly)


def test_stochastic_depth_draws_from_the_stream_of_its_layer():
    layered = found(models.Deep)
    whole = layered.split(len(layered)).client.train()
    outputs = []
    for seed in range(8):
        with RandomStream(seed, step=0), torch.no_grad():
            outputs.append(whole(VECTORS))
    assert len({output.sum().item() for output in outputs}) > 1


def test_the_model_is_left_as_it_was_found():
    model = make(models.Counting).train()
    model.blocks[0].eval()
    before = copy.deepcopy(model.state_dict())
    attributes = {name: set(vars(part)) for name, part in model.named_modules()}
    torch.manual_seed(9)
    generator = torch.get_rng_state()
    cutwater.layered(model, VECTORS)
    cutwater.layered(model, VECTORS, granularity="fine")
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert attributes == {name: set(vars(part)) for name, part in model.named_modules()}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [part.training for part in model.blocks] == [False, True]


@pytest.mark.parametrize("training", [True, False])
def test_a_scripted_part_is_left_in_its_mode(training):
    scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)))
    model = nn.Sequential(nn.Linear(8, 8), scripted, nn.Linear(8, 2))
    scripted.train(training)
    with suppress(ModelError):
        cutwater.layered(model, torch.ones(2, 8))
    assert {part.training for part in scripted.modules()} == {training}


def test_hooks_on_a_block_run_once_wherever_the_model_is_cut():
    for kind, inputs in ((models.Deep, VECTORS), (models.Decoder, TOKENS)):
        model = make(kind)
        calls = []
        model.blocks[1].register_forward_hook(lambda module, args, output, calls=calls: calls.append(1))
        layered = cutwater.layered(model, inputs)
        calls.clear()
        step(layered, 2, inputs)
        assert calls == [1]


def test_an_autograd_function_keeps_its_backward_where_fx_cannot_follow():
    class Asking(models.Quantised):
        def forward(self, x):
            if x.shape[-1] > 100:  # a question about a shape, which export answers
                return x
            return super().forward(x)

    layered = cutwater.layered(make(Asking), VECTORS)
    assert [layer.name for layer in layered.layers] == ["stem", "blocks.0", "blocks.1", "head"]
    check_every_cut(layered, VECTORS)


def test_a_second_name_of_a_module_goes_where_the_module_goes():
    class Aliased(models.Deep):
        def __init__(self):
            super().__init__()
            self.favourite = self.blocks[2]

    layered = cutwater.layered(make(Aliased), VECTORS)
    client, server = layered.split(2)
    assert "favourite.body.weight" in server.state_dict()
    assert "favourite.body.weight" not in client.state_dict()
    check_joins(layered)


def test_a_kept_constant_that_every_block_uses_stays_with_the_client_and_rules_nothing_out():
    layered = found(models.Decoder)
    client, server = layered.split(3)
    assert "causal" in client.state_dict()
    assert "causal" not in server.state_dict()
    assert client(TOKENS).shape == (3, 7, 8)  # the mask does not cross: the server has it


@pytest.mark.parametrize("length", [3, 12])
def test_sequences_may_be_shorter_or_longer_than_the_example(length):
    tokens = torch.randint(0, 11, (2, length))
    for kind in (models.Decoder, models.MixtureOfExperts, models.Recurrent):
        check_every_cut(found(kind), tokens, batches=(2,))


def test_pictures_may_be_larger_than_the_example():
    layered = cutwater.layered(make(models.UNet), IMAGES, granularity="fine")
    check_every_cut(layered, torch.randn(2, 3, 12, 16), batches=(2,), training=(True,))


def test_an_example_of_one_sample_is_enough():
    layered = cutwater.layered(make(models.ResNet), IMAGES[:1])
    check_every_cut(layered, IMAGES)


def test_a_row_of_modules_needs_no_example_and_stages_in_it_are_looked_into():
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        nn.Sequential(models.Residual(8, 8), models.Residual(8, 12, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )
    layered = cutwater.layered(model)
    assert [layer.name for layer in layered.layers] == ["0", "1.0", "1.1", "2", "3", "4"]
    check_every_cut(layered, IMAGES)
    check_joins(layered)


def test_an_in_place_layer_behind_the_cut_leaves_what_was_sent_alone():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    layered = cutwater.layered(model, VECTORS)
    assert len(layered) == 3
    check_every_cut(layered, VECTORS)


def test_layers_found_without_contents_work_on_the_real_model():
    with torch.device("meta"):
        layered = cutwater.layered(models.Decoder(), TOKENS)
    client, server = layered.split(3)
    assert server(client(TOKENS.to("meta"))).shape == (3, 7, 13)
    real = cutwater.Layered(make(models.Decoder), layered.layers, layered.train_program, layered.eval_program)
    check_every_cut(real, TOKENS)
