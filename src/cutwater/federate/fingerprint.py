"""What the results of a study follow from, as digests: a run goes on only where all of them are the same.

Nothing is run for it. A function is known by its name and by the values that it carries: its defaults and
what it closes over. Its code is not looked at, nor is a model's: mending a word in it must not end a run.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from hashlib import sha256
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cutwater.data.samples import ArraySamples, Samples
from cutwater.model.randomness import drawn_from
from cutwater.plan.fleet import FEW, SETS
from cutwater.scenario.judging import JudgeSettings
from cutwater.train.aggregate import weights_sha256

if TYPE_CHECKING:
    from cutwater.federate.study import Study

_SOME = 4
"""Samples at either end of the training data that are looked at."""
_READINGS = 8
"""How often each of them is read, to see whether it is always the same."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""What torch keeps in each module: hooks, its mode, and the tables of what is described below."""


def digests(study: "Study") -> dict[str, str]:
    """The digest of each part, by name."""
    train = {each.name: described(getattr(study.train, each.name)) for each in fields(study.train)}
    if study.train.selection == "random":
        del train["selection"]  # as it was before there were others
    if study.train.schedule in ("cosine", "linear"):
        train["horizon"] = study.train.horizon or study.train.rounds
    else:
        train.pop("horizon")
    train["loss"] = study.train.loss or "cross_entropy"  # which it is, `loss` below says
    # None of these changes what a round computes.
    for name in ("rounds", "evaluate_every", "metrics", "evaluate", "keep_best", "patience"):
        del train[name]
    # Of a trace it matters what it says, not where it is.
    trace, usual = study.truth.trace, asdict(JudgeSettings())
    conditions = {**asdict(study.conditions), "trace": trace and asdict(trace)}
    sections = {
        "train": train,
        "session": {key: value for key, value in asdict(study.session).items() if value != "go"},
        "wire": asdict(study.wires),
        # Memory says who is let in, as a deadline of the network does, and not what is computed.
        "server": {"compute": study.server.compute},
        "conditions": conditions,
        # Rules that nobody set are left out, so that runs from before there were any go on.
        "judge": {key: value for key, value in asdict(study.judge).items() if value != usual[key]},
    }
    if study.band.shared:
        sections["band"] = {name: str(rate) for name, rate in asdict(study.band).items()}
    fleet = {f.name: getattr(study.fleet, f.name) for f in fields(study.fleet)}
    held = study.partition
    parts = {
        **{f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()},
        "planner": [described(study.planner), dict(study.planner_options)],
        "fleet": {name: list(map(str, column)) for name, column in fleet.items() if name not in FEW},
        **{name: {str(k): sorted(some) for k, some in getattr(study.fleet, name).items()} for name in SETS},
        **({"who keeps labels": study.fleet.labels} if study.fleet.labels else {}),
        "data": [study.data.name, study.data.input, study.data.classes, held.method, held.local_test],
        "labels": _digest(study.data.train.labels),
        "inputs": _inputs(study.data.train),
        "loss": described(study.loss),
        "aggregator": described(study.aggregator),
        "held": [_digest(held.order), held.ends.tolist()],
        "weights": weights_sha256(study.initial),
        "layers": [layer.name for layer in study.model.layers],
        "frozen parameters": _frozen(study.model.module),
        "buffers": weights_sha256(study.model.unsaved),
        # What has no weights shows here (dropout's rate, say); addresses of objects differ by process.
        "modules": [re.sub(r"0x[0-9a-f]+", "", repr(study.model.module)), _settings(study.model.module)],
    }
    return {name: text_digest(part) for name, part in parts.items()}


def text_digest(part: Any) -> str:
    """SHA-256 of a value as JSON."""
    return sha256(json.dumps(part, sort_keys=True, default=str).encode()).hexdigest()


def _inputs(samples: Samples) -> str | None:
    """A digest of the first and last training samples; None where they are augmented at random."""
    some = np.unique(np.r_[: min(_SOME, len(samples)), max(0, len(samples) - _SOME) : len(samples)])
    # What draws from a generator of its own, and seldom, shows only in several readings.
    readings = 1 if isinstance(samples, ArraySamples) else _READINGS
    found = set()
    for reading in range(readings):
        with drawn_from(reading, "fingerprint"):
            read = [samples.batch(some[k : k + 1]) for k in range(len(some))]
        tensors = {f"{k} {n}": t for k, one in enumerate(read) for n, t in enumerate((*one[0], one[1]))}
        found.add(weights_sha256(tensors))
    return found.pop() if len(found) == 1 else None


def _digest(array: NDArray[Any] | None) -> str | None:
    return None if array is None else sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def described(value: Any, within: tuple[int, ...] = ()) -> Any:
    """A value as JSON would write it; of what holds others, each of them. ``within`` are those around it."""
    if isinstance(value, _PLAIN):
        return value if isinstance(value, int | float | str | None) else str(value)
    if id(value) in within:
        return "itself"
    for kind, describe in _KINDS:
        if isinstance(value, kind):
            return describe(value, (*within, id(value)))
    # A built-in function has a name of its own, as a class has; another object is one of its class.
    return getattr(value, "__qualname__", None) or _object(value, within)


def _frozen(model: nn.Module) -> list[str]:
    """The parameters that training leaves alone."""
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def _settings(model: nn.Module) -> dict[str, Any]:
    """The plain attributes of a model's parts, by name: what they were made with, as far as it was kept."""
    found = {}
    for name, part in model.named_modules():
        own = {key: one for key, one in _own(part).items() if not key.startswith("_") and _is_plain(one)}
        if own:
            found[name] = described(own)
    return found


def _function(function: FunctionType, within: tuple[int, ...]) -> Any:
    cells = function.__closure__ or ()
    carried = {
        "defaults": [function.__defaults__ or (), function.__kwdefaults__ or {}],
        "closure": {
            key: cell.cell_contents
            for key, cell in zip(function.__code__.co_freevars, cells, strict=True)
            if _is_filled(cell)
        },
    }
    return [function.__qualname__, described(carried, within)]


def _module(module: nn.Module, within: tuple[int, ...]) -> Any:
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    own = _own(module)
    parts = dict(module.named_children())
    return [type(module).__qualname__, *(described(held, within) for held in (own, tensors, parts))]


def _object(value: Any, within: tuple[int, ...]) -> Any:
    """An object by its attributes; one inside another may lead anywhere (a logger), so by the plain ones."""
    held = getattr(value, "__dict__", {})
    if within:
        held = {key: one for key, one in held.items() if _is_telling(key, one)}
    return [type(value).__qualname__, described(held, (*within, id(value)))]


def _own(module: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(one) for one in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(one) for one in value)
    return isinstance(value, _PLAIN)


def _is_telling(name: str, value: Any) -> bool:
    if name.startswith("_") and isinstance(value, Mapping | list | set):
        return False  # a cache, more often than not
    return _is_plain(value) or isinstance(value, Tensor | np.ndarray | np.generic)


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # of a name that was not given a value yet
        return False
    return True


_KINDS: tuple[tuple[Any, Callable[[Any, tuple[int, ...]], Any]], ...] = (
    (Tensor, lambda value, _: weights_sha256({"": value.detach()})),
    (np.ndarray | np.generic, lambda value, within: [str(value.dtype), described(value.tolist(), within)]),
    (Mapping, lambda value, within: {str(key): described(one, within) for key, one in value.items()}),
    (list | tuple, lambda value, within: [described(one, within) for one in value]),
    (set | frozenset, lambda value, within: sorted(str(described(one, within)) for one in value)),
    (partial, lambda value, within: described(["partial", value.func, value.args, value.keywords], within)),
    (MethodType, lambda value, within: [described(value.__self__, within), value.__func__.__qualname__]),
    (FunctionType, _function),
    (nn.Module, _module),
)
