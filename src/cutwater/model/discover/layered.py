"""Find the layers of any nn.Module (paper, Sec. III-B).

Of a row of modules they are its members. Of everything else they come from the model's own code, traced with
its blocks as they are (fx first, torch.export where fx can't follow), in train and in eval mode. A trace that
does not compute what the model computes, bit for bit, at several batch sizes, is not used.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.chains import children_in_a_row, explicit_chain, is_row, row_of
from cutwater.model.discover.culprit import refusal
from cutwater.model.discover.example import Example, read_example
from cutwater.model.discover.same_outputs import CantTakeApartError
from cutwater.model.discover.search import Search
from cutwater.model.discover.switches import (
    compiled_code_run_as_written,
    describe_switches,
    find_switches,
    switched_off,
    without_compiler,
)
from cutwater.model.discover.unchanged import untouched
from cutwater.model.layers import Layered

GRANULARITIES = ("block", "fine")


def layered(
    module: nn.Module | Sequence[nn.Module],
    example_inputs: Any = None,
    *,
    layers: Sequence[nn.Module | Callable[[Any], Any] | str] | None = None,
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
        return explicit_chain(module, layers, example_inputs)
    if is_row(module) and granularity == "block":
        return row_of(module, example_inputs)
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
    with switched_off(switches):
        if switches and Search.succeeds(module, example, granularity):
            return describe_switches(switches)
    given = children_in_a_row(module, example)
    if not given:
        return ""
    return (
        "its children in a row compute the same on the example; if they do on all data, hand them over: "
        f"cutwater.layered(model, example, {given})"
    )
