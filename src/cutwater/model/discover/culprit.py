"""Say in one sentence why a model can't be traced, where, and what to do."""

import linecache
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb

import torch
from torch import nn
from torch.fx.proxy import TraceError

from cutwater.model.discover.same_outputs import CantTakeApartError, MismatchError, first_line
from cutwater.model.discover.trace_fx import DrawError

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[2])
"""This package: where it notices that something is wrong is never the place that is."""
_LIBRARY = sysconfig.get_paths()["stdlib"]

_HAND_OVER = (
    "if it is a row of steps, hand them over as cutwater.layered(model, example, layers=[...]): its "
    "submodules, and functions of one value, that compute the same when called one after the other"
)
_NO_AUTOCAST = (
    "take torch.autocast out of its forward and let the session do it: autocast of [session], or "
    'Session(autocast="bf16"), means the same on both sides of a cut'
)
_NOTHING = (lambda: None).__code__


def refusal(module: nn.Module, failures: Sequence[Exception]) -> CantTakeApartError:
    """The error for a model that no way of tracing could follow."""
    # What export says comes first, as fx takes any question about a shape for one about data.
    failure = _most_telling(sorted(failures, key=lambda failure: isinstance(_origin(failure), TraceError)))
    where = _where(failure)
    return CantTakeApartError(
        f"{type(module).__name__} can't be taken apart: {_reason(failure)}{f' at {where}' if where else ''}",
        _NO_AUTOCAST if _casts(module) else _HAND_OVER,
    )


def _casts(module: nn.Module) -> bool:
    """Whether a forward of the user's enters an autocast, which no trace keeps."""
    forwards = (type(part).forward for part in module.modules() if not _is_librarys(part))
    return any("autocast" in getattr(forward, "__code__", _NOTHING).co_names for forward in forwards)


def _is_librarys(part: nn.Module) -> bool:
    return type(part).__module__.startswith(("torch.", "transformers."))


def inner_culprit(error: BaseException, module: nn.Module, blocks: frozenset[str]) -> str | None:
    """The innermost module whose own code failed; None if that is the whole model or within a block."""
    if isinstance(error, DrawError):
        return error.path or None
    names = {id(part): name for name, part in module.named_modules()}
    path = ""
    for frame, _ in walk_tb(_origin(error).__traceback__):
        path = names.get(id(frame.f_locals.get("self")), path)
        if any(path == block or path.startswith(f"{block}.") for block in blocks):
            return None
    return path or None


def _most_telling(failures: Sequence[Exception]) -> Exception:
    """A decision by data, a wrong result, or else what was said first."""
    seen = [failure for failure in failures if not isinstance(_origin(failure), TraceError)]
    deciding = [failure for failure in seen if _decides_by_data(failure)]
    wrong = [failure for failure in failures if isinstance(failure, MismatchError)]
    return [*deciding, *wrong, *failures][0]


def _decides_by_data(error: BaseException) -> bool:
    text = f"{type(_origin(error)).__name__} {_origin(error)}"
    return any(sign in text for sign in ("DataDependent", "data-dependent", "control flow"))


def _reason(error: BaseException) -> str:
    if _decides_by_data(error):
        return "its forward decides by the values of a tensor"
    origin = _origin(error)
    if isinstance(origin, (MismatchError, RuntimeError)):
        return first_line(origin)
    return f"tracing it fails with {type(origin).__name__}: {first_line(origin)}"


def _where(error: BaseException) -> str:
    """File, line and source of the user's code that failed."""
    steps = walk_tb(_origin(error).__traceback__)
    users = [(frame.f_code.co_filename, line) for frame, line in steps if _is_users(frame.f_code.co_filename)]
    if not users:
        return ""
    name, line = users[-1]
    source = linecache.getline(name, line).strip()
    return f"{name}:{line}{f' ({source})' if source else ''}"


def _origin(error: BaseException) -> BaseException:
    """The error that all others followed from."""
    seen = {id(error)}
    while True:
        earlier = error.__cause__ or error.__context__
        if earlier is None or id(earlier) in seen or earlier.__traceback__ is None:
            return error
        seen.add(id(earlier))
        error = earlier


def _is_users(name: str) -> bool:
    if name.startswith(("<", _TORCH, _OURS)):
        return False
    return "site-packages" in name or not name.startswith(_LIBRARY)
