"""Cutwater: split-federated learning with an exact planner.

The names below are what a user types. They are imported on first use, so that ``import cutwater`` and
planning from a saved profile never import torch. :mod:`cutwater.extend` has what planners, aggregators and
executors of one's own are written with.
"""

from typing import TYPE_CHECKING

from cutwater.base.lazy import offered

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

_HOME = {
    "Client": "cutwater.plan.fleet",
    "ConditionSettings": "cutwater.scenario.settings",
    "CutwaterError": "cutwater.base.errors",
    "DataSettings": "cutwater.scenario.settings",
    "Fleet": "cutwater.plan.fleet",
    "Job": "cutwater.plan.jobs",
    "JobsPlan": "cutwater.plan.jobs",
    "Layered": "cutwater.model.layers",
    "Pad": "cutwater.data.padding",
    "Plan": "cutwater.plan.value",
    "Problem": "cutwater.plan.problem",
    "Profile": "cutwater.profile.values",
    "Round": "cutwater.federate.loop",
    "Scenario": "cutwater.scenario.file",
    "Server": "cutwater.plan.problem",
    "Session": "cutwater.plan.session",
    "Study": "cutwater.federate.study",
    "TrainSettings": "cutwater.scenario.settings",
    "TrainedRun": "cutwater.federate.loop",
    "build": "cutwater.model.zoo",
    "evaluate": "cutwater.execute.finished",
    "export": "cutwater.execute.finished",
    "from_datasets": "cutwater.data.custom",
    "join": "cutwater.model.halves",
    "layered": "cutwater.model.discover.layered",
    "load_jobs": "cutwater.scenario.jobs",
    "load_run": "cutwater.runs.checkpoint",
    "load_scenario": "cutwater.scenario.file",
    "measure": "cutwater.profile.measure",
    "plan_jobs": "cutwater.plan.jobs",
    "predict": "cutwater.execute.finished",
    "profile_layered": "cutwater.profile.count",
    "profile_model": "cutwater.profile.count",
    "run": "cutwater.execute.local",
    "solve": "cutwater.plan.planners",
    "study_of": "cutwater.federate.from_scenario",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place
__getattr__, __dir__ = offered(__name__, _HOME)
