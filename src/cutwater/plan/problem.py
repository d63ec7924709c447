"""The problem a planner solves, as frozen values: model costs, clients, server, session (paper, eq. (21))."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Quantity
from cutwater.base.schema import check, described
from cutwater.base.units import show_compute, show_size
from cutwater.plan.allowed import Allowed, allowed_cuts
from cutwater.plan.fleet import Client, Fleet
from cutwater.plan.session import Session
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

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Costs:
    """What each cut 1..L costs for one sample; cut L sends nothing and needs no server (eq. (18))."""

    bits: Floats
    """What of w^C travels down and up in every round: weights that learn, and buffers."""
    once: Floats
    """What of it travels down once: weights that do not learn, of layers 1..l."""
    client_forward: Floats
    client_backward: Floats
    server_forward: Floats
    server_backward: Floats
    smashed: Floats
    gradient: Floats

    @classmethod
    def of(cls, profile: Profile) -> "Costs":
        """The columns of a profile with eq. (18) applied to its last cut."""
        bits = profile.column("client_bits") + profile.column("buffer_bits")
        costs = cls(bits, *(profile.column(name) for name in _COLUMNS))
        for whole_model_has_none in (
            costs.server_forward,
            costs.server_backward,
            costs.smashed,
            costs.gradient,
        ):
            whole_model_has_none[-1] = 0.0
        return costs

    @cached_property
    def client(self) -> Floats:
        """F^C + B^C."""
        return self.client_forward + self.client_backward

    def once_after(self, row: Ints, holds: ArrayLike) -> Floats:
        """Fixed weights of the layers up to a row of these columns that a device with some of them lacks."""
        held = np.minimum(np.asarray(holds, dtype=np.int64), len(self.once))
        lacking: Floats = np.maximum(self.once[row] - np.concatenate([[0.0], self.once])[held], 0.0)
        return lacking

    @cached_property
    def server(self) -> Floats:
        """F^S + B^S."""
        return self.server_forward + self.server_backward


_COLUMNS = (
    "frozen_bits",
    "client_forward_flops",
    "client_backward_flops",
    "server_forward_flops",
    "server_backward_flops",
    "smashed_bits",
    "gradient_bits",
)


@dataclass(frozen=True, eq=False)
class Problem:
    """Decide each client's cut and share of the server so that the slowest is done as early as possible."""

    profile: Profile
    clients: Iterable[Client]
    server: Server
    session: Session

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", self.fleet)
        _check_cuts(self)
        _check_memory(self)
        _check_server(self)

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
    def costs(self) -> Costs:
        """The profile as arrays over the cuts."""
        return Costs.of(self.profile)

    @cached_property
    def batch_size(self) -> Floats:
        """|B_k| of each client."""
        own = self.fleet.batch_size
        return np.where(own > 0, own, self.session.batch_size).astype(np.float64)

    @cached_property
    def work(self) -> Floats:
        """N_k: the samples that each client processes in a session, I·|D| or steps·|B|."""
        fleet, session = self.fleet, self.session
        epochs, steps = fleet.epochs.astype(np.float64), fleet.steps.astype(np.float64)
        unset = (epochs == 0) & (steps == 0)
        epochs[unset], steps[unset] = session.epochs or 0, session.steps or 0
        return np.where(steps > 0, steps * self.batch_size, epochs * fleet.samples)

    @cached_property
    def allowed(self) -> Allowed:
        """Which cuts each client may use: min_cut, memory, forbidden cuts, and those the model rules out."""
        return allowed_cuts(self.profile, self.fleet, self.batch_size)

    def replace(self, **changes: Any) -> "Problem":
        """The same problem with some parts changed."""
        return replace(self, **changes)


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
    stuck = problem.allowed.clients_without_any()
    if not stuck.size:
        return
    k = int(stuck[0])
    name, memory = problem.fleet.names[k], float(problem.fleet.memory[k])
    least = problem.allowed.least_memory(k)
    if least is None:
        *limits, last = _limits(problem, k)
        raise PlanError(
            f"client {name!r} has no cut left: {', '.join(limits)} and {last} rule out all {problem.layers}"
        )
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
    return [*limits, f"the model's tied weights (at cuts {tied})"] if tied else limits


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
