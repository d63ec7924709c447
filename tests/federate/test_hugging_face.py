"""Models and samples as Hugging Face has them: from a dict to a hash that no cut changes."""

import pytest
import tiny_bert
import torch
from torch import nn

from cutwater import TrainSettings, from_datasets, load_scenario, predict, run, study_of
from cutwater.base.errors import DataError, RunError
from cutwater.train.own_loss import OwnLoss
from cutwater.train.scores import score

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def study():
    return tiny_bert.study()


def test_the_bits_are_the_same_at_every_cut_though_lengths_differ(study):
    found = tiny_bert.hashes(study)
    assert len(found) > 4
    assert len(set(found)) == 1


def test_the_loss_is_the_models_own_and_labels_never_reach_the_model(study):
    inputs, labels = study.two_samples()
    assert isinstance(study.loss, OwnLoss)
    assert study.data.names == ("input_ids", "attention_mask")
    module = study.model.module.eval()
    assert "problem_type" not in module.config.to_diff_dict()
    with torch.no_grad():
        given = module(**study.data.called(inputs), labels=labels).loss
        split = study.loss(study.model.split(len(study.model)).client(*inputs), labels)
    assert float(given) == float(split)


def test_a_run_scores_the_model_and_predicts_by_name(study):
    trained = run(study)
    assert trained.records[-1].accuracy is not None
    assert predict(study, study.initial).shape == (8, 3)


def test_a_language_model_is_scored_by_the_next_token():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1, n_positions=8, bos_token_id=0, eos_token_id=0)
    )
    rows = [{"input_ids": [k % 9, 2, 3, 4], "labels": [k % 9, 2, 3, 4]} for k in range(24)]
    study = tiny_bert.study(model, from_datasets(rows))
    labels = study.two_samples().labels
    logits = nn.functional.one_hot(labels.roll(-1, 1), 9).float()  # right but for the last, which has no next

    class Output:
        pass

    output = Output()
    output.logits = logits
    found = score(study.loss, output, labels)
    assert (found.right, found.answers) == (6, 6)


def test_what_the_model_does_not_take_is_left_out_and_nothing_left_is_refused():
    rows = [{**one, "row": k} for k, one in enumerate(tiny_bert.samples(24))]
    assert tiny_bert.study(data=from_datasets(rows, collate="pad")).data.names == (
        "input_ids",
        "attention_mask",
    )
    with pytest.raises(DataError, match=r"has 'row', but BertForSequenceClassification.forward takes none"):
        tiny_bert.study(data=from_datasets([{"row": k, "labels": 0} for k in range(24)]))


@pytest.mark.parametrize("loss", ["cross_entropy", "mse_loss"])
def test_a_loss_on_a_models_output_says_how_to_get_at_its_logits(loss):
    with pytest.raises(RunError, match=r"returns a SequenceClassifierOutput.*loss=\"model\".*output\.logits"):
        tiny_bert.study(train=TrainSettings(rounds=1, loss=loss))


def test_a_model_without_a_loss_of_its_own_is_told_so():
    model = nn.Sequential(nn.Linear(2, 3))
    rows = [{"input": [1.0, 2.0], "labels": 1}] * 24
    with pytest.raises(RunError, match="Sequential computes no loss of its own"):
        tiny_bert.study(model, from_datasets(rows), train=TrainSettings(rounds=1, loss="model"))


def test_a_scenario_names_inputs_collate_function_and_workers(tmp_path):
    (tmp_path / "bert.toml").write_text("""
        [model]
        name = "tiny_bert:classifier"
        input = "input_ids=8,attention_mask=8"
        classes = 3
        [data]
        source = "tiny_bert:sentences"
        partition = "iid"
        collate = "pad"
        workers = 1
        [server]
        compute = "10 GFLOPS"
        [session]
        epochs = 1
        batch_size = 6
        [train]
        rounds = 1
        [[client]]
        name = "c0"
        compute = "1 GFLOPS"
        rate = "1 Mbit/s"
        samples = 12
        """)
    scenario = load_scenario(tmp_path / "bert.toml")
    made = study_of(scenario)
    assert isinstance(made.loss, OwnLoss)
    assert (len(made.model), made.data.workers) == (len(scenario.profile), 1)
    assert run(made).records[-1].loss > 0
