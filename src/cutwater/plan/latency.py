"""How long each phase and stage of a session takes: one function per equation of the paper (Sec. IV).

Every function broadcasts, so scalars give one client at one cut and arrays give a fleet, all cuts, or both.
``samples`` is how many samples the stage processes: |B| gives the paper's stage of one mini-batch, and N_k,
all samples of a session, gives that stage's part of T_k. (The first line of the paper's eq. (17) multiplies
by |B_k| twice; its second line, which is used here, does not.) Sizes are in bits, rates in bits per second.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import HUGE, Number
from cutwater.base.schema import described
from cutwater.plan.problem import Problem
from cutwater.profile.fit import Fit


def model_download(bits: ArrayLike, down: ArrayLike) -> Floats:
    """Eq. (9): DM = |w^C| / r."""
    return np.divide(bits, down)


def client_forward(flops: ArrayLike, samples: ArrayLike, compute: ArrayLike) -> Floats:
    """Eq. (10): FP^C = F^C·|B| / f^C."""
    return np.divide(np.multiply(flops, samples), compute)


def smashed_upload(bits: ArrayLike, samples: ArrayLike, up: ArrayLike) -> Floats:
    """Eq. (11): TS = |S|·|B| / r."""
    return np.divide(np.multiply(bits, samples), up)


def server_forward(flops: ArrayLike, samples: ArrayLike, share: ArrayLike) -> Floats:
    """Eq. (12): FP^S = F^S·|B| / f^S; never done where work meets no share."""
    return _on_server(flops, samples, share)


def server_backward(flops: ArrayLike, samples: ArrayLike, share: ArrayLike) -> Floats:
    """Eq. (13): BP^S = B^S·|B| / f^S; never done where work meets no share."""
    return _on_server(flops, samples, share)


def gradient_download(bits: ArrayLike, samples: ArrayLike, down: ArrayLike) -> Floats:
    """Eq. (14): TG = |G|·|B| / r."""
    return np.divide(np.multiply(bits, samples), down)


def client_backward(flops: ArrayLike, samples: ArrayLike, compute: ArrayLike) -> Floats:
    """Eq. (15): BP^C = B^C·|B| / f^C."""
    return np.divide(np.multiply(flops, samples), compute)


def model_upload(bits: ArrayLike, up: ArrayLike) -> Floats:
    """Eq. (16): UM = |w^C| / r."""
    return np.divide(bits, up)


def _on_server(flops: ArrayLike, samples: ArrayLike, share: ArrayLike) -> Floats:
    work, rate = np.broadcast_arrays(np.multiply(flops, samples), np.asarray(share, dtype=np.float64))
    idle: Floats = np.where(work > 0, np.inf, 0.0)
    np.divide(work, rate, out=idle, where=rate > 0)
    return idle


T = TypeVar("T", float, Floats)


SECONDS = Number(0, HUGE, unit="seconds")
"""Of a phase, a session, a round or a run."""


@described("the phases", FileFormatError, open=True)
@dataclass(frozen=True)
class Phases(Generic[T]):
    """Seconds of a session, phase by phase and stage by stage: numbers of one client, or columns of many."""

    model_download: Annotated[T, SECONDS, "the client's half to the client, eq. (9)"]
    client_forward: Annotated[T, SECONDS, "forward passes on the client, eq. (10)"]
    smashed_upload: Annotated[T, SECONDS, "smashed data to the server, eq. (11)"]
    server_forward: Annotated[T, SECONDS, "forward passes on the server, eq. (12)"]
    server_backward: Annotated[T, SECONDS, "backward passes on the server, eq. (13)"]
    gradient_download: Annotated[T, SECONDS, "gradients of smashed data to the client, eq. (14)"]
    client_backward: Annotated[T, SECONDS, "backward passes on the client, eq. (15)"]
    model_upload: Annotated[T, SECONDS, "the client's half to the server, eq. (16)"]

    def __iter__(self) -> Iterator[T]:
        return (self.named(name) for name in PHASES)

    def named(self, name: str) -> T:
        """One phase or stage, by its name in :data:`PHASES`."""
        seconds: T = getattr(self, name)
        return seconds

    @property
    def total(self) -> T:
        """Eq. (17): T_k, the sum of all phases and stages."""
        first, *others = self
        for seconds in others:
            first = first + seconds
        return first

    @property
    def client(self) -> T:
        """Computing on the client."""
        return self.client_forward + self.client_backward

    @property
    def server(self) -> T:
        """Computing on the server."""
        return self.server_forward + self.server_backward

    @property
    def link(self) -> T:
        """Moving smashed data, gradients and the model."""
        return self.smashed_upload + self.gradient_download + self.model_download + self.model_upload

    def at(self: "Phases[Floats]", k: int) -> "Phases[float]":
        """One client out of the columns."""
        return Phases(*(float(column[k]) for column in self))

    def to_json(self: "Phases[float]") -> dict[str, float]:
        """The phases of one client by name, in the order that they happen."""
        return {name: float(self.named(name)) for name in PHASES}


PHASES = tuple(field.name for field in fields(Phases))
"""The names of all phases and stages, in the order that they happen."""
NOTHING: "Phases[float]" = Phases(*(0.0 for _ in PHASES))
"""The phases of a session of which nothing is known."""

Which = slice | int | Ints
"""Some of the clients, as an index into the fleet's columns."""
ALL = slice(None)


def session_phases(
    problem: Problem, cuts: ArrayLike, shares: ArrayLike, clients: Which = ALL
) -> Phases[Floats]:
    """Eq. (20) taken apart: the phases of every client's session under these cuts and shares.

    ``cuts`` and ``shares`` broadcast against the clients (one number for all, or one for each); to see all
    cuts at once, give them a leading axis: ``cuts[:, None]`` yields arrays of shape L × K.
    """
    fleet, costs = problem.fleet, problem.costs
    work, compute, up, down = (c[clients] for c in (problem.work, fleet.compute, fleet.up, fleet.down))
    row = np.asarray(cuts, dtype=np.int64) - 1
    phases = (
        model_download(costs.bits[row] + costs.once_after(row, fleet.holds[clients]), down),
        client_forward(costs.client_forward[row], work, compute),
        smashed_upload(costs.smashed[row], work, up),
        server_forward(costs.server_forward[row], work, shares),
        server_backward(costs.server_backward[row], work, shares),
        gradient_download(costs.gradient[row], work, down),
        client_backward(costs.client_backward[row], work, compute),
        model_upload(costs.bits[row], up),
    )
    return Phases(*np.broadcast_arrays(*phases))


def session_bits(problem: Problem, cuts: ArrayLike, clients: Which = ALL) -> tuple[Floats, Floats]:
    """What crosses a client's link in a session, up and down: what the phases above move, in bits."""
    costs, work = problem.costs, problem.work[clients]
    row = np.asarray(cuts, dtype=np.int64) - 1
    once = costs.once_after(row, problem.fleet.holds[clients])
    up = costs.bits[row] + np.multiply(costs.smashed[row], work)
    return up, costs.bits[row] + once + np.multiply(costs.gradient[row], work)


def latency(problem: Problem, cuts: ArrayLike, shares: ArrayLike, clients: Which = ALL) -> Floats:
    """Eq. (20): T_k of every client, whole (cut L, eqs. (18) and (19)) or split (eq. (17))."""
    return session_phases(problem, cuts, shares, clients).total


def whole_model_latency(problem: Problem) -> Floats:
    """Eq. (19): T̃_k, what FedAvg takes: the whole model on the client."""
    return latency(problem, problem.layers, 0.0)


def latency_alone(problem: Problem) -> Floats:
    """T̃_k of eq. (19); infinite for a client that may not train the whole model."""
    return np.where(problem.allowed.at(problem.layers), whole_model_latency(problem), np.inf)


@dataclass(frozen=True)
class Details:
    """What follows for every client from cuts and shares, as columns."""

    phases: Phases[Floats]
    """Where its time goes."""
    bytes_up: Floats
    """What crosses its link in a session."""
    bytes_down: Floats
    alone: Floats
    """T̃_k: what it would take by itself; infinite where it may not train the whole model."""


def details(problem: Problem, cuts: ArrayLike, shares: ArrayLike) -> Details:
    """All that is told of a plan's clients."""
    up, down = session_bits(problem, cuts)
    return Details(session_phases(problem, cuts, shares), up / 8, down / 8, latency_alone(problem))


def server_work(problem: Problem, cuts: ArrayLike, clients: Which = ALL) -> Floats:
    """s_k(l) = N_k·(F^S + B^S)(l): FLOPs that a session leaves to the server."""
    return np.multiply(problem.costs.server[np.asarray(cuts, dtype=np.int64) - 1], problem.work[clients])


def before_server(problem: Problem, cuts: ArrayLike, clients: Which = ALL) -> Floats:
    """a_k(l): the part of T_k that no share can shorten; the denominator of eq. (35) is T_θ - a_k."""
    return latency(problem, cuts, np.inf, clients)


def fitted_latency(problem: Problem, fit: Fit, cuts: ArrayLike, shares: ArrayLike) -> Floats:
    """Eq. (27): T_k on the fitted curves for l < L, and T̃_k of eq. (19) at l = L. Cuts may be real numbers.

    The paper prints F_k^C and F_k^S in the denominators where f_k^C and f_k^S are meant.
    """
    fleet, work, layers = problem.fleet, problem.work, problem.layers
    cut = np.asarray(cuts, dtype=np.float64)
    per_bit = 1 / fleet.up + 1 / fleet.down
    on_client = fit.client_flops(cut) * work / fleet.compute
    on_server = _on_server(fit.client_flops(layers - cut), work, shares)
    moved = (fit.client_bits(cut) + work * fit.smashed_bits(cut)) * per_bit
    return np.where(cut >= layers, whole_model_latency(problem), moved + on_client + on_server)
