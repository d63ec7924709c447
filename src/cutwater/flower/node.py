"""What a node answers to an order: the trained weights of its layers, and what the session took.

With a lease it trains an order after the other until the server ends the lease.
"""

import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn

from cutwater.base.errors import CutwaterError, DataError, EngineError, RunError
from cutwater.base.usercode import find, told
from cutwater.data.custom import DatasetSamples
from cutwater.data.samples import Batch
from cutwater.execute.emulate import Meter
from cutwater.execute.workers import blamed_on
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.failures import failure
from cutwater.flower.fixed_weights import FixedWeights
from cutwater.flower.letters import from_letter, to_letter
from cutwater.flower.run_config import RunConfig
from cutwater.flower.shared_study import identity, study_for
from cutwater.serve.device import emulated, run_at_device
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.ticket import Ticket
from cutwater.train.session import Task
from cutwater.train.wire import load_loops

LEASE = "lease"
"""The record of a message that offers one."""
_study = lru_cache(maxsize=2)(study_for)
"""In simulation a process handles many messages; in deployment each has its own."""


def ready(settings: RunConfig) -> Study:
    """The study, with all that the first session waits for: the model, codecs, what torch imports late."""
    study = _study(settings)
    study.job().optimizer(0.0)([nn.Parameter(torch.zeros(1))])
    for codec in (*study.wires.up, *study.wires.down):
        load_loops(codec)
    return study


def answer(
    content: RecordDict,
    name: str,
    node: Mapping[str, Any],
    settings: RunConfig,
    *,
    study: Study | None = None,
    began: float | None = None,
) -> RecordDict:
    """The answer of the node that is client ``name``; ``began`` is when the message came."""
    # One torch thread makes the bits the same on any machine; the setting belongs to the calling thread.
    torch.set_num_threads(1)
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
        raise RunError(f"the order has cut {task.cut}, but the model has cuts 1 to {len(study.model)}")
    if study.session.of(study.client(name)).labels == "stay" and not (
        task.second_cut or task.cut == len(study.model)
    ):
        raise RunError(f"the order has cut {task.cut} alone, but the labels of client {name!r} stay here")
    meter.device = emulated(study, task) if settings.emulate else None
    meter.seconds["setup"] = meter.clock() - began
    with blamed_on(task):
        state, kept = _weights(study, order, weights)
        batches = own_batches(own, study, task) if own else study.batches(task)
        steps = run_at_device(study, task, _ticket(order), state, batches, meter)
    report = wire.Report(
        order.run, task.client, task.round, steps.count, task.samples, steps.loss, kept, meter.seconds
    )
    trained = study.job().split(steps.cut, task.second_cut).client.state_dict()
    return wire.report_records(
        report, {key: trained[key] for key in study.job().traffic(steps.cut, task.second_cut).every_round}
    )


def hold(
    content: RecordDict,
    name: str,
    node: Mapping[str, Any],
    settings: RunConfig,
    *,
    study: Study | None = None,
) -> RecordDict:
    """Hold the lease that a message offers to client ``name``; what is answered to the message afterwards.

    A node of a simulation lends its process to others between two messages, so it declines.
    """
    if "client" not in node and study is None:
        return RecordDict({"declined": ConfigRecord({"reason": "the node shares its process with others"})})
    offer = content.get(LEASE)
    if not isinstance(offer, ConfigRecord) or type(offer.get("most")) is not int:
        raise RunError("the message offers no lease: do server and node run the same release?")
    ticket, most = Ticket.from_text(str(offer.get("ticket"))), offer["most"]
    assert isinstance(most, int)
    study = study or ready(settings)
    sessions = 0
    with LeaseHolder(ticket, client=name, most=most) as lease:
        for letter in lease.letters():
            began = time.monotonic()
            try:
                records = answer(from_letter(letter), name, node, settings, study=study, began=began)
            except CutwaterError as error:
                records = failure(error)
            lease.post(to_letter(records))
            sessions += 1
    return RecordDict({"held": ConfigRecord({"sessions": sessions})})


def _weights(study: Study, order: wire.Order, record: ArrayRecord) -> tuple[dict[str, Tensor], bool]:
    """The client-side weights: those that were sent, and the fixed ones that the device holds.

    And whether it holds all fixed ones from now on.
    """
    job, task = study.job(), order.task
    mine = job.traffic(task.cut, task.second_cut)
    like = job.split(task.cut, task.second_cut).client.state_dict()
    lacking = mine.lacking(job.held(task))
    known = [name for name in mine.fixed if name not in lacking]
    wanted = [*mine.every_round, *lacking]
    sent = wire.unpack(record, {name: like[name] for name in wanted})
    if set(order.fixed) != set(mine.fixed):
        odd = sorted(set(order.fixed) ^ set(mine.fixed))[0]
        raise EngineError(
            f"order and model differ in the fixed weights {odd!r}: install the same app on both sides"
        )
    if not mine.fixed:
        return mine.completed(sent, {}), True
    store = FixedWeights()
    first = study.traffic.first_name
    kept = [store.keep(first(name), sent[name], order.fixed[name]) for name in lacking]
    store.remove_unused()
    found = {name: store.find(first(name), like[name], order.fixed[name]) for name in known}
    return mine.completed(sent, {**sent, **found}), all(kept)


def _ticket(order: wire.Order) -> Ticket | None:
    if not order.ticket:
        return None
    ticket, task = Ticket.from_text(order.ticket), order.task
    claims = ticket.claims
    if (claims.run, claims.round, claims.client, claims.cut, claims.second_cut) != (
        order.run,
        task.round,
        task.client,
        task.cut,
        task.second_cut,
    ):
        raise EngineError(f"the ticket is for {claims}, but the order for {task}")
    return ticket


def own_batches(loader: str, study: Study, task: Task) -> Iterable[Batch]:
    """Mini-batches of the node's own samples, drawn as they would be from the scenario's."""
    known, given = study.data.train, _load(loader, task.client)
    samples = (
        known.like(given, loader) if isinstance(known, DatasetSamples) else DatasetSamples(given, loader)
    )
    if len(samples) != task.samples:
        raise DataError(
            f"{loader} returned {len(samples)} samples for client {task.client!r}, but the scenario "
            f"counts on {task.samples}, its weight in the average: set samples = {len(samples)} there"
        )
    return study.batches_of(task, samples, np.arange(len(samples)))


def _load(loader: str, client: str) -> Any:
    function = find(loader, "loader", DataError)
    try:
        return function(client)
    except Exception as error:  # whatever a user's function does when it is called
        raise DataError(
            f"loader {loader!r} can't load the data of client {client!r} ({told(error)}); try it in Python"
        ) from error
