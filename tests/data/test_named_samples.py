"""Samples as Hugging Face has them: values by name, of different lengths, read by workers."""

import pytest
import torch
from tiny_bert import samples

from cutwater import Pad, from_datasets
from cutwater.base.errors import DataError
from cutwater.data.read_ahead import read_ahead
from cutwater.model.randomness import drawn_from


def first(data, count=2):
    return data.train.batch(torch.arange(count).numpy())


def test_a_dict_is_split_into_inputs_by_name_and_labels():
    data = from_datasets(samples(5, length=6), samples(3, length=6))
    batch = first(data)
    assert (data.names, data.input) == (("input_ids", "attention_mask"), "input_ids=6,attention_mask=6")
    assert data.called(batch.inputs)["attention_mask"].tolist() == [[1] * 6] * 2
    assert (batch.labels.shape, data.classes, data.train.labels.tolist()[0]) == ((2,), 3, batch.labels[0])


def test_a_dataset_of_hugging_face_is_read_as_it_is_and_its_labels_at_once():
    datasets = pytest.importorskip("datasets")
    rows = [{**one, "label": one.pop("labels")} for one in samples(6, length=5)]
    made = from_datasets(datasets.Dataset.from_list(rows))
    plain = from_datasets(rows)
    assert made.train.labels.tolist() == plain.train.labels.tolist() == [row["label"] for row in rows]
    pairs = zip((*first(made)[0], first(made)[1]), (*first(plain)[0], first(plain)[1]), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_samples_of_different_lengths_are_padded_and_labels_are_not_counted_there():
    data = from_datasets(samples(8, tokens=True), collate="pad")
    (ids, mask), labels = first(data, 8)
    assert ids.shape == mask.shape == labels.shape
    assert bool(((labels == -100) == (mask == 0)).all())
    fixed = from_datasets(samples(8), collate=Pad(to=12, value={"input_ids": 39}))
    ids, mask = first(fixed, 8).inputs
    assert ids.shape == (8, 12)
    assert bool((ids[mask == 0] == 39).all())


def test_labels_may_be_called_otherwise_and_be_made_by_the_collate_function():
    rows = [{"x": [1.0, 2.0], "y": 1}, {"x": [3.0, 4.0], "y": 0}]
    assert first(from_datasets(rows, labels="y")).labels.tolist() == [1, 0]

    def shifted(batch):
        ids = torch.tensor([one["x"] for one in batch])
        return {"x": ids, "labels": ids.roll(-1)}

    made = first(from_datasets(rows, collate=shifted))
    assert torch.equal(made.labels, made.inputs[0].roll(-1))


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        ([{"x": [1]}], {}, "has 'x', but no 'labels' or 'label': say which"),
        ([{"x": [1], "labels": 0}], {"labels": "y"}, "no 'y': say which"),
        ([{"x": "text", "labels": 0}], {}, "no input that is a number"),
        ([{"x": [1], "labels": 0}, {"labels": 0}], {}, "sample 1 of .* has no 'x', but others have"),
        ([{"x": [1], "labels": 0}, (1, 2)], {}, "sample 1 of .* is tuple, but others have values by name"),
        ([{"x": [1], "labels": 0}, {"x": [1, 2], "labels": 0}], {}, r"differ in shape.*cutwater\.Pad"),
        ([{"x": [1], "labels": 0}], {"collate": 3}, "collate is 3, but must be a function"),
        ([{"x": [1], "labels": 0}], {"collate": "no.module:f"}, "can't be imported"),
        ([{"x": [1], "labels": 0}], {"collate": len}, "collated|is int, but must be"),
        ([{"x": [1, 2], "labels": 0}], {"collate": Pad(to=1)}, "has 2 values of 'x', but samples are padded"),
        ([(1, 2)], {"collate": "pad"}, "padding takes samples that are dicts"),
        (
            [{"x": [1], "labels": 0}],
            {"workers": -1},
            "workers is -1, but must be a whole number from 0 to 1,024",
        ),
    ],
)
def test_what_can_not_be_a_mini_batch_is_refused_in_a_sentence(rows, options, reason):
    with pytest.raises(DataError, match=reason):
        first(from_datasets(rows, **options), len(rows))


def test_names_that_test_samples_lack_are_told_of_the_test_set():
    train, test = [{"x": [1], "y": [2], "labels": 0}], [{"x": [1], "labels": 0}]
    with pytest.raises(DataError, match=r"own data \(test\) lacks 'y', which training samples have"):
        from_datasets(train, test)


def test_a_collate_function_that_fails_is_quoted_with_file_and_line():
    def broken(batch):
        raise KeyError("pixels")

    with pytest.raises(DataError, match=r"failed on 1 samples \(KeyError: 'pixels', at .*test_named.*py:\d"):
        from_datasets(samples(3), collate=broken)


class Noisy:
    """Draws from all three generators, as transforms do."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        import random

        import numpy as np

        return {"x": torch.rand(2) + random.random() + float(np.random.rand()) + index, "labels": index % 2}


def test_what_workers_draw_does_not_depend_on_how_many_they_are():
    noisy = from_datasets(Noisy())

    def read(step, chosen, device):
        with drawn_from(3, step):
            return noisy.train.batch(chosen, device)

    positions = [torch.arange(start, start + 8).numpy() for start in range(0, 40, 8)]
    before = torch.get_rng_state()
    found = [
        torch.cat([batch.inputs[0] for batch in read_ahead(read, positions, workers, "cpu")])
        for workers in (0, 1, 2)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert torch.equal(before, torch.get_rng_state())


def test_a_refusal_in_a_worker_is_one_sentence():
    rows = [{"x": [1], "labels": 0}, {"x": [1, 2], "labels": 0}]
    data = from_datasets(rows)
    read = read_ahead(
        lambda _, chosen, device: data.train.batch(chosen, device), [torch.arange(2).numpy()], 1, "cpu"
    )
    with pytest.raises(DataError, match=r"^samples of own data") as refusal:
        list(read)
    assert "\n" not in str(refusal.value)
