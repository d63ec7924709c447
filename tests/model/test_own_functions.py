"""A user's own autograd functions: kept with their backward in a trace, or the model is refused."""

import threading

import pytest
import torch
from sample_models import Quantised, RoundStraight
from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.discover import own_functions
from cutwater.model.discover.layered import layered
from cutwater.model.discover.own_functions import autograd_functions_kept, functions_behind


class Clipped(torch.autograd.Function):
    """Makes no difference unless gradients are large, so no example shows that it was lost."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1e6, 1e6)


class Between(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.second(Clipped.apply(self.first(x)))


class Rounding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return RoundStraight.apply(self.linear(x))


class Within(nn.Module):
    """Has the function in its blocks only, which nobody looks into."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Rounding() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(params=[True, False], ids=["seen", "not seen"])
def seen(request, monkeypatch):
    """Whether torch lets tracers see calls of autograd functions."""
    assert own_functions.SEEN, "this torch does"
    monkeypatch.setattr(own_functions, "SEEN", request.param)
    return request.param


@pytest.mark.parametrize("model", [Quantised, Between])
def test_a_function_between_blocks_is_kept_or_the_model_is_refused_by_its_name(model, seen):
    torch.manual_seed(1)
    module, x = model(), torch.randn(4, 6)
    if not seen:
        with pytest.raises(
            ModelError, match=r"loses the .*backward of (RoundStraight|Clipped).*layers="
        ) as refused:
            layered(module, x)
        assert "\n" not in str(refused.value)
        return
    found = layered(module, x)
    assert len(found) > 1
    split = found.split(1)
    output = split.server(split.client(x))
    assert functions_behind([output]) == functions_behind([module(x)])
    assert torch.equal(output, module(x))


@pytest.mark.usefixtures("seen")
def test_a_function_within_blocks_needs_no_seeing():
    torch.manual_seed(1)
    module, x = Within(), torch.randn(4, 6)
    found = layered(module, x)
    assert len(found) == 3
    split = found.split(1)
    assert torch.equal(split.server(split.client(x)), module(x))


def own_apply():
    return vars(torch.autograd.Function)["apply"]


def test_afterwards_torchs_own_is_back_whatever_happened():
    before = own_apply()

    def fail():
        with autograd_functions_kept(lambda *_: (False, None)):
            assert own_apply() is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own_apply() is before


def test_what_another_thread_calls_is_not_this_tracers_business():
    asked, result = [], []
    x = torch.ones(3, requires_grad=True)
    with autograd_functions_kept(lambda cls, *_: (asked.append(cls), (True, "kept"))[1]):
        thread = threading.Thread(target=lambda: result.append(RoundStraight.apply(x)))
        thread.start()
        thread.join()
        assert asked == []
        assert RoundStraight.apply(x) == "kept"
    assert asked == [RoundStraight]
    result[0].sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_traces_in_two_threads_may_end_in_any_order():
    before = own_apply()
    open_, close = threading.Event(), threading.Event()
    x = torch.ones(3)

    def other():
        with autograd_functions_kept(lambda *_: (True, "other")):
            open_.set()
            assert close.wait(10)
            seen.append(RoundStraight.apply(x))

    seen = []
    thread = threading.Thread(target=other)
    with autograd_functions_kept(lambda *_: (True, "mine")):
        thread.start()
        assert open_.wait(10)
        seen.append(RoundStraight.apply(x))
    assert torch.equal(RoundStraight.apply(x), x), "this thread's trace is over"
    close.set()
    thread.join()
    assert seen == ["mine", "other"]
    assert own_apply() is before


def test_what_a_function_calls_in_turn_is_part_of_it():
    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return RoundStraight.apply(x)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    asked = []
    with autograd_functions_kept(lambda cls, *_: (asked.append(cls), (False, None))[1]):
        Outer.apply(torch.ones(3, requires_grad=True))
    assert asked == [Outer]
