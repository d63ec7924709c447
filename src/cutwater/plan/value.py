"""The Plan: each client's cut, share and latency, phase by phase, with a bound on what any plan can reach."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.base.errors import FileFormatError, PlanError, suggest
from cutwater.base.jsonfile import check_document, document
from cutwater.base.kinds import Choice, Many, Number, Table, Text, Whole
from cutwater.base.schema import Field, Nested, Schema, described, schema_of
from cutwater.base.units import show_compute
from cutwater.codec.registry import any_lossy, lossy_among
from cutwater.plan.explain import explain
from cutwater.plan.fleet import SCHEDULES
from cutwater.plan.latency import OVERLAP, PHASES, SECONDS, Details, Phases, details
from cutwater.plan.marginal import marginal, waits
from cutwater.plan.places import place_of, shown_cuts
from cutwater.plan.problem import Problem
from cutwater.plan.session import Wire

FORMAT = "cutwater.plan"
VERSION = 1

Mode = Literal["fedavg", "split"]
Column = NDArray[Any] | Sequence[str]


@described("a client's plan", FileFormatError)
@dataclass(frozen=True)
class ClientPlan:
    """What one client does in a round."""

    name: Annotated[str, Text(), "the client's name"]
    cut: Annotated[int, Whole(1), "l_k: layers 1..cut stay on the client"]
    share: Annotated[float, Number(0), "f_k^S in FLOPS"]
    schedule: Annotated[
        str, Choice(SCHEDULES), "how the parts of a split step cross the cut: in turn, or overlapped"
    ]
    up: Annotated[str, Text(), "the codec of smashed data"]
    down: Annotated[str, Text(), "the codec of gradients"]
    mode: Annotated[
        Mode,
        Choice(("fedavg", "split")),
        "`fedavg`: the whole model on the client; `split`: the layers after the cut on the server",
    ]
    latency: Annotated[float, SECONDS, "T_k"]
    phases: Annotated[Phases[float], Nested(schema_of(Phases)), "where its time goes"]
    bytes_up: Annotated[float, Number(0), "what crosses its link in a session, but for labels and headers"]
    bytes_down: Annotated[float, Number(0), "the same in the other direction"]
    alone: Annotated[
        float | None, SECONDS, "T̃_k, what it would take by itself; null where it may not train all layers"
    ]
    second_cut: Annotated[
        int, Whole(0), "the layers after it stay on the client, too, and so do its labels; 0 without a tail"
    ] = 0
    rate_up: Annotated[
        float | None,
        Number(above=0),
        "what it gets of the uplink, in bits per second, where links are shared",
    ] = None
    rate_down: Annotated[float | None, Number(above=0), "the same in the other direction"] = None


@described("a turn", FileFormatError)
@dataclass(frozen=True, eq=False)
class Iteration:
    """One turn of an iterative planner."""

    number: Annotated[int, Whole(0), "which turn it is"]
    cuts: Annotated[Ints, Many(Whole(1)), "every client's cut"]
    shares: Annotated[Floats, Many(Number(0)), "every client's share"]
    target: Annotated[
        float, Number(), "T_θ that the shares were made for, on the curves that the planner plans with"
    ]
    latency: Annotated[float, Number(), "what these cuts and shares really take, on the true profile"]


DOCUMENT = Schema(
    "the plan",
    FileFormatError,
    (
        Field("planner", Text(), "who made it"),
        Field("latency", SECONDS, "T, which follows from the clients'"),
        Field("lower_bound", SECONDS, "no plan is faster; 0 where nothing is known"),
        Field("outcome", Text(empty=True), "how the planner ended, for people"),
        Field("model", Text(empty=True), "the model by name"),
        Field("layers", Whole(1), "L, how many the model has"),
        Field("server_compute", Number(0), "F^max in FLOPS"),
        Field("clients", Many(Nested(schema_of(ClientPlan)), 1), "what each client does"),
        Field("trace", Many(Nested(schema_of(Iteration))), "the planner's turns"),
        Field(
            "knee",
            Table(),
            "of a plan that `cutwater plan` makes: the smallest server (`compute`) that saves 90 % of what "
            "any could, its round (`latency`), the rounds `without` a server and with one without limits "
            "(`floor`), and the compute below which no server saves as much (`at_least`)",
            None,
            told="none",
            may_be_none=True,
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class Plan:
    """A frozen answer to a :class:`Problem` in columns; ``plan[k]`` or ``plan["c1"]`` is one client."""

    planner: str
    model: str
    layers: int
    server_compute: float
    names: Sequence[str]
    cuts: Ints
    second_cuts: Ints
    """Of those clients whose labels and tail stay; 0 for the others."""
    shares: Floats
    wires: Ints
    """Places in ``options``."""
    options: tuple[Wire, ...]
    """The ways in which a split step may cross the cut."""
    told: Details | Callable[[], Details] = field(repr=False)
    """What follows for every client, or how to work it out when somebody looks."""
    problem: Problem | None = field(default=None, repr=False)
    """What it is a plan for; None where that is not known, as of a plan from a file."""
    lower_bound: float = 0.0
    """No plan for the same problem is faster than this (0 where nothing is known)."""
    outcome: str = ""
    """How the planner ended, for people."""
    trace: tuple[Iteration, ...] = ()
    rates: tuple[Floats, Floats] | None = None
    """What each client gets of the links, up and down, where they are shared and so planned; else None."""

    @cached_property
    def details(self) -> Details:
        """Time, bytes and T̃ of every client, as columns."""
        return self.told if isinstance(self.told, Details) else self.told()

    @property
    def places(self) -> Ints:
        """Cuts, and pairs of cuts, by number (:mod:`cutwater.plan.places`)."""
        return place_of(self.cuts, self.second_cuts, self.layers)

    @property
    def phases(self) -> Phases[Floats]:
        """Where every client's time goes, as columns."""
        return self.details.phases

    @cached_property
    def latencies(self) -> Floats:
        """T_k of every client."""
        return self.phases.total

    @cached_property
    def latency(self) -> float:
        """T: a round is over when the slowest client is (eq. (21))."""
        return float(self.latencies.max())

    @cached_property
    def lossy(self) -> tuple[str, ...]:
        """The lossy codecs that its split clients use."""
        used = [self.options[place] for place in np.unique(self.wires[self.split])]
        return lossy_among(name for wire in used for name in (wire.up, wire.down))

    @cached_property
    def split(self) -> Bools:
        """Which clients leave layers to the server."""
        found: Bools = self.cuts < self.layers
        return found

    @property
    def may_lose(self) -> Bools:
        """Which of these have codecs that change what is learned, or may, as users' own are not loaded."""
        lossy = np.array([any_lossy(wire.up, wire.down) for wire in self.options])
        return lossy[self.wires] & self.split

    @property
    def sharing(self) -> int:
        """How many clients have a share of the server."""
        return int(np.count_nonzero(self.shares > 0))

    @property
    def gap(self) -> float:
        """How far above the optimum the latency can be at most, as a fraction (infinite without a bound)."""
        if self.latency == 0:
            return 0.0
        return self.latency / self.lower_bound - 1 if self.lower_bound > 0 else float("inf")

    @cached_property
    def marginal(self) -> tuple[float, Floats]:
        """-dT/dF and dT/da_k: what a little more server compute and less time on a client would save."""
        # Where numbers lie too far apart, nothing is known.
        with np.errstate(all="ignore"):
            per_flops, effect = marginal(self.latencies, self.shares, self._waits())
        if np.isfinite(per_flops) and np.isfinite(effect).all():
            return per_flops, effect
        return 0.0, np.zeros(len(self))

    def _waits(self) -> Floats:
        """What of every client's session shrinks as its share grows; of a plan from a file, by its phases."""
        if self.problem is None:
            known: Floats = np.where(self.phases.overlap > 0, np.nan, self.phases.server)
            return known
        return waits(self.problem, self.phases, self.places, self.shares, self.wires)

    @property
    def bottleneck(self) -> ClientPlan:
        """The slowest client; of several that finish together, the one whose own time weighs most."""
        effect = self.marginal[1]
        return self[int(effect.argmax() if effect.any() else self.latencies.argmax())]

    @property
    def clients(self) -> "ClientPlans":
        """One row for each client, made when asked for."""
        return ClientPlans(self)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, client: int | str) -> ClientPlan:
        k = self.place(client)
        cut, wire = int(self.cuts[k]), self.options[self.wires[k]]
        mode: Mode = "fedavg" if cut == self.layers else "split"
        more, alone = self.details, float(self.details.alone[k])
        return ClientPlan(
            name=self.names[k],
            cut=cut,
            share=float(self.shares[k]),
            schedule=wire.schedule,
            up=wire.up,
            down=wire.down,
            mode=mode,
            latency=float(self.latencies[k]),
            phases=more.phases.at(k),
            bytes_up=float(more.bytes_up[k]),
            bytes_down=float(more.bytes_down[k]),
            alone=alone if np.isfinite(alone) else None,
            second_cut=int(self.second_cuts[k]),
            rate_up=None if self.rates is None else float(self.rates[0][k]),
            rate_down=None if self.rates is None else float(self.rates[1][k]),
        )

    def place(self, client: int | str) -> int:
        """Where a client stands in the columns, by place or name."""
        if isinstance(client, int):
            return range(len(self))[client]
        if client not in self._index:
            raise PlanError(f"the plan has no client {client!r}: {suggest(client, list(self.names[:50]))}")
        return self._index[client]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.names)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def explain(self) -> str:
        """Who is the bottleneck, who shares the server, and what would help most, in a few sentences."""
        return explain(self)

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document: ``latency``, ``lower_bound``, ``planner``, ``clients`` and more."""
        columns: dict[str, Any] = self.columns
        columns["alone"] = [each if np.isfinite(each) else None for each in columns["alone"].tolist()]
        lists = (each.tolist() if isinstance(each, np.ndarray) else each for each in columns.values())
        clients = [
            dict(zip(columns, row, strict=True)) | {"phases": self.phases.at(k).to_json()}
            for k, row in enumerate(zip(*lists, strict=True))
        ]
        return document(FORMAT, VERSION, self.head() | {"clients": clients})

    @property
    def columns(self) -> dict[str, Column]:
        """What it says of its clients but their phases, by the keys that :meth:`to_json` has for them."""
        told, ways = self.details, ("schedule", "up", "down")
        rates = {} if self.rates is None else {"rate_up": self.rates[0], "rate_down": self.rates[1]}
        return {
            "name": self.names,
            "cut": self.cuts,
            "share": self.shares,
            **{key: np.array([getattr(wire, key) for wire in self.options])[self.wires] for key in ways},
            "mode": np.where(self.split, "split", "fedavg"),
            "latency": self.latencies,
            "alone": told.alone,
            "bytes_up": told.bytes_up,
            "bytes_down": told.bytes_down,
            "second_cut": self.second_cuts,
            **rates,
        }

    def head(self) -> dict[str, Any]:
        """The document of :meth:`to_json` without its clients."""
        return {
            "planner": self.planner,
            "latency": self.latency,
            "lower_bound": self.lower_bound,
            "outcome": self.outcome,
            "model": self.model,
            "layers": self.layers,
            "server_compute": self.server_compute,
            "trace": [_iteration_to_json(turn) for turn in self.trace],
        }

    @classmethod
    def from_json(cls, data: object, source: str = "the plan") -> "Plan":
        """Read back what :meth:`to_json` wrote, equal to the original."""
        return _plan_from_json(DOCUMENT.read(check_document(data, FORMAT, VERSION, source), source), source)


class ClientPlans(Sequence[ClientPlan]):
    """The rows of a plan, one for each client."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __len__(self) -> int:
        return len(self._plan)

    @overload
    def __getitem__(self, index: int) -> ClientPlan: ...
    @overload
    def __getitem__(self, index: slice) -> list[ClientPlan]: ...
    def __getitem__(self, index: int | slice) -> ClientPlan | list[ClientPlan]:
        if isinstance(index, slice):
            return [self._plan[k] for k in range(*index.indices(len(self)))]
        return self._plan[index]


def assemble(
    problem: Problem,
    planner: str,
    cuts: ArrayLike,
    shares: ArrayLike,
    *,
    second_cuts: ArrayLike = 0,
    wires: ArrayLike | None = None,
    lower_bound: float = 0.0,
    outcome: str = "",
    trace: tuple[Iteration, ...] = (),
) -> Plan:
    """The Plan that follows from cuts and shares, checked against every constraint of eq. (21).

    ``second_cuts`` are those of clients whose labels stay, 0 for the others. ``wires`` are places in
    ``problem.options``; by default each client goes by the first that it can use.
    """
    count, first = len(problem), problem.allowed.first_wires
    cut_column = np.array(np.broadcast_to(_whole(planner, "cut", cuts), count))
    second_column = np.array(np.broadcast_to(_whole(planner, "second cut", second_cuts), count))
    share_column = np.array(np.broadcast_to(np.asarray(shares, dtype=np.float64), count))
    wire_column = np.array(np.broadcast_to(_whole(planner, "wire", first if wires is None else wires), count))
    if problem.band.shared:
        raise PlanError(f"planner {planner!r} plans no rates, but links are shared: use cutwater.solve")
    _check_answer(problem, planner, cut_column, second_column, share_column, wire_column)
    places = place_of(cut_column, second_column, problem.layers)
    for column in (cut_column, second_column, share_column, wire_column):
        column.flags.writeable = False
    return Plan(
        planner=planner,
        model=problem.profile.model,
        layers=problem.layers,
        server_compute=problem.server.compute,
        names=problem.fleet.names,
        cuts=cut_column,
        second_cuts=second_column,
        shares=share_column,
        wires=wire_column,
        options=problem.options,
        told=partial(details, problem, places, share_column, wire_column),
        problem=problem,
        lower_bound=lower_bound,
        outcome=outcome,
        trace=trace,
    )


def _whole(planner: str, what: str, numbers: ArrayLike) -> Ints:
    given = np.asarray(numbers)
    with np.errstate(invalid="ignore"):
        whole: Ints = given.astype(np.int64)
    if not (whole == given).all():
        wrong = given[whole != given].flat[0]
        raise PlanError(f"planner {planner!r} gave a client {what} {wrong}, but a {what} is a whole number")
    return whole


def _check_answer(
    problem: Problem, planner: str, cuts: Ints, second_cuts: Ints, shares: Floats, wires: Ints
) -> None:
    names, cells, layers = problem.fleet.names, problem.allowed.cells, problem.layers
    inside = (cuts >= 1) & (cuts <= layers) & (wires >= 0) & (wires < len(problem.options))
    inside &= (second_cuts == 0) | ((cuts < second_cuts) & (second_cuts < layers) & problem.stay)
    place = place_of(np.where(inside, cuts, 1), np.where(inside, second_cuts, 0), layers)
    row, wire = place - 1, np.where(inside, wires, 0)
    good = inside & (cells[0][wire, row] if len(cells) == 1 else cells[problem.allowed.of, wire, row])
    work = problem.costs.server[row] * problem.work
    with np.errstate(all="ignore"):
        served = (work == 0) | ((shares > 0) & np.isfinite(work / shares))
    checks = (
        ("cut", good, cuts, "which is not allowed"),
        ("share", shares >= 0, shares, "which is not allowed"),
        ("share", served, shares, "so it would never be done"),
    )
    for what, right, values, why in checks:
        if not right.all():
            k = int(np.argmin(right))
            found = f"{what} {values[k]} at {shown_cuts(int(cuts[k]), int(second_cuts[k]))}"
            raise PlanError(f"planner {planner!r} gave client {names[k]!r} {found}, {why}")
    used, most = float(shares.sum()), problem.server.compute
    if used > most * (1 + 1e-9):
        raise PlanError(
            f"planner {planner!r} shares out {show_compute(used)}, but the server has {show_compute(most)}"
        )


def _iteration_to_json(turn: Iteration) -> dict[str, Any]:
    columns = {"cuts": turn.cuts.tolist(), "shares": turn.shares.tolist()}
    return {"number": turn.number, "target": turn.target, "latency": turn.latency, **columns}


def _plan_from_json(body: dict[str, Any], source: str) -> Plan:
    rows = body["clients"]
    for row in rows:
        if row["mode"] != ("fedavg" if row["cut"] == body["layers"] else "split"):
            raise FileFormatError(
                f"{source}: client {row['name']!r} has mode {row['mode']!r} at cut {row['cut']}"
            )

    def numbers(key: str) -> Floats:
        return np.array([row[key] for row in rows], dtype=np.float64)

    phases = ([row["phases"].get(name, 0.0) for row in rows] for name in (*PHASES, OVERLAP))
    shared = all(row.get(key) is not None for row in rows for key in ("rate_up", "rate_down"))
    ways = [Wire(row["schedule"], row["up"], row["down"]) for row in rows]
    options = tuple(dict.fromkeys(ways))
    names = tuple(row["name"] for row in rows)
    if len(set(names)) != len(names):
        raise FileFormatError(f"{source} must name every client, each with a name of its own")
    cuts = np.array([row["cut"] for row in rows], dtype=np.int64)
    second_cuts = np.array([row.get("second_cut", 0) for row in rows], dtype=np.int64)
    if cuts.max() > body["layers"]:
        raise FileFormatError(f"{source} has a cut outside 1 to {body['layers']}")
    wrong = (second_cuts > 0) & ((second_cuts <= cuts) | (second_cuts >= body["layers"]))
    if wrong.any():
        raise FileFormatError(
            f"{source} has a second cut {second_cuts[wrong][0]} after cut {cuts[wrong][0]}, but it must be "
            f"above that and below {body['layers']}"
        )
    return Plan(
        planner=body["planner"],
        model=body["model"],
        layers=body["layers"],
        server_compute=body["server_compute"],
        names=names,
        cuts=cuts,
        second_cuts=second_cuts,
        shares=numbers("share"),
        wires=np.array([options.index(way) for way in ways], dtype=np.int64),
        options=options,
        told=Details(
            phases=Phases(*(np.array(each, dtype=np.float64) for each in phases)),
            bytes_up=numbers("bytes_up"),
            bytes_down=numbers("bytes_down"),
            alone=np.array([np.inf if row["alone"] is None else row["alone"] for row in rows]),
        ),
        lower_bound=body["lower_bound"],
        outcome=body["outcome"],
        trace=tuple(_iteration_from_json(turn) for turn in body["trace"]),
        rates=(numbers("rate_up"), numbers("rate_down")) if shared else None,
    )


def _iteration_from_json(turn: dict[str, Any]) -> Iteration:
    cuts, shares = np.array(turn["cuts"], dtype=np.int64), np.array(turn["shares"], dtype=np.float64)
    return Iteration(turn["number"], cuts, shares, turn["target"], turn["latency"])
