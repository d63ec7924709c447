"""The study that follows from a run config, the same at the server and at every node."""

from dataclasses import replace
from hashlib import sha256

from cutwater.base.errors import RunError
from cutwater.federate.from_scenario import study_of
from cutwater.federate.study import Study
from cutwater.flower.run_config import RunConfig
from cutwater.scenario.file import load_scenario


def study_for(settings: RunConfig) -> Study:
    """The study of a run.

    Unlike on one machine, what a node can do is only known by measuring: unless the scenario says what the
    planner believes, it follows a robust average of what was measured.
    """
    scenario = load_scenario(settings.scenario)
    study = study_of(scenario, planner=settings.planner, rounds=settings.rounds or None)
    if study.conditions.estimate == "true" and not settings.emulate:
        raise RunError(
            "[conditions] estimate is 'true', but nobody knows what real devices can do before they are "
            "measured: leave it out, or emulate the devices"
        )
    if "estimate" in scenario.sections.get("conditions", {}):
        return study
    return replace(study, conditions=replace(study.conditions, estimate="average"))


def identity(study: Study, settings: RunConfig) -> str:
    """A digest that is the same at both ends if they would train the same.

    The study's own says nothing of what a model's options change besides its weights, such as dropout.
    """
    model = load_scenario(settings.scenario).model
    return sha256(f"{study.fingerprint()} {model}".encode()).hexdigest()
