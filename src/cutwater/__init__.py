"""Cutwater: split-federated learning with an exact planner.

The names below are what a user types. They are imported on first use, so that ``import cutwater`` and
planning from a saved profile never import torch.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Client": "cutwater.plan.fleet",
    "ConditionSettings": "cutwater.scenario.settings",
    "CutwaterError": "cutwater.base.errors",
    "DataSettings": "cutwater.scenario.settings",
    "Fleet": "cutwater.plan.fleet",
    "Layered": "cutwater.model.layers",
    "Plan": "cutwater.plan.value",
    "Problem": "cutwater.plan.problem",
    "Profile": "cutwater.profile.values",
    "Scenario": "cutwater.scenario.file",
    "Server": "cutwater.plan.problem",
    "Session": "cutwater.plan.problem",
    "Round": "cutwater.federate.loop",
    "Study": "cutwater.federate.study",
    "TrainSettings": "cutwater.scenario.settings",
    "build": "cutwater.model.zoo",
    "from_datasets": "cutwater.data.custom",
    "join": "cutwater.model.halves",
    "layered": "cutwater.model.discover.layered",
    "load_scenario": "cutwater.scenario.file",
    "measure": "cutwater.profile.measure",
    "profile_layered": "cutwater.profile.count",
    "profile_model": "cutwater.profile.count",
    "run": "cutwater.execute.local",
    "solve": "cutwater.plan.planners",
    "study_of": "cutwater.federate.from_scenario",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cutwater' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
