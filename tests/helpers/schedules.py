"""Random schedules of faults: drawn from one seed, which `scripts/chaos.py` prints and takes."""

import os
import random

SEED = int(os.environ.get("CUTWATER_SEED", "0"))


def schedule(*what: object) -> random.Random:
    """The draws of a test, which are its own: no other test changes them."""
    return random.Random(f"{SEED} {what}")
