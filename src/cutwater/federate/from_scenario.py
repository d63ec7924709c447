"""From a scenario file to a study that can be trained: builds the model, loads the data, shares it out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutwater.base.errors import ScenarioError
from cutwater.base.schema import read
from cutwater.base.speech import Say, from_a_file, quiet
from cutwater.scenario.file import Scenario, named_file
from cutwater.scenario.judging import JudgeSettings
from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings

if TYPE_CHECKING:
    from cutwater.federate.study import Study


@from_a_file()
def study_of(
    scenario: Scenario,
    *,
    planner: str = "exact",
    planner_options: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    say: Say = quiet,
) -> "Study":
    """The study that a scenario describes; ``rounds`` stands in for its own number of them."""
    # The rest of this module serves planning and tables, which need no torch.
    import torch

    from cutwater.federate.conditions import check_trace
    from cutwater.federate.study import Study
    from cutwater.model import zoo
    from cutwater.train.lookup import check_loss_name, find_device, find_optimizer
    from cutwater.train.metrics import find_evaluate, find_metrics

    if scenario.model is None:
        raise ScenarioError(
            f"{scenario.source} has a profile but no [model]: training needs the model itself"
        )
    train = train_settings(scenario)
    if rounds is not None:
        train = replace(train, rounds=rounds)
    # What can be refused at once is refused before data is loaded and a profile counted.
    find_device(train.device)
    find_optimizer(train)
    if train.loss is not None:
        check_loss_name(train.loss)
    find_metrics(train.metrics)
    find_evaluate(train)
    conditions = condition_settings(scenario)
    check_trace(conditions.trace, scenario.fleet.names)
    share_out = data_settings(scenario)
    data = share_out.load(say)
    spec = scenario.model
    data.check_fits(spec.input, spec.classes)
    # The weights follow from the seed, whatever else drew random numbers before.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(train.seed)
        model = zoo.build(spec.name, input=spec.input, classes=spec.classes, **spec.options or {})
    study = Study.of(
        model,
        data,
        scenario.fleet,
        scenario.server,
        scenario.session,
        train=train,
        share_out=share_out,
        conditions=conditions,
        judge=read(JudgeSettings, scenario.sections.get("judge", {})),
        profile=scenario.profile,
        planner=planner,
        planner_options=planner_options,
        wires=scenario.wires,
        band=scenario.band,
    )
    return replace(study, source=scenario.source)


def train_settings(scenario: Scenario) -> TrainSettings:
    """[train], or its defaults."""
    return read(TrainSettings, scenario.sections.get("train", {}))


def data_settings(scenario: Scenario) -> DataSettings:
    """[data], or its defaults; its folder is looked up from where the scenario is."""
    settings = read(DataSettings, scenario.sections.get("data", {}))
    if settings.folder is None:
        return settings
    return replace(settings, folder=_beside(scenario, "[data] folder", settings.folder))


def condition_settings(scenario: Scenario) -> ConditionSettings:
    """[conditions], or its defaults; a trace file is looked up from where the scenario is."""
    settings = read(ConditionSettings, scenario.sections.get("conditions", {}))
    if settings.trace is None:
        return settings
    return replace(settings, trace=_beside(scenario, "[conditions] trace", settings.trace))


def _beside(scenario: Scenario, what: str, name: str) -> str:
    return str(named_file(Path(scenario.source).parent, name, what))
