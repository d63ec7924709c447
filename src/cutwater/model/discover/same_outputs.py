"""A traced model is only used if it computes what the model computes, bit for bit."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import isnan
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.example import Example
from cutwater.model.discover.own_functions import functions_behind
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import all_leaves, kind_of, tensors_in
from cutwater.model.graph.program import Forward
from cutwater.model.randomness import outside_states

Outputs = dict[str, Any]
"""Tensors by name; under :data:`_KIND` what else is to be the same."""

_OWN = "backward of "
_KIND = "kind of output"
ROUNDING = 1e-4
"""How far a result may lie from another kernel's, relative to its size."""


class CantTakeApartError(ModelError):
    """A model that can't be taken apart: why, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason

    def with_remedy(self, remedy: str) -> "CantTakeApartError":
        """The same, with something better to do."""
        return CantTakeApartError(self.reason, remedy)


class MismatchError(Exception):
    """What a traced model does otherwise than the model itself."""


def verify(
    module: nn.Module,
    train: Forward,
    evaluate: Forward,
    examples: Sequence[Example],
    *,
    blind: bool = False,
) -> bool:
    """Compare traced forwards with the model's own: outputs, running statistics, gradients and own backwards.

    Both draw from the same generator, so dropout has to agree as well. The answer is whether all bits are the
    same; the same function by another of torch's kernels differs by rounding. More than that is an error. A
    model without contents is compared by shapes, or not at all (``blind``) if it wants to see some.
    """
    exact = True
    for training, traced in ((True, train), (False, evaluate)):
        for index, example in enumerate(examples):
            where = f"in {'train' if training else 'eval'} mode with a batch of {example.batch}"
            learns = training and index == 0
            try:
                expected = None if blind else run(module, partial(example.call, module), training, learns)
            except Exception:
                if index == 0:
                    raise
                continue  # a variation of the example that the model itself refuses
            try:
                result = run(module, partial(traced, module, *example.values), training, learns)
            except Exception as error:
                raise MismatchError(f"the traced forward fails {where}: {first_line(error)}") from error
            exact &= expected is None or _compare(result, expected, where)
    return exact


def run(module: nn.Module, call: Callable[[], Any], training: bool, learns: bool) -> Outputs:
    """Outputs, buffers and (if asked for) gradients of one forward; the model is left as it was."""
    with untouched(module, training), torch.enable_grad():
        torch.manual_seed(0)
        returned = call()
        outputs = tensors_in(returned)
        result: Outputs = {_KIND: (kind_of(returned), [_plain(leaf) for leaf in all_leaves(returned)])}
        result |= {f"output {index + 1}": value.detach() for index, value in enumerate(outputs)}
        result |= {f"buffer {name}": value.detach().clone() for name, value in module.named_buffers()}
        loss = _loss(outputs)
        if learns and loss is not None:
            learned = {name: p for name, p in module.named_parameters() if p.requires_grad}
            found = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
            result |= {f"gradient of {name}": g for name, g in zip(learned, found, strict=True)}
            calls = Counter(functions_behind(outputs))
            result |= {f"{_OWN}{name}": torch.tensor(float(count)) for name, count in calls.items()}
    return result


def _loss(outputs: Sequence[Tensor]) -> Tensor | None:
    """A number that every output with a gradient has a part in."""
    parts = [value.abs().square().sum() for value in outputs if value.requires_grad]
    return torch.stack(parts).sum() if parts else None


def _compare(result: Outputs, expected: Outputs, where: str) -> bool:
    """Whether results are equal; an error if they are further apart than rounding."""
    expected, result = dict(expected), dict(result)
    kind, found_kind = expected.pop(_KIND), result.pop(_KIND)
    if kind != found_kind:
        raise MismatchError(f"the traced forward returns another kind of value {where}")
    for name in expected:
        # It may make no difference to the example, yet to others: one that clips what is large, say.
        if name.startswith(_OWN) and result.get(name) != expected[name]:
            raise MismatchError(
                f"the traced forward loses the {name}, an autograd function of the model, {where}"
            )
    if result.keys() != expected.keys():
        raise MismatchError(f"the traced forward returns something else {where}")
    exact = True
    for name, value in expected.items():
        found = result[name]
        if found is None or value is None:
            equal = close = found is value
        else:
            equal = _equal(found, value)
            close = equal or _is_close(found, value, _scale(expected, name))
        if not close:
            raise MismatchError(f"{name} differs {where}")
        exact &= equal
    return exact


def _plain(leaf: Any) -> Any:
    """A number or word as it is; of everything else the type is compared."""
    counts = isinstance(leaf, (bool, int, str)) or (isinstance(leaf, float) and not isnan(leaf))
    return leaf if counts else None


def _equal(value: Tensor, expected: Tensor) -> bool:
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return False
    if expected.is_meta or value.is_meta:
        return True
    return torch.allclose(value, expected, rtol=0, atol=0, equal_nan=True)


def _is_close(value: Tensor, expected: Tensor, scale: float) -> bool:
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return False
    finite = torch.equal(value.isfinite(), expected.isfinite())
    return finite and _norm(value.double() - expected.double()) <= ROUNDING * scale


def _scale(results: Outputs, name: str) -> float:
    """The size of the largest result of a kind: a gradient that should be zero is all rounding."""
    kind = name.split(maxsplit=1)[0]
    return max(_norm(v) for n, v in results.items() if v is not None and n.split()[0] == kind)


def _norm(value: Tensor) -> float:
    return float(value.double().nan_to_num(0, 0, 0).norm())


def check_runs(module: nn.Module, example: Example, modes: Sequence[bool] = (True, False)) -> None:
    """Refuse a model that fails on its example, or whose random numbers no seed of torch controls."""
    for training in modes:
        with untouched(module, training, wholly=True), torch.no_grad():
            before = outside_states()
            try:
                example.call(module)
            except Exception as error:
                raise ModelError(
                    f"{type(module).__name__} fails on {example.describe()}: {first_line(error)}"
                ) from error
            if outside_states() != before:
                raise CantTakeApartError(
                    f"{type(module).__name__} draws from the random generators of Python or NumPy in its "
                    "forward, which differ on every device",
                    "draw with torch instead, such as torch.rand",
                )


def first_line(error: BaseException) -> str:
    """The message of an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
