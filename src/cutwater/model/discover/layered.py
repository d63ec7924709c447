"""Find the layers of any nn.Module (paper, Sec. III-B).

Of a row of modules they are its members. Of everything else they come from the model's own code, traced with
its blocks as they are (fx first, torch.export where fx can't follow), in train and in eval mode. A trace that
does not compute what the model computes, bit for bit, at several batch sizes, is not used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.blocks import is_operation, is_stage
from cutwater.model.discover.compiled import compiled_code_run_as_written, without_compiler
from cutwater.model.discover.culprit import refusal
from cutwater.model.discover.example import Example, read_example
from cutwater.model.discover.same_outputs import CantTakeApartError, MismatchError, check_runs, verify
from cutwater.model.discover.search import Search
from cutwater.model.discover.switches import describe_switches, find_switches, switched_off
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.program import chain
from cutwater.model.layers import Layer, Layered

GRANULARITIES = ("block", "fine")
GivenLayer = nn.Module | Callable[[Any], Any] | str


def layered(
    module: nn.Module | Sequence[nn.Module],
    example_inputs: Any = None,
    *,
    layers: Sequence[GivenLayer] | None = None,
    granularity: str = "block",
) -> Layered:
    """The layers of a model, to be split anywhere between them.

    ``example_inputs`` is a tensor, a tuple of tensors, or a dict of tensors by keyword; the client's half
    takes its inputs the same way. Of nn.Sequential the layers are its members, and no example is needed.

    ``granularity`` "block" offers a cut between two of the model's own blocks; "fine" offers one behind every
    operation. Where several tensors cross, they are a tuple. A model that can't be followed block by block is
    taken apart by operations.

    ``layers`` hands over the layers of a model that can't be traced, in the order they are called: its
    submodules, and functions without parameters in between.
    """
    if granularity not in GRANULARITIES:
        raise ModelError(f"granularity is {granularity!r}, but must be 'block' or 'fine'")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"{module.original_name} is a scripted module, which can't be taken apart: give the nn.Module "
            "that it was made from"
        )
    if isinstance(module, nn.Module):
        module = without_compiler(module)
    if layers is not None or not isinstance(module, nn.Module) or type(module) is nn.ModuleList:
        return _explicit_chain(module, layers, example_inputs)
    if _is_row(module) and granularity == "block":
        return _row_of(module, example_inputs)
    if example_inputs is None:
        raise ModelError(
            f"{type(module).__name__} is traced on example inputs, but none are given: "
            "pass a tensor, a tuple of tensors or a dict of tensors by keyword"
        )
    with untouched(module, wholly=True), compiled_code_run_as_written(module):
        return _search(module, read_example(module, example_inputs), granularity)


def _search(module: nn.Module, example: Example, granularity: str) -> Layered:
    """The layers by tracing; a refusal says what helps, as far as that can be tried."""
    try:
        search = Search(module, example, granularity)
        found = search.run()
        if found is None:
            raise refusal(module, search.failures) from search.failures[0]
        return found
    except CantTakeApartError as refused:
        remedy = _remedy(module, example, granularity)
        raise (refused.with_remedy(remedy) if remedy else refused) from refused.__cause__


def _remedy(module: nn.Module, example: Example, granularity: str) -> str:
    """What was tried and works; empty if nothing does."""
    switches = find_switches(module)
    with switched_off(switches), suppress(ModelError):
        if switches and Search(module, example, granularity).run() is not None:
            return describe_switches(switches)
    given = _children_in_a_row(module, example)
    if not given:
        return ""
    return (
        "its children in a row compute the same on the example; if they do on all data, hand them over: "
        f"cutwater.layered(model, example, {given})"
    )


def _is_row(module: nn.Module) -> bool:
    """Whether a module does nothing but call its members one after the other."""
    plain = type(module).forward is nn.Sequential.forward
    return plain and len(module._modules) > 0 and not (module._forward_hooks or module._forward_pre_hooks)


def _row_of(module: nn.Module, example_inputs: Any) -> Layered:
    """The layers of nn.Sequential: its members, and those of the stages among them."""
    if example_inputs is not None:
        example = read_example(module, example_inputs)
        check_runs(module, example.with_batch(min(example.batch, 2)), modes=(False,))
    return of_chain(module, list(_members(module, "")))


def _members(row: nn.Module, path: str) -> Iterator[str]:
    for name, child in row._modules.items():
        assert child is not None
        if type(child) is nn.Sequential and _is_row(child) and is_stage(child):
            yield from _members(child, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def _explicit_chain(
    module: nn.Module | Sequence[nn.Module], layers: Sequence[GivenLayer] | None, example_inputs: Any
) -> Layered:
    """Layers as the user lists them; with an example, checked against the model's own forward."""
    if not isinstance(module, nn.Module):
        members = list(module)
        if layers is not None or not all(isinstance(member, nn.Module) for member in members):
            raise ModelError(
                f"the model is a {type(module).__name__} that is no list of modules: give an nn.Module"
            )
        module = nn.Sequential(*members)
    given = list(module._modules) if layers is None else layers
    found = of_chain(module, [_named(module, step) for step in given])
    if example_inputs is not None and layers is not None:
        example = read_example(module, example_inputs)
        check_runs(module, example)
        forward = found.train_program.compile(0, len(found))
        try:
            verify(module, forward, forward, [example])
        except MismatchError as mismatch:
            raise ModelError(
                f"the layers handed over, called one after the other, don't compute what "
                f"{type(module).__name__} computes: {mismatch}"
            ) from mismatch
    return found


def _children_in_a_row(module: nn.Module, example: Example) -> str:
    """How to hand over the children of a model that calls them in order, as far as its example tells; or "".

    Only the user knows whether that holds for all data, so it is proposed and never done.
    """
    names = list(_steps(module))
    if len(names) < 2 or len(example.values) != 1:
        return ""
    found = of_chain(module, names)
    forward = found.train_program.compile(0, len(found))
    try:
        verify(module, forward, forward, [example, example.with_batch(example.batch + 1)])
    except Exception:
        return ""
    rows = (nn.Sequential, nn.ModuleList)
    given = [f"{'*' if isinstance(c, rows) else ''}model.{name}" for name, c in module.named_children()]
    return f"layers=[{', '.join(given)}]"


def _steps(module: nn.Module) -> Iterator[str]:
    """Children, and the members of rows among them."""
    for name, child in module.named_children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield from (f"{name}.{member}" for member in child._modules)
        else:
            yield name


def of_chain(module: nn.Module, steps: Sequence[str | Callable[[Any], Any]]) -> Layered:
    """The layers of submodules, by name, called one after the other; functions join the layer before."""
    names = [step for step in steps if isinstance(step, str)]
    if not names:
        raise ModelError("a model needs at least one layer, but the list of layers is empty")
    program = chain(steps, lambda name: _may_change_input(module.get_submodule(name)))
    return Layered(module, tuple(map(Layer, names)), program, program)


def _may_change_input(module: nn.Module) -> bool:
    """Whether a module might write into its input: torch's own say so, others might without saying."""
    parts = list(module.modules())
    known = all(is_operation(part) or isinstance(part, nn.Sequential) for part in parts)
    return not known or any(getattr(part, "inplace", False) for part in parts)


def _named(module: nn.Module, step: GivenLayer) -> str | Callable[[Any], Any]:
    """The name of a submodule; a function, or a module without state that is not part of the model, as is."""
    every = {name: part for name, part in module.named_modules(remove_duplicate=False) if name}
    if isinstance(step, str):
        if step not in every:
            raise ModelError(f"{type(module).__name__} has no submodule {step!r} to be a layer")
        return step
    found: str | None = next((name for name, part in every.items() if part is step), None)
    if found is not None:
        return found
    if isinstance(step, nn.Module) and (step.state_dict() or list(step.parameters())):
        raise ModelError(
            f"the layer {type(step).__name__} is no part of {type(module).__name__}: "
            "only its own submodules and functions without parameters can be layers"
        )
    if not callable(step):
        raise ModelError(
            f"the list of layers holds {step!r}, but must hold modules of the model and functions"
        )
    return _function(step)


def _function(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A callable under a name, as a graph wants it."""

    def call(value: Any) -> Any:
        return step(value)

    return call
