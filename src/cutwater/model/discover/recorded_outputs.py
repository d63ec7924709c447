"""What blocks returned when the model ran for real, so that tracing need not run them.

torch.export wants the shape of a block's result for sizes that may vary. Several real runs tell it at once,
and for blocks that decide by their data they alone can: a size that never changed is a constant, and one that
changed as a size of the block's input did is that size, or half of it, or whatever rule fits all runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.model.discover.example import Example
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import leaves_in, map_tensors, tensors_in

Shapes = list[torch.Size]


class UnknownOutputError(Exception):
    """Real runs don't tell what a block returns."""


@dataclass
class RecordedCall:
    """One call of a block, in one run after the other."""

    inputs: list[Shapes] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def like(self, tensors: Sequence[Tensor]) -> Any:
        """A result of the shape that these inputs would give, without contents."""
        plain = [leaves_in(map_tensors(lambda _: None, output), object) for output in self.outputs]
        if any(leaves != plain[0] for leaves in plain):
            raise UnknownOutputError("a block returns values other than tensors that vary")
        runs = iter(zip(*map(tensors_in, self.outputs), strict=True))

        def make(seen: Tensor) -> Tensor:
            shapes = [tensor.shape for tensor in next(runs)]
            return _empty(
                seen, [self._size(sizes, tensors) for sizes in zip(*shapes, strict=True)], tensors[0]
            )

        return map_tensors(make, self.outputs[0])

    def _size(self, seen: tuple[int, ...], tensors: Sequence[Tensor]) -> Any:
        if len(set(seen)) == 1:
            return seen[0]
        measured = [
            (tuple(shapes[index][dim] for shapes in self.inputs), (index, dim))
            for index, tensor in enumerate(tensors)
            if all(index < len(shapes) and len(shapes[index]) == tensor.ndim for shapes in self.inputs)
            for dim in range(tensor.ndim)
        ]
        for rule in _rules():
            for sizes, (index, dim) in measured:
                if tuple(map(rule, sizes)) == seen:
                    return rule(tensors[index].shape[dim])
        for (one, (i, a)), (other, (j, b)) in combinations(measured, 2):
            if i == j and tuple(x * y for x, y in zip(one, other, strict=True)) == seen:
                return tensors[i].shape[a] * tensors[j].shape[b]
        raise UnknownOutputError(
            f"a block returns a size of {seen[0]} that follows from no size of its inputs"
        )


def _rules() -> Iterator[Callable[[Any], Any]]:
    """What blocks do to a size: keep it, halve it and the like with rounding up or down, multiply it."""
    yield lambda size: size
    for factor in (2, 4, 8, 16, 32):
        yield lambda size, k=factor: (size + k - 1) // k  # type: ignore[misc]
        yield lambda size, k=factor: size // k  # type: ignore[misc]
        yield lambda size, k=factor: size * k  # type: ignore[misc]
    for more in (1, -1, 2, -2):
        yield lambda size, k=more: size + k  # type: ignore[misc]


def _empty(seen: Tensor, sizes: Sequence[Any], source: Tensor) -> Tensor:
    """A tensor of the given sizes with the dimensions in memory as they were seen."""
    order = sorted(range(seen.ndim), key=lambda dim: seen.stride()[dim], reverse=True)
    dense = source.new_empty([sizes[dim] for dim in order], dtype=seen.dtype)
    return dense.permute([order.index(dim) for dim in range(seen.ndim)])


def record_calls(
    module: nn.Module, blocks: frozenset[str], examples: Sequence[Example], training: bool
) -> dict[str, list[RecordedCall]]:
    """Run a model on each example and note what goes into its blocks and what comes out, call by call."""
    found: dict[str, list[RecordedCall]] = {path: [] for path in blocks}
    for example in examples:
        with untouched(module, training), torch.no_grad():
            for path, calls in found.items():
                _listen(module.get_submodule(path), calls)
            example.call(module)
    return found


def _listen(block: nn.Module, calls: list[RecordedCall]) -> None:
    """Note a block's calls in a run, the first with the first of the runs before, and so on."""
    # Those of the runs before: ``calls`` itself grows in this one.
    original, known = block.forward, iter(tuple(calls))

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        call = next(known, None)
        if call is None:
            call = RecordedCall()
            calls.append(call)
        call.inputs.append([tensor.shape for tensor in tensors_in((args, kwargs))])
        call.outputs.append(map_tensors(lambda tensor: tensor.detach(), output))
        return output

    block.forward = forward
