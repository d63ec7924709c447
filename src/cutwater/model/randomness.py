"""Randomness that belongs to the layer, not to the process.

Dropout and stochastic depth draw from torch's global generator, whose state depends on everything that ran
before. Split training would then see other masks than whole training, because each side draws on its own.
So every layer of a :class:`~cutwater.model.layers.Layered` model announces itself before it runs, and inside
:class:`RandomStream` the generator is set to a state derived from (seed, step, layer): the same step draws
the same bits wherever the model is cut, and whatever ran before.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch


class _Stream(NamedTuple):
    """Where the layers of a step draw from."""

    begun: "blake2b"
    """The hash of (seed, step), to be ended by the layer: every layer of every step comes by here."""
    cuda: bool


_stream: ContextVar[_Stream | None] = ContextVar("cutwater_random_stream", default=None)
_BETWEEN = "\x1f"


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from any printable parts, the same on every machine.

    >>> derive_seed(7, "client-3", 12) == derive_seed(7, "client-3", 12) != derive_seed(7, "client-31", 2)
    True
    """
    return _seed(_begin(*parts))


def _begin(*parts: object) -> "blake2b":
    return blake2b(_BETWEEN.join(map(str, parts)).encode(), digest_size=8)


def _seed(ended: "blake2b") -> int:
    return int.from_bytes(ended.digest(), "big") >> 1


class RandomStream:
    """Within, layer l draws from the stream (seed, step, l); afterwards torch's generators are as before.

    torch's generators are global to the process: another thread that would enter a stream meanwhile waits.
    """

    __slots__ = ("_before", "_begun", "_token")
    _entered: ClassVar[Any] = threading.RLock()
    """Held by the thread that is in a stream."""

    def __init__(self, seed: int, step: int) -> None:
        self._begun = _begin(seed, step, "")

    def __enter__(self) -> None:
        self._entered.acquire()
        generators, cuda = [torch.default_generator], cuda_in_use()
        if cuda:
            generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
        self._before = [(generator, generator.get_state()) for generator in generators]
        self._token = _stream.set(_Stream(self._begun, cuda))

    def __exit__(self, *_: object) -> None:
        _stream.reset(self._token)
        for generator, state in self._before:
            generator.set_state(state)
        self._entered.release()


def _nobody_entered() -> None:
    RandomStream._entered = threading.RLock()


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's other threads, one of which may have been in a stream.
    os.register_at_fork(after_in_child=_nobody_entered)

LOSS = -1
"""The layer that a loss draws as: it comes after the last, wherever the model is cut."""


def enter_layer(layer: int) -> None:
    """Called by the split program before layer ``layer`` runs; does nothing outside a random stream."""
    stream = _stream.get()
    if stream is not None:
        ended = stream.begun.copy()
        ended.update(b"%d" % layer)
        seed = _seed(ended)  # that of (seed, step, layer)
        torch.default_generator.manual_seed(seed)
        if stream.cuda:
            torch.cuda.manual_seed(seed)


@contextmanager
def drawn_from(*parts: object) -> Iterator[None]:
    """Within, what draws from the generators of torch, numpy and Python draws what follows from the parts.

    For the user's own code, such as a dataset that augments its samples; afterwards all are as before. A
    thread that would enter a stream meanwhile waits, as layers draw from the same generators.
    """
    seed = derive_seed(*parts)
    with RandomStream._entered, outside_kept():
        torchs = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            torch.default_generator.set_state(torchs)


def draws(read: Callable[[], object]) -> bool:
    """Whether a call of the user's own code draws from one of these generators."""
    with drawn_from("draws"):
        before = generator_states()
        read()
        return generator_states() != before


@contextmanager
def outside_kept() -> Iterator[None]:
    """Afterwards the generators of Python and NumPy, which no stream of a layer controls, are as before."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def outside_states() -> tuple[Any, ...]:
    """A fingerprint of these generators."""
    numpy: Any = np.random.get_state()
    return random.getstate(), numpy[1].tobytes(), numpy[2]


def generator_states() -> tuple[Any, ...]:
    """A fingerprint of these generators and torch's own."""
    return *outside_states(), torch.default_generator.get_state().numpy().tobytes()


def cuda_in_use() -> bool:
    """Whether CUDA was initialized: asking this, unlike seeding it or asking for its state, never does so."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
