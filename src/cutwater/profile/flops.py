"""Two ways of counting floating-point operations, as formulas for torch's operators.

``EXACT`` counts what convolutions, matrix products, attention and recurrent layers really execute, forward
and backward; a multiply-add is two FLOPs, and elementwise work is left out, as is usual. It starts from
torch's own registry and mends what that gets wrong: the backward pass of a grouped convolution ignores the
groups, and CPU flash attention, recurrent layers and matrix-vector products count as nothing.

``PAPER`` is the count behind the paper's numbers, torchinfo's mult-adds (× 2): the parameters of each
convolution and linear layer times the positions of its output, plus each normalisation's weight and bias
once for a sample. It has no backward pass, which the paper takes as κ times the forward pass (eq. (24)), and
it does not see attention: for anything but convolutional networks use ``EXACT``.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from cutwater.model.zoo.convolution import convolutions_as_such

aten = torch.ops.aten

Formula = Callable[..., int]
"""FLOPs of a call: takes the operator's arguments and, as ``out_val``, its result."""
Formulas = Mapping[Any, Formula]


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the FLOPs of every operator that runs inside it, autograd's included.

    And sees whether the same sample would come out the same another time: not where one draws, as dropout
    does, nor where one goes by the other samples of a mini-batch, as batch normalisation in training does.
    """

    def __init__(self, formulas: Formulas) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.formulas = formulas
        self.flops, self.varies = 0, False
        self._as_such = ExitStack()

    def __enter__(self) -> "OperatorCounter":
        self._as_such.enter_context(convolutions_as_such())
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._as_such.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and count it."""
        result = func(*args, **(kwargs or {}))
        formula = self.formulas.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=result))
        self.varies = self.varies or _varies(func, args, kwargs or {})
        return result


def _varies(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator draws, or normalises by the mini-batch at hand."""
    draws, places = _signature(func)

    def given(name: str) -> Any:
        place = places.get(name, len(args))
        return args[place] if place < len(args) else kwargs.get(name)

    # Attention may draw, and says so by its tag; whether it does is up to its dropout.
    return (draws and ("dropout_p" not in places or bool(given("dropout_p")))) or given("training") is True


@cache
def _signature(func: Any) -> tuple[bool, Mapping[str, int]]:
    """Whether an operator can draw, and the places of its arguments by name."""
    names = [argument.name for argument in func._schema.arguments]
    return torch.Tag.nondeterministic_seeded in func.tags, {name: place for place, name in enumerate(names)}


def _convolution(x: Tensor, weight: Tensor, bias: Any, *rest: Any, out_val: Tensor, **_: Any) -> int:
    """Each weight meets each position of the output once (of the input, where transposed)."""
    transposed = rest[3] if len(rest) > 3 else False
    meeting = x if transposed else out_val
    return 2 * meeting.shape[0] * prod(meeting.shape[2:]) * weight.numel()


def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, out_val: Any, **_: Any) -> int:
    """One convolution for each gradient that is wanted, of the input and of the weight.

    Both are made of the very multiply-adds of the forward pass, so groups need no thought.
    """
    transposed = rest[4]
    meeting = x if transposed else grad
    wanted = sum(part is not None for part in out_val[:2])
    return wanted * 2 * meeting.shape[0] * prod(meeting.shape[2:]) * weight.numel()


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Two products: scores = Q·Kᵀ and scores·V; a causal mask is counted as if it were full."""
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    return 2 * pairs * (query.shape[-1] + value.shape[-1])


def _attention_backward(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    """Five products, because flash attention makes the scores again: Q·Kᵀ, dP, dV, dQ, dK."""
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    return 2 * pairs * (3 * query.shape[-1] + 2 * value.shape[-1])


def _recurrent(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_: Any, **__: Any) -> int:
    """Each weight is used once at each step of each sequence."""
    return 2 * prod(x.shape[:-1]) * (w_input.numel() + w_hidden.numel())


def _each_once(first: Tensor, *_: Any, **__: Any) -> int:
    """Each number of a matrix meets one of a vector, each of a vector one of another."""
    return 2 * first.numel()


EXACT: Formulas = {
    **flop_registry,
    aten.convolution: _convolution,
    aten._convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten.mkldnn_rnn_layer: _recurrent,
    # Once for the gradients of the inputs and once for those of the weights.
    aten.mkldnn_rnn_layer_backward: lambda *layer, **named: 2 * _recurrent(*layer, **named),
    aten.mv: _each_once,
    aten.addmv: lambda bias, matrix, vector, **_: _each_once(matrix),
    aten.dot: _each_once,
    aten.vdot: _each_once,
}
"""What really runs."""


def _paper_weights(x: Tensor, *parameters: Tensor | None) -> int:
    """Every parameter once for each row of the input."""
    return 2 * x.shape[0] * sum(parameter.numel() for parameter in parameters if parameter is not None)


def _paper_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *_: Any, **kwargs: Any) -> int:
    out: Tensor = kwargs["out_val"]
    return prod(out.shape[2:]) * _paper_weights(out, weight, bias)


def _paper_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *_: Any, **__: Any) -> int:
    return _paper_weights(x, weight, bias)


PAPER: Formulas = {
    aten.convolution: _paper_convolution,
    aten.addmm: lambda bias, x, weight, **_: _paper_weights(x, weight, bias),
    aten.mm: lambda x, weight, **_: _paper_weights(x, weight),
    aten.native_batch_norm: _paper_norm,
    aten._native_batch_norm_legit: _paper_norm,
    aten.native_group_norm: _paper_norm,
    aten.native_layer_norm: lambda x, shape, *parameters, **_: _paper_norm(x, *parameters),
}
"""torchinfo's mult-adds, twice; torchinfo itself takes a linear layer once for a whole sequence."""
