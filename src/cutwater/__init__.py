"""Cutwater: split-federated learning with an exact planner.

The names below are what a user types. They are imported on first use, so that ``import cutwater`` and
planning from a saved profile never import torch. :mod:`cutwater.extend` has what planners, aggregators and
executors of one's own are written with.
"""

from typing import TYPE_CHECKING

from cutwater.base.lazy import by_name, offered

if TYPE_CHECKING:  # what type checkers and editors see
    from cutwater.base.errors import CutwaterError as CutwaterError
    from cutwater.data.custom import from_datasets as from_datasets
    from cutwater.data.padding import Pad as Pad
    from cutwater.execute.finished import evaluate as evaluate, export as export, predict as predict
    from cutwater.execute.local import run as run
    from cutwater.federate.from_scenario import study_of as study_of
    from cutwater.federate.loop import Round as Round, TrainedRun as TrainedRun
    from cutwater.federate.study import Study as Study
    from cutwater.model.discover.layered import layered as layered
    from cutwater.model.halves import join as join
    from cutwater.model.layers import Layered as Layered
    from cutwater.model.zoo import build as build
    from cutwater.plan.fleet import Client as Client, Fleet as Fleet
    from cutwater.plan.jobs import Job as Job, JobsPlan as JobsPlan, plan_jobs as plan_jobs
    from cutwater.plan.planners import solve as solve
    from cutwater.plan.problem import Problem as Problem, Server as Server
    from cutwater.plan.session import Session as Session
    from cutwater.plan.value import Plan as Plan
    from cutwater.profile.count import profile_layered as profile_layered, profile_model as profile_model
    from cutwater.profile.measure import measure as measure
    from cutwater.profile.values import Profile as Profile
    from cutwater.runs.checkpoint import load_run as load_run
    from cutwater.scenario.file import Scenario as Scenario, load_scenario as load_scenario
    from cutwater.scenario.jobs import load_jobs as load_jobs
    from cutwater.scenario.settings import (
        ConditionSettings as ConditionSettings,
        DataSettings as DataSettings,
        TrainSettings as TrainSettings,
    )

_HOME = by_name(
    {
        "cutwater.base.errors": ("CutwaterError",),
        "cutwater.data.custom": ("from_datasets",),
        "cutwater.data.padding": ("Pad",),
        "cutwater.execute.finished": ("evaluate", "export", "predict"),
        "cutwater.execute.local": ("run",),
        "cutwater.federate.from_scenario": ("study_of",),
        "cutwater.federate.loop": ("Round", "TrainedRun"),
        "cutwater.federate.study": ("Study",),
        "cutwater.model.discover.layered": ("layered",),
        "cutwater.model.halves": ("join",),
        "cutwater.model.layers": ("Layered",),
        "cutwater.model.zoo": ("build",),
        "cutwater.plan.fleet": ("Client", "Fleet"),
        "cutwater.plan.jobs": ("Job", "JobsPlan", "plan_jobs"),
        "cutwater.plan.planners": ("solve",),
        "cutwater.plan.problem": ("Problem", "Server"),
        "cutwater.plan.session": ("Session",),
        "cutwater.plan.value": ("Plan",),
        "cutwater.profile.count": ("profile_layered", "profile_model"),
        "cutwater.profile.measure": ("measure",),
        "cutwater.profile.values": ("Profile",),
        "cutwater.runs.checkpoint": ("load_run",),
        "cutwater.scenario.file": ("Scenario", "load_scenario"),
        "cutwater.scenario.jobs": ("load_jobs",),
        "cutwater.scenario.settings": ("ConditionSettings", "DataSettings", "TrainSettings"),
    }
)

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place
__getattr__, __dir__ = offered(__name__, _HOME)
