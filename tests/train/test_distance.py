"""What is asked of every update at once is what would be found tensor by tensor."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutwater.train import exactsum
from cutwater.train.distance import Distance, TensorMeans
from cutwater.train.exactsum import in_rooms

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@pytest.fixture(autouse=True, scope="module")
def small_rooms():
    """Rooms of five numbers, so that tensors fill several, share one, and go from one into the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactsum, "ROOM", 5)
        yield


@st.composite
def states(draw, shapes=shapes):
    kinds = draw(st.lists(st.tuples(shapes, st.sampled_from(TYPES)), max_size=6))
    torch.manual_seed(draw(st.integers(0, 2**32)))
    return {f"w{place}": torch.randn(shape).to(dtype) for place, (shape, dtype) in enumerate(kinds)}


def norm(tensors):
    return math.sqrt(sum(float(each.double().square().sum()) for each in tensors))


@given(states())
def test_a_distance_is_that_of_all_tensors_together(reference):
    update = {
        name: (tensor + torch.randn_like(tensor)).t_().contiguous().t_()
        if tensor.dim() == 2
        else tensor + torch.randn_like(tensor)
        for name, tensor in reference.items()
    }
    before = {name: tensor.clone() for name, tensor in reference.items()}
    distance = Distance(reference, list(reference))
    moved = [update[name].double() - reference[name].double() for name in reference]
    for _ in range(2):
        assert distance.of(update) == pytest.approx(norm(moved), rel=1e-12)
    assert distance.norm == pytest.approx(norm(reference.values()), rel=1e-12)
    assert all(torch.equal(reference[name], before[name]) for name in before)


@given(states(st.lists(st.integers(1, 4), max_size=3).map(tuple)))
def test_means_and_smallest_numbers_are_those_of_each_tensor(state):
    of = TensorMeans(state, list(state))
    numbers = of.numbers(state)
    assert of.means(numbers) == pytest.approx([float(each.double().mean()) for each in state.values()])
    assert of.least(numbers) == [float(each.min()) for each in state.values()]


def test_a_number_that_is_none_is_seen_in_its_own_tensor_alone():
    state = {"good": torch.ones(3), "bad": torch.tensor([1.0, math.nan]), "last": torch.zeros(2)}
    of = TensorMeans(state, list(state))
    for found in (of.means(of.numbers(state)), of.least(of.numbers(state))):
        assert [math.isnan(value) for value in found] == [False, True, False]
    assert math.isnan(
        Distance({name: torch.zeros_like(t) for name, t in state.items()}, list(state)).of(state)
    )


@given(st.lists(st.integers(0, 17), max_size=8))
def test_rooms_hold_every_number_once_in_order(sizes):
    numbers = np.arange(sum(sizes), dtype=np.float32)
    parts = np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else []
    rooms = list(in_rooms(parts))
    assert [size for _, some in rooms if (size := len(some)) < 5] in ([], [len(numbers) % 5])
    assert all(np.array_equal(numbers[place], some) for place, some in rooms)
    assert sum(len(some) for _, some in rooms) == len(numbers)
