"""The mini-batches of a client's session, a pure function of (seed, round, client).

They know nothing of cuts, engines and processes: wherever client k trains in round t, it sees these samples
in this order.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.random import RandomState

from cutwater.base.errors import DataError
from cutwater.base.seeded import stream
from cutwater.data.samples import Indices
from cutwater.plan.session import Session, last_of_pass


def batches(samples: Indices, session: Session, *, seed: int, round_: int, client: str) -> Iterator[Indices]:
    """The positions of every mini-batch of a session, in order.

    By ``epochs``: passes over the client's samples, each shuffled; the last mini-batch of a pass is what is
    left. By ``steps``: mini-batches drawn at random, each without replacement (Sec. III-A of the paper).
    """
    check_session(len(samples), session, client)
    if session.epochs is not None:
        return _passes(samples, session.batch_size, session.epochs, (seed, round_, client))
    assert session.steps is not None
    return _draws(samples, session.batch_size, session.steps, (seed, round_, client))


def batch_sizes(samples: int, session: Session) -> list[int]:
    """How many samples each mini-batch of a session has, without drawing them.

    >>> batch_sizes(100, Session(epochs=1)), batch_sizes(65, Session(epochs=1))
    ([32, 32, 32, 4], [32, 33])
    """
    if session.epochs is None:
        return [session.batch_size] * (session.steps or 0)
    return [end - start for start, end in pairwise(_edges(samples, session.batch_size))] * session.epochs


def check_session(samples: int, session: Session, client: str) -> None:
    """Refuse a session that can't be trained: no samples, or fewer than one mini-batch needs."""
    if samples == 0:
        raise DataError(f"client {client!r} has no samples to train on; give it some or leave it out")
    if session.batch_size > samples:
        raise DataError(
            f"batch_size is {session.batch_size}, but client {client!r} has {samples} samples to train on; "
            f"use a batch_size between 1 and {samples}"
        )


@lru_cache(maxsize=64)
def _edges(samples: int, batch_size: int) -> tuple[int, ...]:
    """Where the mini-batches of a pass begin and end; asked for by every pass, session and round."""
    full, left = (int(each) for each in last_of_pass(np.array(samples), np.array(batch_size)))
    return tuple(accumulate([batch_size] * full + [left] * (left > 0), initial=0))


def _passes(samples: Indices, batch_size: int, epochs: int, key: tuple[int, int, str]) -> Iterator[Indices]:
    seed, round_, client = key
    edges = _edges(len(samples), batch_size)
    for epoch in range(epochs):
        order = samples[stream(seed, "pass", round_, client, epoch).permutation(len(samples))]
        for start, end in pairwise(edges):
            yield order[start:end]


def _draws(samples: Indices, batch_size: int, steps: int, key: tuple[int, int, str]) -> Iterator[Indices]:
    seed, round_, client = key
    for step in range(steps):
        yield samples[_distinct(stream(seed, "step", round_, client, step), len(samples), batch_size)]


def _distinct(random: RandomState, samples: int, count: int) -> Indices:
    """``count`` different positions of ``samples``, uniformly."""
    if samples < 4 * count:
        return random.permutation(samples)[:count]
    # Of a long list few draws collide; skipping those that do is uniform, and spares shuffling all of it.
    drawn = random.randint(samples, size=2 * count)
    while len(first := np.unique(drawn, return_index=True)[1]) < count:
        drawn = np.append(drawn, random.randint(samples, size=count))
    return drawn[np.sort(first)[:count]]
