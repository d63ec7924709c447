"""What a node answers to an order: the trained weights of its layers, and what the session took."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import RecordDict

from cutwater.base.errors import DataError, RunError
from cutwater.base.usercode import find, told
from cutwater.data.custom import DatasetSamples
from cutwater.execute.emulate import Meter
from cutwater.execute.workers import blamed_on
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.node import Batches, emulated, one_thread_here, run_session, trained_state
from cutwater.flower.run_config import Settings
from cutwater.flower.shared_study import identity, study_for
from cutwater.train.session import Batch, Task

_study = lru_cache(maxsize=2)(study_for)
"""In simulation a process handles many messages; in deployment each has its own."""


def answer(
    content: RecordDict,
    name: str,
    node: Mapping[str, Any],
    settings: Settings,
    *,
    study: Study | None = None,
    began: float | None = None,
) -> RecordDict:
    """The answer of the node that is client ``name``; ``began`` is when the message came."""
    one_thread_here()
    meter = Meter()
    began = meter.clock() if began is None else began
    study = study or _study(settings)
    order, weights = wire.read_order(content)
    task = order.task
    if task.client != name:
        raise RunError(f"the order is for client {task.client!r}, but this node is {name!r}")
    own = str(node.get("loader", ""))
    if not own and order.fingerprint != identity(study, settings):
        raise RunError("the node's scenario is not the server's: install the same app and data on both")
    if not 1 <= task.cut <= len(study.model):
        raise RunError(f"the order has cut {task.cut}, but the model {len(study.model)} layers")
    source = own_batches(own, study) if own else study.batches
    meter.device = emulated(study, task) if settings.emulate else None
    meter.seconds["setup"] = meter.clock() - began
    with blamed_on(task):
        report = run_session(study, order, weights, source, meter)
    return wire.report_records(report, trained_state(study.job(), task.cut))


def own_batches(loader: str, study: Study) -> Batches:
    """Mini-batches of the node's own samples, drawn as they would be from the scenario's."""

    def made(task: Task) -> Iterable[Batch]:
        samples = DatasetSamples(_load(loader, task.client), loader)
        if len(samples) != task.samples:
            raise DataError(
                f"{loader} returned {len(samples)} samples for client {task.client!r}, but the scenario "
                f"counts on {task.samples}, its weight in the average: set samples = {len(samples)} there"
            )
        return study.batches_of(task, samples, np.arange(len(samples)))

    return made


def _load(loader: str, client: str) -> Any:
    function = find(loader, "loader", DataError)
    try:
        return function(client)
    except Exception as error:  # whatever a user's function does when it is called
        raise DataError(
            f"loader {loader!r} can't load the data of client {client!r} ({told(error)}); try it in Python"
        ) from error
