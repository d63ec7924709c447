"""Who takes part in a round."""

import math
from collections.abc import Sequence

from cutwater.base.errors import ScenarioError
from cutwater.base.seeded import stream


def select(
    clients: Sequence[str], count: int | None, *, seed: int, round_: int, over_selection: float = 0.0
) -> tuple[str, ...]:
    """The clients of a round, in the fleet's order: a pure function of seed and round.

    ``count`` clients are wanted (all, if None); ``over_selection`` adds that part of them again, so that the
    round has enough when some drop out or come late.

    >>> len(select(["a", "b", "c", "d"], 2, seed=7, round_=1, over_selection=0.5))
    3
    """
    if count is None:
        return tuple(clients)
    wanted = how_many(len(clients), count, over_selection)
    chosen = stream(seed, "selection", round_).permutation(len(clients))[:wanted]
    return tuple(clients[position] for position in sorted(chosen))


def how_many(clients: int, count: int, over_selection: float) -> int:
    """How many of so many clients a round begins with that wants ``count``."""
    if not 1 <= count <= clients:
        raise ScenarioError(
            f"clients_per_round is {count}, but the scenario has {clients} clients; "
            f"use a number between 1 and {clients}"
        )
    # The product is cleaned of rounding errors first: 10 × 1.1 must select 11, not 12.
    return min(clients, math.ceil(round(count * (1 + over_selection), 6)))
