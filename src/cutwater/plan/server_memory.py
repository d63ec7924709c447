"""What open sessions hold at the server: a half of the model each, and the parts that are on their way."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats
from cutwater.plan.allowed import held_by_layers
from cutwater.plan.problem import Problem
from cutwater.profile.values import Profile

if TYPE_CHECKING:  # a plan explains itself by this module, too
    from cutwater.plan.value import Plan


def half_bits(profile: Profile, cuts: ArrayLike, second_cuts: ArrayLike, samples: ArrayLike) -> Floats:
    """Bits that the server's layers hold: weights, gradients, optimizer state, and what they save of a part.

    ``second_cuts`` are those of models in three parts, 0 for the others; ``samples`` are those of a part,
    since a half trains one at a time.
    """
    fixed, saved = held_by_layers(profile)
    first, second = np.asarray(cuts) - 1, np.asarray(second_cuts) - 1  # -1, without a second cut, is L
    saves = np.maximum(saved[second] - saved[first], 0.0)
    held: Floats = fixed[second] - fixed[first] + saves * (np.asarray(samples) / profile.batch_size)
    return held


def session_bits(problem: Problem, plan: "Plan") -> Floats:
    """Bits that each client's session holds at the server at its peak; 0 where nothing is cut.

    Beside the half these are, for every part on its way, what came and what goes back, and what came once
    more as it is decoded where a codec made it.
    """
    crossing, row, wire = problem.wire_costs, plan.places - 1, plan.wires
    parts = np.minimum(problem.session.micro_batches, problem.batch_size)
    rows = np.ceil(problem.batch_size / parts)
    window = np.where(crossing.overlapped[wire], parts, 1)
    up = crossing.smashed[wire, row] * rows + crossing.smashed_message[wire, row]
    down = crossing.gradient[wire, row] * rows + crossing.gradient_message[wire, row]
    decoded = crossing.coded[wire] * problem.profile.column("smashed_bits")[plan.cuts - 1] * rows
    held = half_bits(problem.profile, plan.cuts, plan.second_cuts, rows) + window * (up + down + decoded)
    return np.where(plan.split, held, 0.0)


def refused(problem: Problem, plan: "Plan") -> list[str]:
    """Clients whose sessions do not fit into the server's memory beside those before them, in order."""
    held, out = 0.0, []
    needs = session_bits(problem, plan)
    for k, need in enumerate(needs.tolist()):
        if held + need > problem.server.memory:
            out.append(plan.names[k])
        else:
            held += need
    return out
