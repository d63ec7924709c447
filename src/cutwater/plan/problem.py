"""The problem a planner solves, as frozen values: model costs, clients, server, session (paper, eq. (21))."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Choice, Quantity
from cutwater.base.schema import Told, check, described
from cutwater.base.units import show_compute, show_size
from cutwater.plan.allowed import Allowed, allowed_cuts
from cutwater.plan.costs import Costs, Fresh, WireCosts
from cutwater.plan.fleet import LABELS, NO_LIMIT, Client, Fleet
from cutwater.plan.places import Places
from cutwater.plan.schedule import Steps
from cutwater.plan.session import Session, Wire, Wires, check_micro_batches, usable
from cutwater.profile.values import Profile


@described("the server", PlanError)
@dataclass(frozen=True)
class Server:
    """The parameter server (PS)."""

    compute: Annotated[
        float,
        Quantity(least=0, per="compute"),
        'F^max, what all shares add up to at most; `"0 GFLOPS"` is a server that shares nothing, so that '
        "every client must train the whole model",
    ]
    memory: Annotated[
        float,
        Quantity(above=0, most=NO_LIMIT, per="size"),
        "what all sessions of a round may hold at the server of a deployment: a client whose session does "
        "not fit beside the others is lost for the round",
        Told("no limit"),
    ] = NO_LIMIT

    def __post_init__(self) -> None:
        check(self)


_CAPACITY = Quantity(above=0, most=NO_LIMIT, per="rate")


@described("a shared link", PlanError)
@dataclass(frozen=True)
class SharedLink:
    """What all clients send, or receive, over one line: a cell, a site's uplink."""

    capacity: Annotated[float, _CAPACITY, "what the rates of all clients add up to at most"]

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Band:
    """The lines that all clients share, in bits per second; no limit where each has a link of its own."""

    up: float = NO_LIMIT
    down: float = NO_LIMIT

    @property
    def shared(self) -> bool:
        """Whether there is one at all."""
        return math.isfinite(self.up) or math.isfinite(self.down)


@dataclass(frozen=True, eq=False)
class Problem:
    """Decide each client's cut and share of the server so that the slowest is done as early as possible."""

    profile: Profile
    clients: Iterable[Client]
    server: Server
    session: Session
    wires: Wires = field(default_factory=Wires)
    band: Band = field(default_factory=Band)
    """What the links of all clients go over; a client's own rates are the most that it can use of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", self.fleet)
        _check_labels(self)
        _check_parts(self)
        _check_wires(self)
        _check_priced(self)
        _check_cuts(self)
        _check_memory(self)
        _check_server(self)
        _check_band(self)

    @cached_property
    def fleet(self) -> Fleet:
        """The clients as columns."""
        return self.clients if isinstance(self.clients, Fleet) else Fleet.of(self.clients)

    def __len__(self) -> int:
        """K, the number of clients."""
        return len(self.fleet)

    @property
    def layers(self) -> int:
        """L, the number of layers and of cuts."""
        return len(self.profile)

    @cached_property
    def stay(self) -> Bools:
        """Whose labels stay on the device."""
        keeps = np.full(len(self), self.session.labels == "stay")
        for k, labels in self.fleet.labels.items():
            keeps[k] = labels == "stay"
        return keeps

    @cached_property
    def places(self) -> Places:
        """Where the model may be cut: at its cuts and, where somebody's labels stay, at pairs of them."""
        return Places.of(self.layers, pairs=bool(self.stay.any()))

    @cached_property
    def costs(self) -> Costs:
        """The profile as arrays over the places."""
        return Costs.of(self.profile, self.places)

    @cached_property
    def batch_size(self) -> Floats:
        """|B_k| of each client."""
        own = self.fleet.batch_size
        return np.where(own > 0, own, self.session.batch_size).astype(np.float64)

    @cached_property
    def work(self) -> Floats:
        """N_k: the samples that each client processes in a session, I·|D| or steps·|B|."""
        epochs, steps = (column.astype(np.float64) for column in self._length)
        return np.where(steps > 0, steps * self.batch_size, epochs * self.fleet.samples)

    @cached_property
    def steps(self) -> Steps:
        """The mini-batches of each client's session, and their parts."""
        sizes = self.batch_size.astype(np.int64)
        return Steps.of(*self._length, self.fleet.samples, sizes, self.session.micro_batches)

    @cached_property
    def fresh(self) -> Fresh:
        """How much of each client's session brings rows that the server has not seen yet."""
        if not self.wire_costs.repeats:
            return Fresh.everything(len(self))
        sizes = self.batch_size.astype(np.int64)
        return Fresh.of(*self._length, self.fleet.samples, sizes)

    def sends_once(self, places: ArrayLike, wires: ArrayLike) -> Bools:
        """Which clients send a row once a session, cut there, and later only its number."""
        rows = np.asarray(places, dtype=np.int64) - 1
        once: Bools = self.wire_costs.saved(wires, rows, self.fresh) > 0
        return once

    @property
    def _length(self) -> tuple[Ints, Ints]:
        """Epochs and steps of each client's session; 0 for the one that it does not go by."""
        epochs, steps = self.fleet.epochs.copy(), self.fleet.steps.copy()
        unset = (epochs == 0) & (steps == 0)
        epochs[unset], steps[unset] = self.session.epochs or 0, self.session.steps or 0
        return epochs, steps

    @cached_property
    def options(self) -> tuple[Wire, ...]:
        """The ways in which a split step may cross the cut."""
        return self.wires.options(self.session.micro_batches)

    @cached_property
    def wire_costs(self) -> WireCosts:
        """What crosses the cut, by way and cut."""
        return WireCosts.of(self.profile, self.costs, self.options)

    @cached_property
    def allowed(self) -> Allowed:
        """Which cuts each client may use, and how a step may cross them: min_cut, memory, forbidden cuts, the
        client's codecs and schedules, and what the model rules out."""
        return allowed_cuts(self)

    def at_rates(self, up: Floats, down: Floats) -> "Problem":
        """The same with shared links shared out: everybody has a link of its own, of these rates."""
        return replace(self, clients=self.fleet.replace(up=up, down=down), band=Band())

    def at_compute(self, compute: float) -> "Problem":
        """The same with so much of the server's compute, and all of its memory."""
        return replace(self, server=replace(self.server, compute=compute))

    def replace(self, **changes: Any) -> "Problem":
        """The same problem with some parts changed."""
        return replace(self, **changes)


def _check_band(problem: Problem) -> None:
    """Where parts overlap, the smallest price of a session has no closed form."""
    if problem.band.shared and any(wire.schedule != "in turn" for wire in problem.options):
        raise PlanError(
            "links are shared and parts of a step may overlap, but rates are planned for steps in turn: set "
            'schedule = "in turn" in [wire], or micro_batches = 1'
        )


def _check_labels(problem: Problem) -> None:
    """Whoever keeps its labels must be able to go in turn, unless it holds the whole model."""
    fleet = problem.fleet
    for k, labels in fleet.labels.items():
        Choice(LABELS).check(labels, f"client {fleet.names[k]!r} labels", PlanError)
    for k, schedules in fleet.schedules.items():
        if problem.stay[k] and "in turn" not in schedules:
            raise PlanError(
                f"client {fleet.names[k]!r} can use only {', '.join(sorted(schedules))} parts, but its "
                'labels stay on the device, and then parts go in turn: add "in turn" to its schedules'
            )
    if problem.stay.any() and all(wire.schedule == "overlapped" for wire in problem.options):
        name = fleet.names[int(problem.stay.argmax())]
        raise PlanError(
            f"the labels of client {name!r} stay on the device, and then parts go in turn, but [wire] offers "
            'only overlapped ones: add "in turn" to schedule in [wire], or let labels go'
        )


def _check_parts(problem: Problem) -> None:
    smallest = int(problem.batch_size.argmin())
    size, name = int(problem.batch_size[smallest]), problem.fleet.names[smallest]
    check_micro_batches(problem.session.micro_batches, size, f"client {name!r}")


def _check_wires(problem: Problem) -> None:
    """Every client must be left a way to cross a cut."""
    fleet, options = problem.fleet, problem.options
    for k in sorted({*fleet.codecs, *fleet.schedules}):
        if not usable(options, fleet.codecs.get(k), fleet.schedules.get(k)).any():
            able = [*sorted(fleet.codecs.get(k, ())), *sorted(fleet.schedules.get(k, ()))]
            offered = sorted({word for wire in options for word in (wire.schedule, wire.up, wire.down)})
            raise PlanError(
                f"client {fleet.names[k]!r} can use only {', '.join(able)}, but [wire] offers "
                f"{', '.join(offered)}: add what it can use to [wire]"
            )


def _check_priced(problem: Problem) -> None:
    """Every client must be left a way to cross a cut whose bits can be told."""
    fleet, options = problem.fleet, problem.options
    priced = problem.wire_costs.known[:, : problem.layers - 1].any(axis=1)
    if problem.layers == 1 or priced.all():
        return
    coded = ", ".join(sorted({word for wire in options for word in (wire.up, wire.down)} - {"fp32"}))
    sentence = (
        f"the profile of {problem.profile.model!r} does not tell which tensors cross its cuts, so {coded} "
        "can't be priced{}: make it anew with cutwater profile, or add fp32 to [wire]{}"
    )
    if not priced.any():
        raise PlanError(sentence.format("", ""))
    for k in sorted({*fleet.codecs, *fleet.schedules}):
        if not (usable(options, fleet.codecs.get(k), fleet.schedules.get(k)) & priced).any():
            raise PlanError(sentence.format(f" for {fleet.names[k]!r}", " and to the client's codecs"))


def _check_cuts(problem: Problem) -> None:
    fleet, layers = problem.fleet, problem.layers
    beyond = np.flatnonzero(fleet.min_cut > layers)
    if beyond.size:
        name, cut = fleet.names[beyond[0]], fleet.min_cut[beyond[0]]
        raise PlanError(
            f"client {name!r} has min_cut {cut}, but {problem.profile.model!r} has only {layers} layers"
        )
    for k, cuts in fleet.forbidden.items():
        wrong = [cut for cut in cuts if not (isinstance(cut, int) and 1 <= cut <= layers)]
        if wrong:
            raise PlanError(
                f"client {fleet.names[k]!r} forbids cut {wrong[0]!r}, but cuts are numbered 1 to {layers}"
            )


def _check_memory(problem: Problem) -> None:
    allowed = problem.allowed
    stuck = np.flatnonzero(~np.take(allowed.cells.any(axis=(1, 2)), allowed.of))
    if not stuck.size:
        return
    k = int(stuck[0])
    name, memory = problem.fleet.names[k], float(problem.fleet.memory[k])
    least = float(allowed.memory[allowed.of[k]].min())
    if not math.isfinite(least):
        *limits, last = _limits(problem, k)
        among = f"all {problem.layers}" if not problem.stay[k] else "all pairs and the whole model"
        raise PlanError(f"client {name!r} has no cut left: {', '.join(limits)} and {last} rule out {among}")
    raise PlanError(
        f"client {name!r} has memory {show_size(memory)}, but the smallest of its allowed cuts needs "
        f"{show_size(least)} at batch size {problem.batch_size[k]:.0f}"
    )


def _limits(problem: Problem, k: int) -> list[str]:
    """What takes cuts from a client whatever its memory; tied weights where nothing else takes theirs."""
    min_cut, forbidden = int(problem.fleet.min_cut[k]), sorted(problem.fleet.forbidden.get(k, ()))
    limits = [f"min_cut {min_cut}", f"its forbidden cuts {forbidden}"]
    tied = [cut.cut for cut in problem.profile.cuts if cut.ruled_out and cut.cut >= min_cut]
    tied = [cut for cut in tied if cut not in forbidden]
    if tied and not problem.stay[k]:
        limits.append(f'the model\'s tied weights (at cuts {tied}; labels = "stay" allows pairs of them)')
    return limits


def _check_server(problem: Problem) -> None:
    compute, most = problem.server.compute, float(problem.costs.server.max()) * float(problem.work.max())
    if compute > 0 and math.isfinite(most * len(problem) / compute):
        return
    free = problem.costs.server == 0
    stuck = np.flatnonzero(~problem.allowed.any_of(free))
    if stuck.size:
        name, memory = problem.fleet.names[stuck[0]], float(problem.fleet.memory[stuck[0]])
        limit = f" in its {show_size(memory)} of memory" if math.isfinite(memory) else ""
        little = f"{'next to ' if compute else ''}no compute ({show_compute(compute)})"
        raise PlanError(
            f"client {name!r} can't train the whole model{limit}, but the server has {little} to "
            f"share: give the server compute or let the client use cut {problem.layers}"
        )
