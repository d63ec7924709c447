"""Planners by name: one small interface, and room for yours.

A planner is a function from a :class:`Problem` (and keyword options) to a :class:`Plan`; build the Plan with
:func:`cutwater.plan.value.assemble`, which checks it. Make it known with :func:`register`, or, for the
command line, as an entry point in the group ``cutwater.planners``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from math import isfinite
from typing import Any

import numpy as np

from cutwater.base.errors import CutwaterError, PlanError, suggest
from cutwater.base.usercode import find, told, where
from cutwater.plan.alternating import alternating
from cutwater.plan.baselines import fedavg, greedy, random, splitfed, splitfed_best
from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.exhaustive import exhaustive
from cutwater.plan.problem import Problem
from cutwater.plan.root import AT_OPTIMUM
from cutwater.plan.shared_links import fair_rates
from cutwater.plan.value import Plan

Planner = Callable[..., Plan]
"""``planner(problem, **options) -> Plan``."""

_PLANNERS: dict[str, Planner] = {
    "exact": exact,
    "alternating": alternating,
    "fedavg": fedavg,
    "splitfed": splitfed,
    "splitfed-best": splitfed_best,
    "greedy": greedy,
    "random": random,
    "exhaustive": exhaustive,
}
_GROUP = "cutwater.planners"
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def register(name: str, planner: Planner) -> None:
    """Make a planner known under a name that is still free."""
    if not callable(planner):
        raise PlanError(f"planner {name!r} is {planner!r}, but must be a function of a Problem")
    if name in _PLANNERS:
        raise PlanError(f"there is a planner {name!r} already: register yours under another name")
    _PLANNERS[name] = planner


def planners() -> tuple[str, ...]:
    """The names of all planners: built in, registered, and installed as entry points."""
    installed = (point.name for point in entry_points(group=_GROUP))
    return tuple(dict.fromkeys([*_PLANNERS, *installed]))


def planner(name: str | Planner) -> Planner:
    """A planner by name, of your own as ``package.module:function``, or as it is given."""
    if callable(name):
        return name
    if not isinstance(name, str):
        raise PlanError(f"planner is {name!r}, but must be a name or a function of a Problem")
    if name in _PLANNERS:
        return _PLANNERS[name]
    if ":" in name:
        return find(name, "planner", PlanError)
    for point in entry_points(group=_GROUP, name=name):
        return _installed(point)
    raise PlanError(
        f"there is no planner {name!r}: {suggest(name, planners())}; your own is package.module:function"
    )


def _installed(point: EntryPoint) -> Planner:
    try:
        found: Planner = point.load()
    except Exception as error:  # whatever an installed package does when it is imported
        raise PlanError(
            f"planner {point.name!r} can't be imported ({told(error)}): mend the package that brings it as "
            f"{point.value}, or use another planner"
        ) from error
    if not callable(found):
        raise PlanError(f"planner {point.name!r} is {found!r}, but must be a function of a Problem")
    return found


def called(planner: str | Planner) -> str:
    """What a planner is called in sentences and records.

    >>> called("exact"), called(exact)
    ('exact', 'exact')
    """
    return planner if isinstance(planner, str) else getattr(planner, "__name__", type(planner).__name__)


def solve(problem: Problem, /, planner: str | Planner = "exact", **options: Any) -> Plan:
    """Plan a round, with a lower bound that holds for every plan of the problem.

    >>> from cutwater.plan.planners import solve
    >>> plan = solve(problem)                       # doctest: +SKIP
    >>> plan.latency, plan.lower_bound              # doctest: +SKIP
    """
    return solve_by(problem, planner, options)


def solve_by(problem: Problem, name: str | Planner, options: Mapping[str, Any]) -> Plan:
    """The same with options as they were read from a file or a command line, whatever their names."""
    return certify(problem, run(problem, name, **options))


def run(problem: Problem, name: str | Planner, /, **options: Any) -> Plan:
    """Only the planner itself, as it is timed; its plan may come without a lower bound."""
    chosen = planner_for(name, options)
    if name == "exact" or not problem.band.shared:
        plan = _planned(chosen, name, problem, options)
    else:
        # Nobody else plans rates: all clients have an equal part of a shared link, or all that they can use.
        rates = fair_rates(problem)
        plan = _planned(chosen, name, problem.at_rates(*rates), options)
    if not isinstance(plan, Plan):
        raise PlanError(
            f"planner {called(name)!r} returned {type(plan).__name__}, but must return a Plan, as "
            "cutwater.plan.value.assemble makes it"
        )
    if name == "exact":
        return plan
    plan = replace(plan, outcome=_with_ignored(problem, plan))
    return replace(plan, problem=problem, rates=rates, lower_bound=0.0) if problem.band.shared else plan


def _planned(chosen: Planner, name: str | Planner, problem: Problem, options: Mapping[str, Any]) -> Any:
    try:
        return chosen(problem, **options)
    except CutwaterError:
        raise
    except Exception as error:  # whatever a user's function does
        if where(error) is None:
            raise
        raise PlanError(
            f"planner {called(name)!r} failed ({told(error)}): it takes a Problem and returns a Plan, as "
            "cutwater.plan.value.assemble makes it"
        ) from error


def _with_ignored(problem: Problem, plan: Plan) -> str:
    """How a planner ended, and that it looked at no other wire than each client's first, where it did not."""
    split = plan.split
    if len(problem.options) == 1 or not split.any():
        return plan.outcome
    if (plan.wires != problem.allowed.first_wires)[split].any():
        return plan.outcome
    used = [problem.options[place] for place in np.unique(plan.wires[split])]
    ways = "; ".join(f"steps {wire.schedule}, {wire.up} up, {wire.down} down" for wire in used)
    ignored = f"{ways}: looks at no other schedule or codec"
    return f"{plan.outcome}; {ignored}" if plan.outcome else ignored


def planner_for(name: str | Planner, options: Mapping[str, Any]) -> Planner:
    """A planner by name; an option that it does not name is refused.

    Its first parameter is the problem and no option.
    """
    chosen = planner(name)
    try:
        parameters = list(signature(chosen).parameters.values())
    except (TypeError, ValueError) as error:  # as of some that are written in C
        raise PlanError(
            f"planner {called(name)!r} does not tell what it takes ({told(error)}): write a function of a "
            "Problem around it"
        ) from error
    if not parameters:
        raise PlanError(f"planner {called(name)!r} takes nothing, but must be a function of a Problem")
    first, *rest = parameters
    known = [parameter.name for parameter in rest if parameter.kind in _BY_NAME]
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in rest)
    for option in options:
        if option in known or (takes_any and option != first.name):
            continue
        hint = suggest(option, known) if known else "it takes none"
        raise PlanError(f"planner {called(name)!r} has no option {option!r}: {hint}")
    return chosen


@dataclass(frozen=True)
class PlannerResult:
    """What one planner made of a problem."""

    planner: str
    latency: float | None = None
    gap: float | None = None
    """Above the optimum, as a fraction; None above an optimum of no time at all."""
    planning_seconds: float | None = None
    sharing: int | None = None
    """Clients with a share of the server."""
    outcome: str = ""
    error: str | None = None
    """Why there is no plan."""


def judged(problem: Problem, name: str, bound: float, clock: Callable[[], float]) -> PlannerResult:
    """One of several planners side by side, beside the lower bound of all; only the planner is timed."""
    began = clock()
    try:
        plan = run(problem, name)
    except PlanError as error:
        return PlannerResult(name, error=str(error))
    seconds = clock() - began
    plan = certify(problem, plan, bound)
    gap = plan.gap if isfinite(plan.gap) else None
    return PlannerResult(name, plan.latency, gap, seconds, plan.sharing, plan.outcome)


def standing(result: PlannerResult) -> tuple[bool, float, bool]:
    """What planners side by side are sorted by: the fastest round first, those without a plan last.

    Of those at the optimum ``exact`` comes first, though another may be rounded to an ulp below it.
    """
    at_optimum = result.gap is not None and result.gap <= AT_OPTIMUM
    return result.latency is None, 0.0 if at_optimum else result.latency or 0.0, result.planner != "exact"


def certify(problem: Problem, plan: Plan, bound: float | None = None) -> Plan:
    """The plan with the exact planner's lower bound, if it has none of its own."""
    if plan.lower_bound > 0:
        return plan
    return replace(plan, lower_bound=certified_bound(problem) if bound is None else bound)
