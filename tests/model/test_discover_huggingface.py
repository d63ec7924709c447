"""Discovery on Hugging Face models, built from a configuration with random weights."""

from functools import cache

import pytest
import torch
from split_checks import check_every_cut, check_joins, usable_cuts

import cutwater

transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's transformers is not installed: its models are not tested"
)
transformers.logging.set_verbosity_error()

IDS = torch.randint(3, 90, (3, 10), generator=torch.Generator().manual_seed(0))
MASK = torch.ones_like(IDS)
MASK[1, 7:] = 0
PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
TEXT = {"input_ids": IDS, "attention_mask": MASK}
SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


def bert(**options):
    config = transformers.BertConfig(**{**SMALL, "max_position_embeddings": 32, **options})
    return transformers.BertForSequenceClassification(config)


def gpt2(**options):
    settings = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 99}
    config = transformers.GPT2Config(**settings, bos_token_id=1, eos_token_id=2, **options)
    return transformers.GPT2LMHeadModel(config)


def llama(**options):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2, **options))


def vit(**options):
    settings = {key: value for key, value in SMALL.items() if key != "vocab_size"} | options
    config = transformers.ViTConfig(
        **settings, image_size=16, patch_size=4, hidden_dropout_prob=0.1, num_labels=5
    )
    return transformers.ViTForImageClassification(config)


@cache
def found(kind, **options):
    """The layers of a model on its case's inputs."""
    torch.manual_seed(0)
    inputs, settings, _ = CASES[kind]
    return cutwater.layered(kind(**settings, **options), inputs)


CASES = {
    bert: (
        TEXT,
        {},
        [
            "bert.embeddings",
            "bert.encoder.layer.0",
            "bert.encoder.layer.1",
            "bert.pooler",
            "dropout",
            "classifier",
        ],
    ),
    gpt2: (
        {"input_ids": IDS},
        {"tie_word_embeddings": False},
        [*(f"transformer.{part}" for part in ("wte", "wpe", "drop", "h.0", "h.1", "ln_f")), "lm_head"],
    ),
    llama: (
        TEXT,
        {"attention_dropout": 0.1},
        ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"],
    ),
    vit: (
        {"pixel_values": PIXELS},
        {},
        ["vit.embeddings", "vit.layers.0", "vit.layers.1", "vit.layernorm", "classifier"],
    ),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_blocks_are_the_layers_and_every_cut_gives_the_bits_of_the_whole(kind):
    inputs, _, names = CASES[kind]
    layered = found(kind)
    assert [layer.name for layer in layered.layers] == names
    assert layered.exact
    check_every_cut(layered, inputs)
    check_joins(layered)


@pytest.mark.parametrize("kind", [bert, vit], ids=lambda kind: kind.__name__)
def test_fine_cuts_inside_attention_give_the_bits_of_the_whole(kind):
    inputs, options, _ = CASES[kind]
    torch.manual_seed(0)
    layered = cutwater.layered(kind(**options, num_hidden_layers=1), inputs, granularity="fine")
    assert len(layered) > 15
    check_every_cut(layered, inputs, batches=(2,))
    check_joins(layered)


def test_the_half_returns_what_the_model_returns():
    client, server = found(bert).split(2)
    output = server(client(**TEXT))
    assert type(output).__name__ == "SequenceClassifierOutput"
    assert output.logits.shape == (3, 2)


def test_tied_embeddings_rule_out_every_cut_between_them():
    layered = cutwater.layered(gpt2(), {"input_ids": IDS})
    assert set(layered.ruled_out) == set(range(1, len(layered)))
    assert "transformer.wte.weight" in layered.ruled_out[1]
    assert layered.split(len(layered)).client(IDS).logits.shape == (3, 10, 99)


def test_positions_and_rotary_embeddings_are_computed_on_both_sides_and_never_cross():
    layered = found(llama)
    for cut in (1, 2):
        crossing = layered.train_program.frontier(cut)
        assert crossing[0].name == "attention_mask"
        assert len(crossing) == 2
    assert len(layered.train_program.frontier(3)) == 1


def test_a_mask_without_padding_in_the_example_still_gives_a_model_that_heeds_padding():
    # Attention has a kernel of its own for input without padding, so equal within rounding is what to expect.
    torch.manual_seed(0)
    layered = cutwater.layered(llama(), {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})
    check_every_cut(layered, TEXT, batches=(3,))


def test_sequences_of_any_length_pass():
    layered = found(llama)
    longer = {name: torch.cat([value, value[:, :5]], 1) for name, value in TEXT.items()}
    check_every_cut(layered, longer, batches=(2,), training=(True,))


def test_a_last_look_at_the_tokens_does_not_send_them_to_the_server():
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, pad_token_id=0)
    torch.manual_seed(0)
    layered = cutwater.layered(transformers.LlamaForSequenceClassification(config), TEXT)
    for cut in usable_cuts(layered):
        assert "input_ids" not in [node.name for node in layered.train_program.frontier(cut)]
    check_every_cut(layered, TEXT, batches=(2,))


def test_a_model_of_a_billion_parameters_is_taken_apart_without_memory_for_it():
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        num_hidden_layers=5,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e9
    layered = cutwater.layered(model, {name: value.to("meta") for name, value in TEXT.items()})
    assert [layer.name for layer in layered.layers][1:6] == [f"model.layers.{index}" for index in range(5)]
    client, server = layered.split(3)
    inputs = {name: value.to("meta") for name, value in TEXT.items()}
    assert server(client(**inputs)).logits.shape == (3, 10, 32000)
