"""Partitions: disjoint, of the sizes asked for, the same everywhere."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import DataError
from cutwater.data.partition import Partition
from cutwater.data.share_out import METHODS, PAPER_SIZES, partition


def names(count):
    return [f"c{number}" for number in range(1, count + 1)]


def parts_of(made):
    return [made[client] for client in made.clients]


@st.composite
def tasks(draw):
    """(labels, clients, samples or None, options): anything that can be shared out."""
    classes = draw(st.integers(1, 12))
    available = draw(st.integers(1, 400))
    labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, classes, available)
    clients = draw(st.integers(1, min(available, 20)))
    samples = None
    if draw(st.booleans()):
        bounds = st.integers(1, max(available // clients, 1))
        samples = draw(st.lists(bounds, min_size=clients, max_size=clients))
    options = {
        "method": draw(st.sampled_from(METHODS)),
        "seed": draw(st.integers(0, 2**32)),
        "alpha": draw(st.sampled_from([0.01, 0.5, 100.0])),
        "shards": draw(st.integers(1, 5)),
        "local_test": draw(st.sampled_from([None, 0.0, 0.25, 0.9])),
    }
    return labels, names(clients), samples, options


@settings(deadline=None, max_examples=150)
@given(tasks())
def test_clients_hold_disjoint_samples_of_the_sizes_asked_for(task):
    labels, clients, samples, options = task
    made = partition(len(labels), labels, clients, samples=samples, **options)
    held = [np.concatenate(part) for part in parts_of(made)]
    together = np.concatenate(held)
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < len(labels)
    assert all(len(part.train) >= 1 for part in parts_of(made))
    if samples is not None:
        assert [len(part) for part in held] == samples
    elif options["method"] != "paper":
        assert len(together) == len(labels), "everything is shared out"
        assert max(map(len, held)) - min(map(len, held)) <= 1


@settings(deadline=None, max_examples=50)
@given(tasks())
def test_a_partition_is_a_function_of_its_arguments(task):
    labels, clients, samples, options = task
    first, second = (partition(len(labels), labels, clients, samples=samples, **options) for _ in range(2))
    for one, other in zip(parts_of(first), parts_of(second), strict=True):
        assert np.array_equal(one.train, other.train)
        assert np.array_equal(one.test, other.test)


@pytest.mark.parametrize("method", METHODS)
def test_another_seed_gives_another_partition(method):
    labels = np.arange(1000) % 10
    first, second = (partition(1000, labels, names(4), method=method, seed=seed) for seed in (1, 2))
    assert not np.array_equal(first["c1"].train, second["c1"].train)


DIGEST = """
import hashlib, numpy as np
from cutwater.data.share_out import METHODS, partition
labels = np.arange(3000) ** 2 % 7
digest = hashlib.sha256()
for method in METHODS:
    made = partition(3000, labels, [f"c{i}" for i in range(1, 21)], method=method, seed=5)
    for client in made.clients:
        digest.update(made[client].train.tobytes() + made[client].test.tobytes())
print(digest.hexdigest())
"""


def test_another_process_makes_the_same_partition():
    hashes = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("clients", [1, 7, 30])
def test_the_papers_partition_of_mnist(clients):
    # The true class counts of MNIST's training set.
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), counts))
    made = partition(60_000, labels, names(clients), method="paper", seed=3)
    sizes = [len(part.train) + len(part.test) for part in parts_of(made)]
    assert max(sizes) == PAPER_SIZES[1]
    assert min(sizes) == (PAPER_SIZES[0] if clients > 1 else PAPER_SIZES[1])
    for row, size in zip(made.table(labels), sizes, strict=True):
        assert row.test == size // 4
        assert row.train == size - row.test
        assert np.allclose(row.classes, np.array(counts) * size / 60_000, atol=3), "each class spread evenly"


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(30, 2000), st.integers(2, 20), st.integers(0, 99))
def test_the_papers_partition_spreads_every_class_evenly(classes, available, clients, seed):
    labels = np.random.default_rng(seed).integers(0, classes, available)
    counts = np.bincount(labels)
    made = partition(available, labels, names(clients), seed=seed)
    for row in made.table(labels):
        fair = counts * (row.train + row.test) / available
        assert np.all(np.abs(row.classes - fair) <= 2 + np.count_nonzero(counts) * counts / available)


def test_the_papers_sizes_shrink_with_the_data():
    made = partition(1442, np.arange(1442) % 10, names(30), seed=1)
    sizes = np.sort([row.train + row.test for row in made.table(None)])
    assert 1442 - 30 <= sizes.sum() <= 1442
    assert sizes[-1] / sizes[0] == pytest.approx(PAPER_SIZES[1] / PAPER_SIZES[0], rel=0.15)


def test_many_small_clients_all_get_something():
    made = partition(100, np.arange(100) % 10, names(100), seed=1)
    assert all(len(part.train) == 1 for part in parts_of(made))


def test_a_quarter_is_kept_for_local_tests_at_random():
    labels = np.arange(4000) % 10
    made = partition(4000, labels, ["a"], samples=[4000], method="paper", seed=9)
    part = made["a"]
    assert (len(part.train), len(part.test)) == (3000, 1000)
    assert np.bincount(labels[part.test]).std() > 0, "random, not taken class by class"


def test_a_small_alpha_skews_and_a_large_one_does_not():
    labels = np.arange(6000) % 10

    def largest_share(alpha):
        rows = partition(6000, labels, names(20), method="dirichlet", alpha=alpha, seed=2).table(labels)
        return np.mean([max(row.classes) / sum(row.classes) for row in rows])

    skewed, mixed = largest_share(0.05), largest_share(1000.0)
    assert skewed > 0.5
    assert mixed < 0.13


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_limit_the_classes_of_a_client(shards):
    labels = np.random.default_rng(1).permutation(np.arange(5000) % 10)
    rows = partition(5000, labels, names(25), method="shards", shards=shards, seed=4).table(labels)
    # A run of 200 / shards samples is shorter than a class, so that it touches two classes at most.
    assert max(np.count_nonzero(row.classes) for row in rows) <= 2 * shards
    assert sum(sum(row.classes) for row in rows) == 5000


def test_iid_needs_no_classes_and_the_others_say_that_they_do():
    assert len(partition(10, None, names(2), method="iid")["c1"].train) == 5
    assert partition(10, None, names(2), method="iid").table(None)[0].classes == ()
    for method in ("paper", "dirichlet", "shards"):
        with pytest.raises(DataError, match=f"'{method}' needs labels that are classes, .* use DataSettings"):
            partition(10, None, names(2), method=method)


def test_a_client_without_samples_is_refused_by_name():
    labels = np.arange(50) % 10
    with pytest.raises(DataError, match="client 'c2' has 0 samples"):
        partition(50, labels, names(3), samples=[5, 0, 5])
    with pytest.raises(DataError, match="client 'c51' would have no samples: there are 60 clients but 50"):
        partition(50, labels, names(60))
    with pytest.raises(DataError, match="no clients"):
        partition(50, labels, [])


def test_more_samples_than_there_are_is_refused_unless_they_may_shrink():
    labels = np.arange(100) % 10
    with pytest.raises(
        DataError, match=r"1,200 samples together, but the source has 100; .*DataSettings\(scale=True\)"
    ):
        partition(100, labels, names(2), samples=[900, 300])
    made = partition(100, labels, names(2), samples=[900, 300], scale=True, local_test=0.0)
    assert [len(made[client].train) for client in made.clients] == [75, 25]


@pytest.mark.parametrize("size", [2**40, 2**62, 2**63 - 1])
def test_sizes_of_any_magnitude_shrink_in_proportion(size):
    labels = np.arange(100) % 10
    made = partition(100, labels, names(3), samples=[size, size // 2, size // 2], scale=True, local_test=0.0)
    assert [len(part.train) for part in parts_of(made)] == pytest.approx([50, 25, 25], abs=1)
    with pytest.raises(DataError, match="samples together, but the source has 100"):
        partition(100, labels, names(3), samples=[size] * 3)


def test_more_shards_than_anybody_could_lay_are_refused():
    labels = np.arange(100) % 10
    with pytest.raises(DataError, match="shards is 100,000,000,000, but must be at most 5,000,000 for 2"):
        partition(100, labels, names(2), method="shards", shards=10**11)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(DataError, match="did you mean 'dirichlet'"):
        partition(10, None, ["a"], method="dirichlett")
    with pytest.raises(DataError, match="did you mean 'phone-1'"):
        partition(10, None, ["phone-1"], method="iid")["phone1"]


def test_a_hundred_thousand_clients_cost_their_indices_only():
    import tracemalloc

    clients = names(100_000)
    labels = np.random.default_rng(0).integers(0, 10, 200_000)
    tracemalloc.start()
    try:
        made = partition(200_000, labels, clients, method="iid")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 * 200_000 + 8 * 100_000 + 2**20, "four bytes a sample, eight and a name a client"
    assert len(made["c77777"].train) == 2


def test_a_clients_samples_do_not_depend_on_who_was_asked_before():
    labels = np.arange(500) % 10
    first, second = (partition(500, labels, names(5), seed=1) for _ in range(2))
    first["c1"], first["c3"]
    assert hashlib.sha256(first["c2"].train).digest() == hashlib.sha256(second["c2"].train).digest()


@pytest.mark.parametrize("classes", [1, 3])
def test_a_very_small_alpha_gives_each_client_one_class_as_long_as_there_is_any_left(classes):
    labels = np.tile(np.arange(classes), 200)
    for seed in range(30):
        made = partition(
            len(labels), labels, names(4), samples=[10] * 4, method="dirichlet", alpha=1e-4, seed=seed
        )
        for row in made.table(labels):
            assert sorted(row.classes) == [0] * (classes - 1) + [10]


@pytest.mark.parametrize("method", ["paper", "shards", "dirichlet"])
def test_labels_that_are_no_numbers_of_classes_are_refused(method):
    labels = np.array([0, 1, 10**13, 2] * 10)
    with pytest.raises(DataError, match="label 10000000000000; number them from 0 on"):
        partition(len(labels), labels, ["a", "b"], method=method)


def test_a_partition_of_ones_own_gives_each_client_its_positions():
    made = Partition.of({"a": [7, 3], "b": range(3), "c": np.array([9])})
    assert [part.train.tolist() for part in (made["a"], made["b"], made["c"])] == [[3, 7], [0, 1, 2], [9]]
    assert len(Partition.of({"a": range(8)}, local_test=0.25)["a"].test) == 2
    made.check_fits(["a", "b", "c"], [2, 3, 1], 10)


@pytest.mark.parametrize("held", [[], [0.5], [[1, 2]], ["1"]])
def test_what_a_client_holds_must_be_a_list_of_positions(held):
    with pytest.raises(DataError, match="client 'a' must hold a list of positions"):
        Partition.of({"a": held})
    with pytest.raises(DataError, match=r"0 clients .* needs a client"):
        Partition.of({})


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({"a": [0, 1]}, "of the fleet differ in 'b'"),
        ({"a": [0, 1], "b": [2], "x": [3]}, "of the fleet differ in 'x'"),
        ({"b": [2], "a": [0, 1]}, "of the fleet are in another order"),
        ({"a": [0, 1, 2], "b": [2]}, "client 'a' has samples 2, but the partition gives it 3"),
        ({"a": [0, 10], "b": [2]}, "the partition has position 10, but there are samples 0 to 9"),
        ({"a": [0, 2**40], "b": [2]}, "the partition has position 2147483647, but"),
        ({"a": [0, -1], "b": [2]}, "the partition has position -1, but there are samples 0 to 9"),
    ],
)
def test_a_partition_that_does_not_fit_is_refused(held, said):
    with pytest.raises(DataError, match=said):
        Partition.of(held).check_fits(["a", "b"], [2, 1], 10)
