"""A DataLoader of torch where a dataset is asked for: taken over, or one sentence."""

import pytest
import torch
from collecting import run
from small_study import small_data, small_study
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from cutwater import Session, from_datasets
from cutwater.base.errors import DataError, RunError
from cutwater.data.custom import call_user_source


def samples():
    data = small_data()
    return data.train._dataset, data.test._dataset


def doubled(items):
    inputs, labels = zip(*items, strict=True)
    return 2 * torch.stack(inputs), torch.tensor(labels)


def weights(data, batch_size=5):
    study = small_study(data=data, session=Session(steps=2, batch_size=batch_size), train={"rounds": 1})
    return run(study)[0].record.weights_sha256


def test_a_loader_is_its_dataset_collate_function_and_workers():
    train, test = samples()
    plain = weights(from_datasets(train, test))
    loaders = DataLoader(train, batch_size=5, shuffle=True), DataLoader(test, batch_size=9)
    assert weights(from_datasets(*loaders)) == plain
    assert weights(loaders) == plain, "given to the study as they are"
    assert weights((train, test)) == plain
    assert weights(from_datasets(train)) == weights(train) == weights(DataLoader(train, 5)) == plain
    own = from_datasets(DataLoader(train, 5, collate_fn=doubled, num_workers=1), DataLoader(test, 5))
    assert (own.workers, own.batch_size) == (1, 5)
    assert torch.equal(
        own.train.batch(torch.arange(3).numpy()).inputs[0], 2 * torch.stack([x for x, _ in train[:3]])
    )
    assert torch.equal(
        own.test.batch(torch.arange(3).numpy()).inputs[0], torch.stack([x for x, _ in test[:3]])
    )
    assert weights(own) == weights(from_datasets(train, collate=doubled)) != plain


def test_what_is_said_beside_a_loader_comes_before_what_it_says():
    train, _ = samples()
    loader = DataLoader(train, 5, collate_fn=doubled, num_workers=1)
    assert from_datasets(loader, workers=2).workers == 2
    given = from_datasets(loader, collate=lambda items: (doubled(items)[0] / 2, doubled(items)[1]))
    assert torch.equal(
        given.train.batch(torch.arange(2).numpy()).inputs[0], torch.stack([x for x, _ in train[:2]])
    )


def loaders():
    train, test = samples()
    return DataLoader(train, batch_size=8), DataLoader(test, batch_size=8)


def lone_loader():
    return loaders()[0]


@pytest.mark.parametrize("source", ["test_loaders:loaders", "test_loaders:lone_loader"])
def test_a_scenarios_function_may_return_loaders(source):
    data = call_user_source(source, {}, {})
    assert (len(data.train), data.batch_size) == (140, 8)


def test_a_batch_size_that_is_not_the_sessions_is_told_with_what_to_set():
    with pytest.raises(RunError, match=r"has batch_size 8, but the session 5: set batch_size = 8 of Session"):
        weights(loaders())
    assert weights(loaders(), batch_size=8)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(samples()[0])


def refused():
    train, _ = samples()
    once = SequentialSampler(train)
    return [
        (DataLoader(Stream(), 5), "reads a stream of samples, .*give a map-style dataset"),
        (
            DataLoader(train, batch_size=None),
            "has no batch_size, so that its dataset makes whole mini-batches",
        ),
        (DataLoader(train, 5, drop_last=True), r"leaves the last samples .*set steps of the session"),
        (DataLoader(train, 5, sampler=SubsetRandomSampler([1, 2])), "by a SubsetRandomSampler, .*Subset"),
        (DataLoader(train, 5, sampler=WeightedRandomSampler([1.0] * 140, 9)), "by a WeightedRandomSampler"),
        (DataLoader(train, 5, sampler=RandomSampler(train, replacement=True)), "by a RandomSampler"),
        (DataLoader(train, 5, sampler=RandomSampler(train, num_samples=9)), "by a RandomSampler"),
        (DataLoader(train, batch_sampler=Pairs(once, 2, drop_last=False)), "has a Pairs of its own"),
    ]


class Pairs(BatchSampler):
    pass


@pytest.mark.parametrize("case", range(8))
def test_what_can_not_be_taken_over_is_one_sentence(case):
    loader, reason = refused()[case]
    with pytest.raises(DataError, match=rf"the DataLoader of own data \(train\) .*{reason}"):
        from_datasets(loader)


def test_a_part_of_a_dataset_is_a_subset():
    train, _ = samples()
    assert len(from_datasets(DataLoader(Subset(train, range(30)), 5)).train) == 30


@pytest.mark.parametrize("given", [3, "digits", {"train": []}, iter([1])])
def test_what_is_no_data_is_one_sentence(given):
    with pytest.raises(DataError, match=r"data is \w+, but must be what cutwater\.from_datasets.*DataLoader"):
        small_study(data=given)
