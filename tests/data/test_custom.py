"""The user's own datasets."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from cutwater.base.errors import DataError
from cutwater.data.custom import DatasetSamples, from_datasets
from cutwater.data.sources import load


class Items(Dataset):
    """Any list of items, as a dataset."""

    def __init__(self, items):
        self.items = items
        self.reads = 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.reads += 1
        return self.items[index]


def pairs(count, shape=(3, 4, 4)):
    return Items([(torch.full(shape, float(i)), i % 5) for i in range(count)])


def test_a_dataset_becomes_data_with_shape_and_classes_found():
    data = from_datasets(pairs(20), pairs(5))
    assert (data.input, data.classes, len(data.train), len(data.test)) == ("3x4x4", 5, 20, 5)
    (inputs,), labels = data.train.batch(np.array([7, 3]))
    assert inputs[:, 0, 0, 0].tolist() == [7, 3]
    assert labels.tolist() == [2, 3]
    assert data.train.labels.tolist() == [i % 5 for i in range(20)]


@pytest.mark.parametrize("nested", [False, True])
def test_several_inputs_are_kept_apart_and_keep_their_types(nested):
    tokens, mask = torch.arange(6).reshape(2, 3), torch.ones(2, 3, dtype=torch.bool)
    items = Items([((t, m), 1) if nested else (t, m, 1) for t, m in zip(tokens, mask, strict=True)])
    data = from_datasets(items, items)
    batch = data.train.batch(np.array([1, 0]))
    assert data.input == "3,3"
    assert [value.dtype for value in batch.inputs] == [torch.int64, torch.bool]
    assert torch.equal(batch.inputs[0], tokens[[1, 0]])


def test_a_tensor_dataset_gives_what_its_items_give():
    x, y = torch.randn(10, 4), torch.arange(10)
    whole, single = DatasetSamples(TensorDataset(x, y)), DatasetSamples(Items(list(zip(x, y, strict=True))))
    for positions in (np.array([3]), np.array([9, 0, 4])):
        first, second = whole.batch(positions), single.batch(positions)
        assert torch.equal(first.inputs[0], second.inputs[0])
        assert torch.equal(first.labels, second.labels)
    assert whole.labels.tolist() == single.labels.tolist()


def test_a_subset_is_a_dataset_too():
    assert DatasetSamples(Subset(pairs(20), [4, 9, 11])).labels.tolist() == [4, 4, 1]


def test_targets_spare_reading_every_item_unless_they_are_transformed():
    plain, transformed = pairs(50), pairs(50)
    plain.targets = transformed.targets = [i % 5 for i in range(50)]
    transformed.target_transform = abs
    assert DatasetSamples(plain).labels.tolist() == DatasetSamples(transformed).labels.tolist()
    assert (plain.reads <= 4, transformed.reads > 50) == (True, True)


@pytest.mark.parametrize(
    "targets",
    [
        [9 - i % 5 for i in range(20)],
        [f"class {i % 5}" for i in range(20)],
        [[0] * (i % 3) for i in range(20)],
        [[i % 5] for i in range(20)],
        torch.tensor(3),
        [0, 1],
    ],
    ids=["others", "texts", "ragged", "columns", "one number", "too few"],
)
def test_targets_that_do_not_say_what_the_items_say_are_passed_over(targets):
    mapped = pairs(20)
    mapped.targets = targets
    assert DatasetSamples(mapped).labels.tolist() == [i % 5 for i in range(20)]


def test_a_tensor_dataset_with_items_of_its_own_is_read_item_by_item():
    class Normalised(TensorDataset):
        def __getitem__(self, index):
            values, label = super().__getitem__(index)
            return values - values.mean(), label + 1

    x, y = torch.randn(6, 4), torch.arange(6) % 3
    samples = DatasetSamples(Normalised(x, y))
    (inputs,), labels = samples.batch(np.arange(6))
    assert torch.equal(inputs, torch.stack([row - row.mean() for row in x]))
    assert labels.tolist() == samples.labels.tolist() == (y + 1).tolist()


def test_a_sample_that_cannot_be_read_is_one_sentence():
    class Failing(Items):
        def __getitem__(self, index):
            if index == 2:
                raise OSError("disk gone\nfor good")
            return super().__getitem__(index)

    items = Failing([(torch.zeros(2), torch.zeros(3))] * 4)
    data = from_datasets(items, items)
    with pytest.raises(
        DataError,
        match=r"^sample 2 of own data \(train\) can't be read "
        r"\(OSError: disk gone, at .*test_custom.py:\d+\); mend it",
    ):
        data.train.batch(np.arange(4))


@pytest.mark.parametrize("label", [0.5, torch.zeros(3), torch.tensor([1, 2])])
def test_labels_that_are_not_classes_are_allowed_and_have_no_classes(label):
    items = Items([(torch.zeros(2), label)] * 4)
    data = from_datasets(items, items)
    assert data.classes is None
    assert data.train.labels is None
    assert len(data.train.batch(np.arange(3)).labels) == 3
    with pytest.raises(DataError, match="not whole numbers"):
        from_datasets(items, items, classes=3)


@pytest.mark.parametrize("bad", [5, -1])
def test_a_label_outside_the_given_classes_is_refused(bad):
    items = Items([(torch.zeros(2), 0), (torch.zeros(2), bad)])
    with pytest.raises(DataError, match=f"sample 1 of 'own data' has label {bad}, but with 5 classes"):
        from_datasets(items, items, classes=5)


def test_a_negative_label_is_refused_when_classes_are_counted():
    items = Items([(torch.zeros(2), -1), (torch.zeros(2), 3)])
    with pytest.raises(DataError, match="label -1"):
        from_datasets(items, items)


def test_what_is_no_map_style_dataset_is_refused():
    class Endless(IterableDataset):
        def __iter__(self):
            yield from pairs(3)

    with pytest.raises(DataError, match=r"train\) is Endless, but must be a map-style dataset"):
        from_datasets(Endless(), pairs(3))
    with pytest.raises(DataError, match="no samples"):
        from_datasets(Items([]), pairs(3))
    with pytest.raises(DataError, match="must be \\(input, label\\)"):
        from_datasets(Items([torch.zeros(3)]), pairs(3))
    with pytest.raises(DataError, match="can't become tensors"):
        from_datasets(Items([("an image", 1)]), pairs(3))
    with pytest.raises(DataError, match="training samples of 3x4x4 but test samples of 2"):
        from_datasets(pairs(3), Items([(torch.zeros(2), 1)]))


def test_samples_of_different_shapes_cant_form_a_batch():
    data = from_datasets(Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), Items([(torch.zeros(2), 0)]))
    with pytest.raises(DataError, match="differ in shape"):
        data.train.batch(np.array([0, 1]))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current folder, as a user has it."""
    (tmp_path / "their_data.py").write_text(
        "import torch\n"
        "from torch.utils.data import TensorDataset\n"
        "from cutwater.data.custom import from_datasets\n"
        "def pair(count=8):\n"
        "    made = TensorDataset(torch.zeros(count, 2), torch.zeros(count, dtype=torch.int64))\n"
        "    return made, made\n"
        "def data():\n"
        "    return from_datasets(*pair(), classes=7)\n"
        "def wrong():\n"
        "    return 3\n"
        "value = 1\n"
    )
    (tmp_path / "their_broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("module")
def test_a_function_by_name_is_called_with_the_options():
    assert len(load("their_data:pair", options={"count": 3}).train) == 3
    assert load("their_data:data").classes == 7


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("no_such_module:pair", {}, "can't be imported"),
        ("their_data:nothing", {}, "can't be imported .*no attribute 'nothing'"),
        ("their_data:value", {}, "is int, but must be a function"),
        ("their_data:pair", {"size": 3}, "can't be called with options"),
        ("os:listdir", {"path": "nowhere"}, "options \\['path'\\] \\(FileNotFoundError: "),
        ("their_data:wrong", {}, "must return \\(train, test\\) datasets"),
        (":pair", {}, "can't be imported"),
        ("their_broken:pair", {}, "can't be imported .*ZeroDivisionError"),
    ],
)
def test_a_function_that_is_no_source_is_refused_by_name(source, options, reason):
    with pytest.raises(DataError, match=reason):
        load(source, options=options)


def test_values_by_name_beside_others_are_refused_with_what_is_wanted():
    sample = ({"ids": 1, "mask": 1}, 0)
    with pytest.raises(DataError, match=r"sample 0 of .* has values by name \(ids, mask.*make it one dict"):
        from_datasets([sample], [sample])
