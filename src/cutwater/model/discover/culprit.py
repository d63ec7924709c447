"""Say in one sentence why a model can't be traced, where, and what to do."""

import linecache
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import torch
from torch import nn
from torch.fx.proxy import TraceError

from cutwater.base.errors import ModelError
from cutwater.model.discover.same_outputs import MismatchError, first_line
from cutwater.model.discover.trace_fx import DrawError

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[2])
"""This package: where it notices that something is wrong is never the place that is."""
_LIBRARY = sysconfig.get_paths()["stdlib"]


def refusal(module: nn.Module, failures: Sequence[Exception]) -> ModelError:
    """The error for a model that no way of tracing could follow."""
    failure = _most_telling(failures)
    where = _where(failure)
    return ModelError(
        f"{type(module).__name__} can't be taken apart: {_reason(failure)}"
        f"{f' at {where}' if where else ''}; hand over its layers in the order they are called instead, such "
        f"as cutwater.layered(model, example, layers=[{_children(module)}])"
    )


def inner_culprit(error: BaseException, module: nn.Module, blocks: frozenset[str]) -> str | None:
    """The innermost module whose own code failed; None if that is the whole model or within a block."""
    if isinstance(error, DrawError):
        return error.path or None
    names = {id(part): name for name, part in module.named_modules()}
    path = ""
    for frame in _frames(_origin(error)):
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
    return first_line(_origin(error))


def _where(error: BaseException) -> str:
    """File, line and source of the user's code that failed."""
    frames = [frame for frame in _lines(_origin(error)) if _is_users(frame[0])]
    if not frames:
        return ""
    name, line = frames[-1]
    source = linecache.getline(name, line).strip()
    return f"{name}:{line}{f' ({source})' if source else ''}"


def _origin(error: BaseException) -> BaseException:
    """The error that all others followed from."""
    seen = {id(error)}
    while True:
        earlier = error.__cause__ or error.__context__
        if earlier is None or id(earlier) in seen or not _lines(earlier):
            return error
        seen.add(id(earlier))
        error = earlier


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _lines(error: BaseException) -> list[tuple[str, int]]:
    found = []
    step = error.__traceback__
    while step is not None:
        found.append((step.tb_frame.f_code.co_filename, step.tb_lineno))
        step = step.tb_next
    return found


def _is_users(name: str) -> bool:
    if name.startswith(("<", _TORCH, _OURS)):
        return False
    return "site-packages" in name or not name.startswith(_LIBRARY)


def _children(module: nn.Module) -> str:
    rows = (nn.Sequential, nn.ModuleList)
    names = [f"{'*' if isinstance(c, rows) else ''}model.{name}" for name, c in module.named_children()]
    return ", ".join(names)
