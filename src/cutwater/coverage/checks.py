"""What must hold of a model that was taken apart, and what became of one model.

Forward, loss and gradients have the bits of the whole at the first, the middle and the last cut, in train and
in eval mode, at other batch sizes and lengths; the output is what the model itself returns; the user's model
is as it was; and the joined halves are the model again.
"""

import copy
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import nn

from cutwater.base.errors import ModelError
from cutwater.coverage.case import Case, Result
from cutwater.coverage.compare import (
    Flat,
    WrongError,
    explain_difference,
    fingerprint,
    flat,
    kind_of,
    loss_of,
)
from cutwater.coverage.one_step import Place, backward, copied, places, step
from cutwater.model.discover.blocks import find_blocks
from cutwater.model.discover.layered import layered
from cutwater.model.halves import join, join_states
from cutwater.model.layers import Layered
from cutwater.plan.places import shown_cuts
from cutwater.profile.count import profile_layered
from cutwater.profile.walk import call

BATCH, OTHER_BATCH = 2, 3
FEW, MANY_BLOCKS = 2, 4
"""So many cuts are few for so many blocks."""
_SETTING = re.compile(r"(model[\w.]*)\.(\w+) = (True|False|[\d.]+)")
_LAYERS = re.compile(r"layers=\[(model[^\]]*)\]")
_VALUES = {"True": True, "False": False}


def check(case: Case) -> Result:
    """Take a model apart and try it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    result = Result(case.library, case.name)
    try:
        model = case.build()
        inputs = case.inputs(BATCH, case.sizes[0])
        own = _own_run(model, inputs, training=False)
    except Exception as error:
        return result.ends("skipped", f"the model itself fails: {type(error).__name__}: {_line(error)}")
    result.blocks = sum(any(True for _ in model.get_submodule(b).parameters()) for b in find_blocks(model))
    before = fingerprint(model)
    start = time.perf_counter()
    try:
        found = layered(model, inputs)
    except ModelError as error:
        changed = explain_difference(fingerprint(model), before)
        if changed:
            return result.ends("wrong", f"refused, and the user's model is not as it was: {changed}")
        result.remedy = try_remedy(str(error), model, inputs)
        return result.ends("refused", _line(error))
    except Exception as error:
        return result.ends("wrong", f"layered fails: {type(error).__name__}: {_line(error)}")
    result.seconds = time.perf_counter() - start
    try:
        changed = explain_difference(fingerprint(model), before)
        if changed:
            raise WrongError(f"the user's model is not as it was: {changed}")
        if explain_difference(_own_run(model, inputs, training=False), own):
            raise WrongError("the user's model does not compute what it did")
        _check_cuts(case, result, found, inputs)
    except WrongError as error:
        return result.ends("wrong", str(error))
    return result


def try_remedy(refusal: str, model: nn.Module, inputs: Any) -> str:
    """Whether what a refusal proposes helps, done as printed; "general" where it names nothing to try."""
    settings, layers = _SETTING.findall(refusal), _LAYERS.search(refusal)
    if not settings and layers is None:
        return "general"
    for path, name, value in settings:
        setattr(_at(model, path), name, _VALUES[value] if value in _VALUES else float(value))
    try:
        layered(model, inputs, layers=_steps(model, layers[1]) if layers is not None else None)
    except ModelError as error:
        return f"fails: {error}"
    return "works"


def _steps(model: nn.Module, text: str) -> list[nn.Module]:
    steps: list[nn.Module] = []
    for path in text.split(", "):
        found = _at(model, path.removeprefix("*"))
        steps += list(found) if path.startswith("*") else [found]
    return steps


def _at(model: nn.Module, path: str) -> Any:
    """What ``model.a.b`` stands for."""
    return reduce(getattr, path.split(".")[1:], model)


def _check_cuts(case: Case, result: Result, found: Layered, inputs: Any) -> None:
    result.exact, result.layers, where = found.exact, len(found), places(found)
    result.cuts = len({cut for place in where for cut in place if cut})
    result.tied = any(second for _, second in where)
    chosen = sorted({where[0], where[len(where) // 2], where[-1]}) if where else []
    _check_batch(found, chosen, inputs, "", loosely=not found.exact)
    other = case.inputs(OTHER_BATCH, case.sizes[0])
    _check_batch(found, chosen, other, f"with a batch of {OTHER_BATCH}", loosely=not found.exact)
    for size in case.sizes[1:]:
        _check_size(result, found, chosen, case.inputs(BATCH, size), size)
    for place in chosen:
        _check_join(found, place)
    _check_profile(found, inputs)
    if result.cuts <= FEW and result.blocks >= MANY_BLOCKS:
        result.ends("few cuts", f"{result.cuts} cuts of {result.blocks} blocks")


def _check_batch(found: Layered, chosen: list[Place], inputs: Any, where: str, *, loosely: bool) -> None:
    """From cut to cut bit for bit; against the model's own forward so, or up to rounding (``loosely``)."""
    for training in (True, False):
        mode = f"in {'train' if training else 'eval'} mode {where}".rstrip()
        with _named(f"the whole fails {mode}"):
            whole = step(found, (len(found), 0), inputs, training)
        for place in chosen:
            with _named(f"{shown_cuts(*place)} fails {mode}"):
                one = step(found, place, inputs, training)
            _same(one, whole, f"at {shown_cuts(*place)} {mode}")
        expected = _own_run(found.module, inputs, training)
        whole_alone = _whole_run(found, inputs, training)
        _same(whole_alone, expected, f"from the model's own {mode}", loosely)


def _check_size(result: Result, found: Layered, chosen: list[Place], inputs: Any, size: int) -> None:
    try:
        for training in (True, False):
            _own_run(found.module, inputs, training)
    except Exception:
        return  # the model itself takes no other size
    result.other_size = "works"
    try:
        _whole_run(found, inputs, training=False)
    except ModelError as error:
        result.other_size = f"refused: {_line(error)}"
        return
    except Exception as error:
        raise WrongError(f"fails at size {size} with {type(error).__name__}: {_line(error)}") from error
    try:
        # What is exact was seen at the example's size: at another one, torch may take other kernels.
        _check_batch(found, chosen, inputs, f"at size {size}", loosely=True)
    except ModelError as error:
        result.other_size = f"refused: {_line(error)}"


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except (WrongError, ModelError):
        raise
    except Exception as error:
        raise WrongError(f"{what}: {type(error).__name__}: {_line(error)}") from error


def _same(one: Flat, other: Flat, where: str, loosely: bool = False) -> None:
    difference = explain_difference(one, other, loosely)
    if difference:
        raise WrongError(f"{difference} {where}")


def _whole_run(found: Layered, inputs: Any, training: bool) -> Flat:
    client = copied(found).split(len(found)).client.train(training)
    return _run(client, inputs)


def _own_run(model: nn.Module, inputs: Any, training: bool) -> Flat:
    return _run(copy.deepcopy(model).train(training), inputs, own=True)


def _run(model: nn.Module, inputs: Any, own: bool = False) -> Flat:
    cached = own and isinstance(inputs, dict) and hasattr(getattr(model, "config", None), "use_cache")
    torch.manual_seed(5)
    try:
        output = call(model, {**inputs, "use_cache": False} if cached else inputs)
    except TypeError:
        output = call(model, inputs)
    backward(loss_of(output))
    result: Flat = {"type": kind_of(output), **flat("output", output)}
    return result | {f"gradient of {name}": p.grad for name, p in sorted(model.named_parameters())}


def _check_join(found: Layered, place: Place) -> None:
    state, where = found.module.state_dict(), shown_cuts(*place)
    client, server = found.split(*place)
    with _named(f"the halves of {where} don't join"):
        if place[1]:  # head and tail have one state dict between them; sorted as the model has them
            both = join_states(client.state_dict(), server.state_dict())
            joined = {name: both.pop(name) for name in state if name in both} | both
        else:
            joined = join(client, server).state_dict()
    if list(joined) != list(state):
        kind = "in another order" if set(joined) == set(state) else "with other names"
        raise WrongError(f"the joined state dict of {where} comes {kind}")
    with _named(f"the joined state of {where} does not load"):
        copy.deepcopy(found.module).load_state_dict(joined, strict=True)


def _check_profile(found: Layered, inputs: Any) -> None:
    with _named("the profile fails"):
        try:
            profile_layered(found, inputs)
        except ModelError as error:
            raise WrongError(f"the profile fails: {_line(error)}") from error


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__
