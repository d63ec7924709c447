"""Layers that are called one after the other: of nn.Sequential, or handed over as a list."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.blocks import is_operation, is_stage
from cutwater.model.discover.example import Example, read_example
from cutwater.model.discover.same_outputs import MismatchError, check_runs, verify
from cutwater.model.graph.program import chain
from cutwater.model.layers import Layer, Layered

GivenLayer = nn.Module | Callable[[Any], Any] | str


def is_row(module: nn.Module) -> bool:
    """Whether a module does nothing but call its members one after the other."""
    plain = type(module).forward is nn.Sequential.forward
    return plain and len(module._modules) > 0 and not (module._forward_hooks or module._forward_pre_hooks)


def row_of(module: nn.Module, example_inputs: Any) -> Layered:
    """The layers of nn.Sequential: its members, and those of the stages among them."""
    if example_inputs is not None:
        example = read_example(module, example_inputs)
        check_runs(module, example.with_batch(min(example.batch, 2)), modes=(False,))
    return of_chain(module, list(_members(module, "")))


def _members(row: nn.Module, path: str) -> Iterator[str]:
    for name, child in row._modules.items():
        assert child is not None
        if type(child) is nn.Sequential and is_row(child) and is_stage(child):
            yield from _members(child, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def explicit_chain(
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
        _check(module, found, example_inputs)
    return found


def children_in_a_row(module: nn.Module, example: Example) -> str:
    """How to hand over the children of a model that calls them in order, as far as its example tells; or "".

    Only the user knows whether that holds for all data, so it is proposed and never done.
    """
    names = list(_steps(module, ""))
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


def _steps(module: nn.Module, path: str) -> Iterator[str]:
    """Children, and the members of rows among them."""
    for name, child in module.named_children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield from (f"{path}{name}.{member}" for member in child._modules)
        else:
            yield f"{path}{name}"


def of_chain(module: nn.Module, steps: Sequence[str | Callable[[Any], Any]]) -> Layered:
    """The layers of submodules, by name, called one after the other; functions join the layer before."""
    names = [step for step in steps if isinstance(step, str)]
    if not names:
        raise ModelError("a model needs at least one layer, but the list of layers is empty")
    program = chain(steps, lambda name: may_change_input(module.get_submodule(name)))
    return Layered(module, tuple(map(Layer, names)), program, program)


def may_change_input(module: nn.Module) -> bool:
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


def _check(module: nn.Module, found: Layered, example_inputs: Any) -> None:
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
