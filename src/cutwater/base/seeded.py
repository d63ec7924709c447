"""Random numbers as a pure function of what they are for.

Every draw of a run (who is selected, which mini-batch, which rate) comes from a stream that is named by the
seed and a key such as ``("batches", round, client)``. So a draw depends neither on the process that makes it
nor on the draws before it, and a resumed run needs no saved random state.
"""

import hashlib
import json

from numpy.random import Philox, RandomState


def stream(seed: int, *key: str | int) -> RandomState:
    """The random stream of this seed for this purpose.

    A RandomState, not a Generator: NumPy freezes its methods for good, so a run stays reproducible from one
    NumPy to the next. The key is hashed by SHA-256, because Python's own ``hash`` differs by process.

    >>> int(stream(7, "batches", 3, "c1").randint(1000)) == int(stream(7, "batches", 3, "c1").randint(1000))
    True
    """
    digest = hashlib.sha256(json.dumps([seed, *key]).encode()).digest()
    return RandomState(Philox(key=int.from_bytes(digest[:16], "big")))
