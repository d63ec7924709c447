"""How long each phase and stage of a session takes: one function per equation of the paper (Sec. IV).

Every function broadcasts, so scalars give one client at one cut and arrays give a fleet, all cuts, or both.
``samples`` is how many samples the stage processes: |B| gives the paper's stage of one mini-batch, and N_k,
all samples of a session, gives that stage's part of T_k. (The first line of the paper's eq. (17) multiplies
by |B_k| twice; its second line, which is used here, does not.) Sizes are in bits, rates in bits per second.

Beyond the paper, smashed data and gradients may be coded (a codec adds bits to every message, too), every
message of a split step waits for the link's round trip, and the parts of a step may overlap
(:mod:`cutwater.plan.schedule`), so that a step takes less than its stages add up to. Where parts go in turn,
smashed data that repeats itself goes up once a session (:meth:`~cutwater.plan.costs.WireCosts.saved`). Where
labels stay on the device, a model is cut twice: w^C is head and tail then, w^S the middle, what goes up is
smashed data and the gradients of the tail's input, what comes down the middle's output and the gradients of
smashed data, and a part waits for two round trips (:mod:`cutwater.plan.places` has the sum). ``cuts`` are the
numbers of places there: a cut, or beyond L a pair.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import HUGE, Number
from cutwater.base.schema import described
from cutwater.plan.costs import WireCosts
from cutwater.plan.fleet import SCHEDULES
from cutwater.plan.problem import Problem
from cutwater.plan.schedule import overlapped_lines, overlapped_step
from cutwater.plan.session import Wire
from cutwater.profile.fit import Fit


def model_download(bits: ArrayLike, down: ArrayLike) -> Floats:
    """Eq. (9): DM = |w^C| / r."""
    return np.divide(bits, down)


def client_forward(flops: ArrayLike, samples: ArrayLike, compute: ArrayLike) -> Floats:
    """Eq. (10): FP^C = F^C·|B| / f^C."""
    return np.divide(np.multiply(flops, samples), compute)


def smashed_upload(bits: ArrayLike, samples: ArrayLike, up: ArrayLike, heads: ArrayLike = 0.0) -> Floats:
    """Eq. (11): TS = |S|·|B| / r; ``heads`` are the bits that messages take whatever their samples."""
    return np.divide(np.multiply(bits, samples) + heads, up)


def server_forward(flops: ArrayLike, samples: ArrayLike, share: ArrayLike) -> Floats:
    """Eq. (12): FP^S = F^S·|B| / f^S; never done where work meets no share."""
    return _on_server(flops, samples, share)


def server_backward(flops: ArrayLike, samples: ArrayLike, share: ArrayLike) -> Floats:
    """Eq. (13): BP^S = B^S·|B| / f^S; never done where work meets no share."""
    return _on_server(flops, samples, share)


def gradient_download(bits: ArrayLike, samples: ArrayLike, down: ArrayLike, heads: ArrayLike = 0.0) -> Floats:
    """Eq. (14): TG = |G|·|B| / r; ``heads`` as above."""
    return np.divide(np.multiply(bits, samples) + heads, down)


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
    smashed_upload: Annotated[
        T, SECONDS, "smashed data to the server, eq. (11); with a tail, its gradients, too"
    ]
    server_forward: Annotated[T, SECONDS, "forward passes on the server, eq. (12)"]
    server_backward: Annotated[T, SECONDS, "backward passes on the server, eq. (13)"]
    gradient_download: Annotated[
        T, SECONDS, "gradients of smashed data to the client, eq. (14); with a tail, its input, too"
    ]
    client_backward: Annotated[T, SECONDS, "backward passes on the client, eq. (15)"]
    model_upload: Annotated[T, SECONDS, "the client's half to the server, eq. (16)"]
    round_trips: Annotated[T, SECONDS, "waiting for the link's round trip in split steps"] = 0.0  # type: ignore[assignment]
    overlap: Annotated[T, SECONDS, "of all these, what took place at the same time: counted twice above"] = (
        0.0  # type: ignore[assignment]
    )

    def __iter__(self) -> Iterator[T]:
        return (self.named(name) for name in PHASES)

    def named(self, name: str) -> T:
        """One phase or stage, by its name in :data:`PHASES`."""
        seconds: T = getattr(self, name)
        return seconds

    @property
    def total(self) -> T:
        """Eq. (17): T_k, the sum of all phases and stages but for what overlaps."""
        first, *others = self
        for seconds in others:
            first = first + seconds
        return first - self.overlap

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
        return Phases(*(float(column[k]) for column in (*self, self.overlap)))

    def to_json(self: "Phases[float]") -> dict[str, float]:
        """The phases of one client by name, in the order that they happen, and their overlap."""
        return {name: float(self.named(name)) for name in (*PHASES, OVERLAP)}


OVERLAP = "overlap"
PHASES = tuple(field.name for field in fields(Phases) if field.name != OVERLAP)
"""The names of all phases and stages, in the order that they happen."""
NOTHING: "Phases[float]" = Phases(*(0.0 for _ in PHASES))
"""The phases of a session of which nothing is known."""

Which = slice | int | Ints
"""Some of the clients, as an index into the fleet's columns."""
ALL = slice(None)


def session_phases(
    problem: Problem,
    cuts: ArrayLike,
    shares: ArrayLike,
    clients: Which = ALL,
    wires: ArrayLike | None = None,
) -> Phases[Floats]:
    """Eq. (20) taken apart: the phases of every client's session under these cuts, shares and wires.

    ``cuts``, ``shares`` and ``wires`` (places in ``problem.options``; each client's first unless given)
    broadcast against the clients (one number for all, or one for each); to see all cuts at once, give them a
    leading axis: ``cuts[:, None]`` yields arrays of shape L × K.
    """
    fleet, costs, crossing = problem.fleet, problem.costs, problem.wire_costs
    work, compute, up, down = (c[clients] for c in (problem.work, fleet.compute, fleet.up, fleet.down))
    row, wire = np.asarray(cuts, dtype=np.int64) - 1, _wires(problem, wires, clients)
    split, tail = row != problem.layers - 1, row >= problem.layers
    overlapped = crossing.overlapped[wire] & split & ~tail
    parts = np.where(split, problem.steps.parts[clients], 0.0) if split.any() else np.zeros(1)
    messages = parts * (1 + tail)
    if overlapped.any():
        messages = np.where(overlapped, problem.steps.count[clients], messages)
    bits_up, heads_up = crossing.up(wire, row, problem.fresh.at(clients))
    phases = (
        model_download(costs.bits[row] + _once(problem, row, clients), down),
        client_forward(costs.client_forward[row], work, compute),
        smashed_upload(bits_up, work, up, heads_up * parts),
        server_forward(costs.server_forward[row], work, shares),
        server_backward(costs.server_backward[row], work, shares),
        gradient_download(
            crossing.gradient[wire, row], work, down, crossing.gradient_message[wire, row] * parts
        ),
        client_backward(costs.client_backward[row], work, compute),
        model_upload(costs.bits[row], up),
        messages * fleet.rtt[clients],
    )
    serial: Phases[Floats] = Phases(*np.broadcast_arrays(*phases, np.zeros(1)))
    if not overlapped.any():
        return serial
    steps = overlapped_seconds(problem, cuts, shares, clients, wire)
    in_turn = serial.total - serial.model_download - serial.model_upload
    overlap = np.zeros_like(in_turn)
    np.subtract(in_turn, steps, out=overlap, where=overlapped & np.isfinite(steps))
    # Rounding may leave a step that can't overlap an ulp longer than the sum of its stages.
    return replace(serial, overlap=np.maximum(overlap, 0.0))


def _once(problem: Problem, row: Ints, clients: Which) -> Floats:
    """Bits of fixed weights that the clients do not hold yet."""
    fleet = problem.fleet
    return problem.costs.once_after(row, fleet.holds[clients], fleet.holds_last[clients])


def _wires(problem: Problem, wires: ArrayLike | None, clients: Which) -> Ints:
    first: Ints = problem.allowed.first[problem.allowed.of[clients]]
    return first if wires is None else np.asarray(wires, dtype=np.int64)


def overlapped_seconds(
    problem: Problem, cuts: ArrayLike, shares: ArrayLike, clients: Which, wires: ArrayLike
) -> Floats:
    """Seconds of all mini-batches of a session whose parts overlap."""
    total: Floats = np.zeros(1)
    for count, step in _kinds_of_steps(problem, cuts, shares, clients, wires):
        seconds = overlapped_step(*step)
        # A server that never answers is waited for only where there is a mini-batch.
        total = total + np.multiply(count, seconds, out=np.zeros_like(seconds), where=count > 0)
    return total


def session_lines(
    problem: Problem, cuts: ArrayLike, clients: Which, wires: ArrayLike, *, overlapped: bool
) -> tuple[Floats, Floats]:
    """All mini-batches of a session by its share f: the largest of its lines away + work / f.

    In turn there is one line: a_k without the model's transfer, and s_k. Where parts overlap, each line is a
    path (:func:`cutwater.plan.schedule.overlapped_lines`), the same in all mini-batches.
    """
    if not overlapped:
        phases = session_phases(problem, cuts, np.inf, clients, wires)
        away = phases.total - phases.model_download - phases.model_upload
        return away[None], np.broadcast_to(server_work(problem, cuts, clients), away.shape)[None]
    lines = [np.zeros(1), np.zeros(1)]
    # At a share of 1 FLOPS, seconds at the server are its FLOPs.
    for count, step in _kinds_of_steps(problem, cuts, 1.0, clients, wires):
        lines = [total + count * each for total, each in zip(lines, overlapped_lines(*step), strict=True)]
    return lines[0], lines[1]


_Step = tuple[list[Floats], list[Floats], tuple[Floats, Floats], Floats]
"""What the larger and the smaller parts of a mini-batch take at each station, how many there are, and rtt."""


def _kinds_of_steps(
    problem: Problem, cuts: ArrayLike, shares: ArrayLike, clients: Which, wires: ArrayLike
) -> Iterator[tuple[Floats, _Step]]:
    """How many mini-batches of each kind a session has, with what their parts take."""
    fleet, costs, crossing = problem.fleet, problem.costs, problem.wire_costs
    row, wire = np.asarray(cuts, dtype=np.int64) - 1, np.asarray(wires, dtype=np.int64)
    compute, up, down, rtt = (c[clients] for c in (fleet.compute, fleet.up, fleet.down, fleet.rtt))

    def stations(size: Floats, there: Floats) -> list[Floats]:
        """Of one part; ``there`` is 0 where there is none."""
        heads = crossing.smashed_message[wire, row] * there, crossing.gradient_message[wire, row] * there
        found = (
            client_forward(costs.client_forward[row], size, compute),
            smashed_upload(crossing.smashed[wire, row], size, up, heads[0]),
            _on_server(costs.server[row], size, shares),
            gradient_download(crossing.gradient[wire, row], size, down, heads[1]),
            client_backward(costs.client_backward[row], size, compute),
        )
        return list(np.broadcast_arrays(*found))

    for kind in problem.steps.kinds:
        larger, smaller = kind.larger[clients], kind.smaller[clients]
        first = stations(kind.larger_size[clients], np.ones_like(larger))
        second = stations(kind.smaller_size[clients], (smaller > 0).astype(np.float64))
        yield kind.count[clients], (first, second, (larger, smaller), rtt)


def session_bits(
    problem: Problem, cuts: ArrayLike, clients: Which = ALL, wires: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """What crosses a client's link in a session, up and down: what the phases above move, in bits."""
    return _bits(problem, problem.wire_costs, cuts, clients, _wires(problem, wires, clients))


def plain_bits(
    problem: Problem, cuts: ArrayLike, clients: Which = ALL, schedule: str = SCHEDULES[0]
) -> tuple[Floats, Floats]:
    """The same without any codec: what the plan's cuts move as fp32, up and down, by one schedule."""
    plain = WireCosts.of(problem.profile, problem.costs, (Wire(schedule=schedule),))
    return _bits(problem, plain, cuts, clients, np.array(0))


def _bits(
    problem: Problem, crossing: WireCosts, cuts: ArrayLike, clients: Which, wire: Ints
) -> tuple[Floats, Floats]:
    costs, work, row = problem.costs, problem.work[clients], np.asarray(cuts, dtype=np.int64) - 1
    once, parts = _once(problem, row, clients), problem.steps.parts[clients]
    bits_up, heads_up = crossing.up(wire, row, problem.fresh.at(clients))
    # Bits are whole numbers, while a third of a session's, say, has no end in binary.
    smashed = np.rint(np.multiply(bits_up, work) + heads_up * parts)
    gradient = np.multiply(crossing.gradient[wire, row], work) + crossing.gradient_message[wire, row] * parts
    return costs.bits[row] + smashed, costs.bits[row] + once + gradient


def latency(
    problem: Problem,
    cuts: ArrayLike,
    shares: ArrayLike,
    clients: Which = ALL,
    wires: ArrayLike | None = None,
) -> Floats:
    """Eq. (20): T_k of every client, whole (cut L, eqs. (18) and (19)) or split (eq. (17))."""
    return session_phases(problem, cuts, shares, clients, wires).total


def quickest(
    problem: Problem, cells: Iterable[tuple[int, int | None]], shares: ArrayLike
) -> tuple[Floats, Ints, Ints]:
    """The best of these cuts and wires (None: each client's first) for every client: seconds, cuts and wires.

    Of equals, the first; cut 0 where a client may use none of them, or would never be done.
    """
    best, cuts = np.full(len(problem), np.inf), np.zeros(len(problem), dtype=np.int64)
    found = problem.allowed.first_wires
    for cut, wire in cells:
        able = problem.allowed.at(cut) if wire is None else problem.allowed.by(wire, cut)
        # The whole model crosses no cut, so that any wire will do for it.
        split = cut != problem.layers
        seconds = latency(problem, cut, shares, wires=wire if split else 0)
        better = able & (seconds < best)
        best[better], cuts[better] = seconds[better], cut
        if split and wire is not None:
            found[better] = wire
    return best, cuts, found


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


def details(problem: Problem, cuts: ArrayLike, shares: ArrayLike, wires: ArrayLike | None) -> Details:
    """All that is told of a plan's clients."""
    up, down = session_bits(problem, cuts, wires=wires)
    phases = session_phases(problem, cuts, shares, wires=wires)
    return Details(phases, up / 8, down / 8, latency_alone(problem))


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
