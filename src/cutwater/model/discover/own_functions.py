"""A user's own autograd functions, seen as one call each while a model is traced.

Tracers look into :meth:`torch.autograd.Function.apply` and write down what it does forwards; its own backward
would be lost. torch offers no place to say otherwise, so while a model is traced, ``apply`` asks the tracer
of the calling thread first. Other threads notice nothing, and with the last trace it is torch's own again.

Where ``apply`` can't be replaced (:data:`SEEN` is then False, known at import), models are traced without,
and one whose own functions get lost is refused when its trace is verified (``same_outputs``).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Keep = Callable[[type[torch.autograd.Function], Any, Any], tuple[bool, Any]]
"""May stand in for a call of an autograd function: (whether it does, the result)."""


class _Tracer(threading.local):
    """Who wants to know of calls in this thread."""

    keep: Keep | None = None


_tracer = _Tracer()
_lock = threading.Lock()
_open: list[Any] = []
"""torch's own ``apply``, once for each trace that is under way."""


def _replaceable() -> bool:
    try:
        torch.autograd.Function.apply = vars(torch.autograd.Function)["apply"]  # type: ignore[method-assign]
    except (AttributeError, KeyError, TypeError):
        return False
    return isinstance(vars(torch.autograd.Function)["apply"], classmethod)


SEEN = _replaceable()
"""Whether a tracer can see calls of autograd functions."""


@contextmanager
def autograd_functions_kept(keep: Keep) -> Iterator[None]:
    """While open, ``keep`` may stand in for this thread's calls of autograd functions."""
    if not SEEN:
        yield
        return
    with _replaced(), _asking(keep):
        yield


@contextmanager
def _asking(keep: Keep | None) -> Iterator[None]:
    before, _tracer.keep = _tracer.keep, keep
    try:
        yield
    finally:
        _tracer.keep = before


@contextmanager
def _replaced() -> Iterator[None]:
    """``apply`` asks; the last to leave puts torch's own back."""
    with _lock:
        original = _open[0] if _open else vars(torch.autograd.Function)["apply"]
        if not _open:
            torch.autograd.Function.apply = _asking_first(original)  # type: ignore[method-assign]
        _open.append(original)
    try:
        yield
    finally:
        with _lock:
            _open.pop()
            if not _open:
                torch.autograd.Function.apply = original  # type: ignore[method-assign]


def _asking_first(original: Any) -> Any:
    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        run = original.__get__(None, cls)
        if _tracer.keep is None:
            return run(*args, **kwargs)
        kept, value = _tracer.keep(cls, args, kwargs)
        if kept:
            return value
        with _asking(None):  # what it calls in turn is part of it
            return run(*args, **kwargs)

    return classmethod(apply)


def as_function(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``cls.apply`` as a function with a name, as a graph wants it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    call.__name__ = cls.__name__
    return call


def functions_behind(outputs: Sequence[Tensor]) -> list[str]:
    """The own autograd functions that gradients of these tensors go through, by name, once for each call."""
    found: list[Any] = [node for node in (tensor.grad_fn for tensor in outputs) if node is not None]
    seen = set(found)
    for node in found:  # and whatever it leads to, as that is found
        fresh = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= fresh
        found += fresh
    own = (node for node in seen if isinstance(node, torch.autograd.function.BackwardCFunction))
    return sorted(type(node).__name__.removesuffix("Backward") for node in own)
