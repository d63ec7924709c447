"""Adapters of peft: what is trained travels, a frozen prefix sends nothing back, the adapter is peft's."""

import pytest
import tiny_bert
import torch

from cutwater import Session, TrainSettings, export, from_datasets, predict, run
from cutwater.base.errors import RunError

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
LENGTH = 8


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
        )
    )


def adapted(model, **options):
    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(r=2, lora_dropout=0.1, **options))


def texts(count):
    return [{**one, "labels": one["input_ids"]} for one in tiny_bert.samples(count, length=LENGTH)]


@pytest.fixture(scope="module")
def gpt2_study():
    model = adapted(gpt2(), target_modules=["c_attn"], layers_to_transform=[1], fan_in_fan_out=True)
    return tiny_bert.study(model, from_datasets(texts(24), texts(8)), **_settings())


def _settings():
    train = TrainSettings(rounds=2, optimizer="adamw", lr=0.05, clip_norm=1.0)
    return {"train": train, "session": Session(epochs=2, batch_size=6)}


def test_tied_language_models_with_adapters_have_the_same_bits_at_every_cut(gpt2_study):
    found = tiny_bert.hashes(gpt2_study)
    assert len(found) == len(gpt2_study.model)
    assert len(set(found)) == 1


def test_a_round_moves_adapters_and_activations_alone_once_devices_hold_the_rest(gpt2_study):
    trained = run(gpt2_study)
    first, second = trained.records
    adapters = 4 * sum(one.numel() for one in gpt2_study.model.module.parameters() if one.requires_grad)
    assert second.clients == ("c0", "c1")
    steps, labels = 2 * 12, 2 * 12 * LENGTH * 8
    cuts = [gpt2_study.profile.cuts[cut - 1] for cut in (1, len(gpt2_study.model))]
    assert cuts[1].client_bits == 8 * adapters
    assert cuts[1].buffer_bits == 0
    assert second.bytes_down < first.bytes_down
    found = tiny_bert.trained_at(gpt2_study, 2, holds=2)
    crossing = gpt2_study.profile.cuts[1].smashed_bits // 8
    assert (found.bytes_up, found.bytes_down) == (steps * crossing + labels, 0)


def test_in_front_of_the_first_adapter_nothing_comes_back_and_no_backward_pass_is_planned(gpt2_study):
    names = [layer.name for layer in gpt2_study.model.layers]
    before = next(k for k, name in enumerate(names) if name.endswith("h.1"))
    for cut in gpt2_study.profile.cuts[:before]:
        assert (cut.gradient_bits, cut.client_backward_flops, cut.client_bits) == (0, 0, 0)
    assert gpt2_study.profile.cuts[before].gradient_bits > 0


def test_an_adapter_is_read_by_peft_and_scores_the_same(gpt2_study, tmp_path):
    weights = tiny_bert.trained_at(gpt2_study, 3).state
    weights = {name: one.clone() for name, one in weights.items()}
    export(weights, tmp_path / "adapter", study=gpt2_study, adapter=True)
    loaded = peft.PeftModel.from_pretrained(gpt2(), tmp_path / "adapter").eval()
    inputs = gpt2_study.data.test.batch(torch.arange(8).numpy()).inputs
    with torch.no_grad():
        theirs = loaded(**gpt2_study.data.called(inputs)).logits
    torch.testing.assert_close(torch.from_numpy(predict(gpt2_study, weights)), theirs)
    assert not torch.equal(theirs, gpt2()(inputs[0]).logits)


def test_without_peft_there_is_no_adapter(tmp_path):
    study = tiny_bert.study()
    with pytest.raises(RunError, match="the model is a BertForSequenceClassification"):
        export(study.initial, tmp_path / "adapter", study=study, adapter=True)
    with pytest.raises(RunError, match="no study was given"):
        export(study.initial, tmp_path / "adapter", adapter=True)


def still_gpt2():
    """Nothing before the adapters draws, and hidden layers that are wide against a token's label."""
    torch.manual_seed(0)
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": 40, "n_embd": 192, "n_layer": 2, "n_head": 2, "n_positions": 16}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **still, bos_token_id=0))
    return adapted(model, target_modules=["c_attn"], layers_to_transform=[1], fan_in_fan_out=True)


def still_bert():
    still = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    model = tiny_bert.classifier(hidden_size=64, **still)
    wanted = ["query", "value"]
    return adapted(model, target_modules=wanted, layers_to_transform=[1], task_type="SEQ_CLS")


@pytest.mark.parametrize(
    ("make", "samples"),
    [(still_gpt2, texts), (still_bert, lambda count: tiny_bert.samples(count, length=LENGTH))],
    ids=["gpt2", "bert"],
)
def test_a_later_round_is_adapters_and_activations_to_two_percent_and_a_frozen_prefix_sends_them_once(
    make, samples
):
    train = TrainSettings(rounds=2, optimizer="adamw", lr=0.05, clip_norm=1.0)
    session = Session(epochs=3, batch_size=6)
    study = tiny_bert.study(make(), from_datasets(samples(24), samples(8)), train=train, session=session)
    fedavg = [one.weights_sha256 for one in run(study.with_planner("fedavg")).records]
    last = max(cut.cut for cut in study.profile.cuts if cut.repeats)
    assert last >= 2
    for cut in (last, last + 1):
        records = run(study.with_planner("splitfed", cut=cut)).records
        assert [one.weights_sha256 for one in records] == fedavg
        at, adapters = study.profile.cuts[cut - 1], sum(study.job().traffic(cut).learned.values())
        assert at.repeats == (adapters == 0) == (cut == last)
        passes = 1 if at.repeats else 3
        activations, gradients = (
            12 * times * bits // 8 for times, bits in ((passes, at.smashed_bits), (3, at.gradient_bits))
        )
        assert records[1].bytes_up == pytest.approx(2 * (adapters + activations), rel=0.02)
        assert records[1].bytes_down == pytest.approx(2 * (adapters + gradients), rel=0.02)


def test_bert_with_adapters_trains_its_new_head_beside_them():
    model = adapted(tiny_bert.classifier(), target_modules=["query", "value"], task_type="SEQ_CLS")
    study = tiny_bert.study(model, **_settings())
    assert len(set(tiny_bert.hashes(study))) == 1
    assert any("classifier" in name for name in study.traffic.learned)
    assert all("lora" in name or "classifier" in name for name in study.traffic.learned)
