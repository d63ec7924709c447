"""Metrics beside the loss: the same bits whoever computes them, in every round's record."""

import math

import pytest
import torch
from collecting import run
from small_study import small_clients, small_data, small_model, small_study
from torch import nn
from torch.nn import functional as F

from cutwater.base.errors import CutwaterError, RunError
from cutwater.data.custom import from_datasets
from cutwater.data.test_batches import TEST_BATCH
from cutwater.execute.finished import evaluate, predict
from cutwater.train.metrics import Measuring, find_metrics


def certainty(outputs, labels):
    """A function of a mini-batch, whose mean by samples counts."""
    return outputs.softmax(dim=1).gather(1, labels[:, None]).mean()


class Median:
    """An object as torchmetrics has them: it must see all samples itself."""

    def __init__(self):
        self.seen, self.resets = [], 0

    def reset(self):
        self.seen, self.resets = [], self.resets + 1

    def update(self, outputs, labels):
        self.seen.append(outputs.softmax(dim=1).gather(1, labels[:, None]).flatten())

    def compute(self):
        return torch.cat(self.seen).median()


def many_tests(count=2 * TEST_BATCH + 40):
    """The small data with a test set of three mini-batches."""
    data = small_data()
    inputs, labels = data.train.batch(torch.arange(140).numpy())
    random = torch.Generator().manual_seed(4)
    chosen = torch.randint(0, 140, (count,), generator=random)
    noisy = inputs[0][chosen] + 0.3 * torch.randn(count, 6, generator=random)
    test = list(zip(noisy, labels[chosen].tolist(), strict=True))
    train = list(zip(inputs[0], labels.tolist(), strict=True))
    return from_datasets(train, test, classes=3, name="clusters")


def regression():
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(180, 6, generator=random)
    labels = inputs[:, :2].sum(dim=1) + 0.1 * torch.randn(180, generator=random)
    samples = list(zip(inputs, labels, strict=True))
    return from_datasets(samples[:140], samples[140:], name="sums")


def regressor():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def column_loss(outputs, labels):
    return F.mse_loss(outputs.flatten(), labels)


@pytest.mark.parametrize("metrics", [{"certainty": certainty}, {"certainty": certainty, "median": Median()}])
def test_metrics_have_the_same_bits_with_any_number_of_workers(metrics):
    study = small_study(data=many_tests(), train={"rounds": 2}, metrics=metrics)
    alone, together = (run(study, workers=count) for count in (1, 2))
    assert [one.record.metrics for one in alone] == [one.record.metrics for one in together]
    assert alone[-1].record.metrics.keys() == metrics.keys()


def test_a_function_counts_by_samples_and_an_object_sees_the_whole_test_set():
    data = many_tests()
    study = small_study(data=data, train={"rounds": 1}, metrics={"certainty": certainty, "median": Median()})
    (after,) = run(study)
    outputs = torch.from_numpy(predict(study, after.progress.weights))
    _, labels = data.test.batch(torch.arange(len(data.test)).numpy())
    right = outputs.softmax(dim=1).gather(1, labels[:, None]).flatten()
    found = after.record.metrics
    assert found["median"] == float(right.median())
    assert found["certainty"] == pytest.approx(float(right.double().mean()), rel=1e-6)
    assert found["certainty"] != pytest.approx(float(right[: 2 * TEST_BATCH].mean()), rel=1e-6)


def test_an_object_is_left_without_what_it_saw():
    median = Median()
    run(small_study(train={"rounds": 2}, metrics={"median": median}))
    assert median.seen == []
    assert median.resets >= 4


class Count(nn.Module):
    """A module with a tensor for its state, as torchmetrics' are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def reset(self):
        self.seen = torch.zeros_like(self.seen).clone()

    def update(self, outputs, labels):
        self.seen += outputs.argmax(dim=1).eq(labels).sum()

    def compute(self):
        return self.seen


def test_a_module_with_state_counts_and_is_its_authors_again_afterwards():
    count = Count()
    (after,) = run(small_study(train={"rounds": 1}, metrics={"right": count}))
    assert after.record.metrics["right"] == round(after.record.accuracy * 60)
    count.update(torch.eye(3), torch.arange(3))  # in place, which tensors of inference mode would refuse
    assert count.compute() == 3


def test_built_in_errors_of_a_regression_are_those_of_torch():
    study = small_study(
        model=regressor(),
        data=regression(),
        train={"rounds": 1, "metrics": ["mae", "rmse"]},
        loss=column_loss,
    )
    (after,) = run(study)
    outputs = torch.from_numpy(predict(study, after.progress.weights)).flatten()
    _, labels = study.data.test.batch(torch.arange(40).numpy())
    assert after.record.metrics["mae"] == pytest.approx(float(F.l1_loss(outputs, labels)), rel=1e-6)
    assert after.record.metrics["rmse"] == pytest.approx(math.sqrt(F.mse_loss(outputs, labels)), rel=1e-6)
    assert after.record.accuracy is None
    assert after.record.test_loss is not None


def test_errors_are_not_taken_of_outputs_spread_over_labels():
    """N outputs in a column minus N labels in a row would be N × N differences."""
    (mae,) = find_metrics(["mae"])
    labels = torch.tensor([1.0, 2.0, 3.0])
    assert float(mae.measure(labels[:, None], labels)) == 0.0
    measuring = Measuring([mae])
    with pytest.raises(RunError, match=r"metric 'mae' failed .*there are 9 outputs for 3 labels"):
        measuring.batch(torch.zeros(3, 3), labels)


def test_rmse_over_mini_batches_is_the_root_of_the_mean_square():
    (rmse,) = find_metrics(["rmse"])
    assert rmse.of([(9.0, 1.0), (0.0, 3.0)]) == 1.5
    assert rmse.of([(math.nan, 1.0)]) is None
    assert rmse.of([]) is None


@pytest.mark.parametrize(
    ("names", "own", "message"),
    [
        (["maee"], {}, "no metric is called 'maee': did you mean 'mae'"),
        ([], {"accuracy": certainty}, "a metric is called 'accuracy', but must have a name"),
        ([], {"top 5": certainty}, "a metric is called 'top 5', but must have a name without spaces"),
        ([], {"f1": 3}, "metric 'f1' is 3, but must be a function of outputs and labels"),
        (["mae"], {"mae": certainty}, "two metrics are called 'mae'"),
        (["nowhere:f1"], {}, "metric 'nowhere:f1' can't be imported"),
    ],
)
def test_what_is_no_metric_is_one_sentence(names, own, message):
    with pytest.raises(CutwaterError, match=message):
        find_metrics(names, own)


def test_a_metric_that_fails_is_named_with_file_and_line_before_the_first_round():
    def broken(outputs, labels):
        raise ValueError("no threshold")

    with pytest.raises(
        RunError, match=r"metric 'f1' failed \(ValueError: no threshold, at .*test_named_metrics.py:\d+\)"
    ):
        small_study(metrics={"f1": broken})


def test_a_metric_of_many_numbers_is_refused():
    with pytest.raises(RunError, match=r"metric 'each' failed .*tensor of shape \[2\]"):
        small_study(metrics={"each": lambda outputs, labels: outputs.argmax(dim=1) == labels})


def test_accuracy_is_refused_where_labels_are_no_classes():
    with pytest.raises(RunError, match="metrics has 'accuracy', but the labels are not classes"):
        small_study(model=regressor(), data=regression(), loss=column_loss, train={"metrics": ["accuracy"]})


def test_a_metric_that_is_no_number_is_left_out_of_the_record():
    (after,) = run(small_study(train={"rounds": 1}, metrics={"odd": lambda outputs, labels: math.nan}))
    assert after.record.metrics == {}


def test_metrics_change_neither_weights_nor_what_a_run_goes_on_with():
    plain, measured = (
        small_study(train={"rounds": 1}),
        small_study(train={"rounds": 1}, metrics={"m": Median()}),
    )
    assert plain.fingerprint() == measured.fingerprint()
    assert run(plain)[-1].record.weights_sha256 == run(measured)[-1].record.weights_sha256


# ---- what clients hold back ----


def held_back(**more):
    from cutwater.scenario.settings import DataSettings

    clients = small_clients(3, samples=40)
    return small_study(clients=clients, share_out=DataSettings(partition="iid", local_test=0.3), **more)


def test_local_tests_are_scored_client_by_client():
    study = held_back(train={"rounds": 1}, metrics={"median": Median()})
    (after,) = run(study)
    found = after.record.local_tests
    by_hand = []
    for name in study.fleet.names:
        kept = study.partition[name].test
        batch = study.data.train.batch(kept)
        outputs = predict(study, after.progress.weights, [one.numpy() for one in batch.inputs])
        by_hand.append(float((outputs.argmax(axis=1) == batch.labels.numpy()).mean()))
    assert found["accuracy"].mean == pytest.approx(sum(by_hand) / 3)
    assert (found["accuracy"].least, found["accuracy"].most) == (min(by_hand), max(by_hand))
    assert found["accuracy"].deviation == pytest.approx(
        float(torch.tensor(by_hand).std(correction=0)), abs=1e-6
    )
    assert found.keys() == {"accuracy", "test_loss", "median"}
    assert found["median"].clients == 3


def test_local_tests_have_the_same_bits_with_any_number_of_workers():
    study = held_back(train={"rounds": 2}, metrics={"median": Median(), "certainty": certainty})
    alone, together = (run(study, workers=count) for count in (1, 2))
    assert [one.record.local_tests for one in alone] == [one.record.local_tests for one in together]


def test_samples_that_are_held_back_are_said():
    said = []
    run(held_back(train={"rounds": 1}), say=said.append)
    assert any("of 123 samples are held back by the clients for local tests" in one for one in said)
    assert small_study().notes == ()


# ---- without a test set ----


def untested():
    data = small_data()
    return from_datasets(data.train._dataset, classes=3, name="clusters")


def test_without_a_test_set_a_model_is_trained_to_the_same_bits_and_not_scored():
    said = []
    (after,) = run(
        small_study(data=untested(), train={"rounds": 1}, metrics={"m": certainty}), say=said.append
    )
    (tested,) = run(small_study(train={"rounds": 1}))
    assert after.record.weights_sha256 == tested.record.weights_sha256
    assert after.record.scores == {}
    assert said == ["'clusters' has no test set: the model is not scored"]


def test_what_is_best_can_not_be_told_without_a_test_set():
    with pytest.raises(RunError, match="keep_best is 'accuracy', but 'clusters' has no test set"):
        small_study(data=untested(), train={"keep_best": "accuracy"})


def test_python_shares_out_at_random_unless_told_otherwise():
    study = small_study(model=regressor(), data=regression(), loss=column_loss, share_out=None)
    assert study.partition.method == "iid"
    assert int(study.partition.test_sizes.sum()) == 0


def test_evaluating_leaves_the_model_as_it_was():
    study = small_study(model=small_model(), train={"rounds": 1})
    before = {name: tensor.clone() for name, tensor in study.model.module.state_dict().items()}
    (after,) = run(study)
    found = evaluate(study, after.progress.weights)
    assert found.whole.values == after.record.scores
    assert all(torch.equal(tensor, before[name]) for name, tensor in study.model.module.state_dict().items())
