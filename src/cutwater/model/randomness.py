"""Randomness that belongs to the layer, not to the process.

Dropout and stochastic depth draw from torch's global generator, whose state depends on everything that ran
before. Split training would then see other masks than whole training, because each side draws on its own.
So every layer of a :class:`~cutwater.model.layers.Layered` model announces itself before it runs, and inside
:func:`random_stream` the generator is set to a state derived from (seed, step, layer): the same step draws
the same bits wherever the model is cut, and whatever ran before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b

import torch

_stream: ContextVar[tuple[int, int] | None] = ContextVar("cutwater_random_stream", default=None)


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from any printable parts, the same on every machine.

    >>> derive_seed(7, "client-3", 12) == derive_seed(7, "client-3", 12) != derive_seed(7, "client-31", 2)
    True
    """
    digest = blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextmanager
def random_stream(seed: int, step: int) -> Iterator[None]:
    """Within, layer l draws from the stream (seed, step, l); afterwards torch's generators are as before.

    torch's generators are global to the process, so run the layers of one device in one thread at a time.
    """
    devices = [torch.cuda.current_device()] if _cuda_in_use() else []
    token = _stream.set((seed, step))
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        _stream.reset(token)


def enter_layer(layer: int) -> None:
    """Called by the split program before layer ``layer`` runs; does nothing outside a random stream."""
    stream = _stream.get()
    if stream is not None:
        seed = derive_seed(*stream, layer)
        torch.default_generator.manual_seed(seed)
        if _cuda_in_use():
            torch.cuda.manual_seed(seed)


def _cuda_in_use() -> bool:
    # Asking whether CUDA was initialized, unlike seeding it, never initializes it.
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
