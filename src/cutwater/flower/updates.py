"""What nodes send back: an update that may be aggregated, or the reason why it may not.

It counts only if it answers this round's order, for the client that the node is, with the tensors, sample
count and steps that the plan calls for; and, where the model is split, if the server's half has seen the
session through. Whether its numbers may be aggregated is the aggregator's business.
"""

import math
from dataclasses import replace

from flwr.app import Message

from cutwater.base.errors import EngineError
from cutwater.federate.conditions import Condition
from cutwater.federate.executor import Orders, Update
from cutwater.federate.measured import Measured
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.orders import OrderBook, Sent
from cutwater.model.halves import join_states
from cutwater.plan.latency import PHASES, Phases
from cutwater.plan.value import ClientPlan
from cutwater.serve.hosting import Trained
from cutwater.train.session import Task

_WATCHES = 1.1
"""How much faster than ours a node's clock may go."""
_OF_MODEL = ("model_download", "model_upload")
_UNSURE = 5.0
"""Seconds by which Flower's messages differ: its nodes look for orders every 3 s, the launcher of their apps
every second, both look for replies, and so do we."""


def read_update(
    study: Study,
    book: OrderBook,
    sent: Sent,
    reply: Message,
    *,
    orders: Orders,
    wall: float,
    overhead: float | None,
    emulated: bool,
) -> Update:
    """The update in a reply that came ``wall`` seconds after its order.

    Raises a CutwaterError that says why there is none.
    """
    task, job = sent.task, study.job()
    if reply.has_error():
        raise EngineError(f"its node failed: {(reply.error.reason or 'no reason given')[:300]}")
    report, weights = wire.read_report(reply.content)
    _check(report, task, book.run, len(study.batch_sizes(task.client)))
    mine, half = job.traffic(task.cut), job.split(task.cut).client.state_dict()
    came = wire.unpack(weights, {name: half[name] for name in mine.every_round})
    state, trained = mine.completed(came, orders.weights), None
    if sent.ticket is not None:
        trained = book.collect(sent.ticket, report.steps)
        state = join_states(state, trained.state)
    _check_seconds(report, task, wall)
    planned = orders.plan[task.client]
    at_once = task.schedule == "overlapped" and sent.ticket is not None
    took, timed = phases(report, planned.phases, wall, overhead, emulated=emulated, overlapped=at_once)
    down, up = job.model_bytes(task)
    crossed = (trained.bytes_up, trained.bytes_down) if trained is not None else (0, 0)
    moved = (up + crossed[0], down + crossed[1])
    return Update(
        task=task,
        weights=state,
        loss=trained.loss if trained is not None else report.loss,
        bytes_up=moved[0],
        bytes_down=moved[1],
        took=took,
        kept=report.kept,
        condition=observed(study, task, took, crossed, (up, down) if timed else (0, 0)),
        measured=_measured(
            planned,
            report,
            trained,
            wall,
            (up + crossed[0], down + crossed[1]),
            timed=timed,
            emulated=emulated,
        ),
    )


def _check(report: wire.Report, task: Task, run: str, steps: int) -> None:
    found = (report.run, report.round, report.client)
    if found != (run, task.round, task.client):
        raise EngineError(
            f"its report is for run, round and client {found}, not {(run, task.round, task.client)}"
        )
    if report.samples != task.samples:
        raise EngineError(f"it reports {report.samples} samples, but {task.samples} are registered")
    if report.steps != steps:
        raise EngineError(f"it reports {report.steps} steps, but the plan has {steps}")


def _check_seconds(report: wire.Report, task: Task, wall: float) -> None:
    """The next rounds are planned on these seconds, and everybody's share depends on everybody's."""
    of_model = sum(report.seconds[name] for name in _OF_MODEL)
    of_steps = [report.seconds[name] for name in PHASES if name not in _OF_MODEL]
    # Parts that overlap are worked on, sent and received at the same time, but each for no longer than all.
    at_once = task.schedule == "overlapped"
    took = of_model + (max(*of_steps, report.seconds["steps"]) if at_once else sum(of_steps))
    if took > _WATCHES * wall:
        raise EngineError(f"it reports {took:.3g} s of work, but its reply came after {wall:.3g} s")


def _measured(
    planned: ClientPlan,
    report: wire.Report,
    trained: Trained | None,
    wall: float,
    moved: tuple[int, int],
    *,
    timed: bool,
    emulated: bool,
) -> Measured:
    session = report.seconds["session"]
    return Measured(
        name=planned.name,
        wall_seconds=wall,
        session_seconds=session,
        message_seconds=max(wall - session, 0.0),
        setup_seconds=report.seconds["setup"],
        bytes_up=moved[0],
        bytes_down=moved[1],
        promised_share=planned.share,
        delivered_share=trained.share if trained else None,
        promised_part=trained.delivery.promised if trained else None,
        delivered_part=trained.delivery.delivered if trained else None,
        model_timed=timed,
        emulated=emulated,
    )


def phases(
    report: wire.Report,
    planned: Phases[float],
    wall: float,
    overhead: float | None,
    *,
    emulated: bool,
    overlapped: bool = False,
) -> tuple[Phases[float], bool]:
    """Seconds by phase, and whether the model's transfer was timed.

    Where parts overlap, phases add up to more than the mini-batches took by the wall: the rest is overlap.

    Flower moves the model in messages, whose fixed cost (polling, starting a process) is no part of eqs. (9)
    and (16): what a message took beyond the session and beyond an empty message is the model's transfer,
    halved. One that is lost in the polling is taken as planned. An emulated link has its own two numbers.
    """
    took = Phases(**{name: report.seconds[name] for name in PHASES})
    if overlapped:
        of_steps = took.total - took.model_download - took.model_upload
        took = replace(took, overlap=max(of_steps - report.seconds["steps"], 0.0))
    if emulated:
        return took, True
    down, up, timed = planned.model_download, planned.model_upload, False
    if overhead is not None:
        moved = wall - report.seconds["session"] - report.seconds["setup"] - overhead
        if moved > 2 * _UNSURE:
            down, up, timed = moved / 2, moved / 2, True
    return replace(took, model_download=down, model_upload=up), timed


def observed(
    study: Study, task: Task, took: Phases[float], crossed: tuple[int, int], model: tuple[int, int]
) -> Condition:
    """f^C, r and the round trip of a client, from what a session took and the bytes that crossed the cut.

    ``model`` are the bytes of the model's own transfer, if that was timed. What can't be told is NaN.
    """
    problem = study.problem([study.client(task.client)])
    flops = float(problem.costs.client[task.cut - 1]) * float(problem.work[0])
    up_seconds = took.smashed_upload + (took.model_upload if model[0] else 0.0)
    down_seconds = took.gradient_download + (took.model_download if model[1] else 0.0)
    steps = problem.steps
    trips = float((steps.count if task.schedule == "overlapped" else steps.parts)[0])
    return Condition(
        compute=_rate(flops, took.client),
        up=_rate(8.0 * (crossed[0] + model[0]), up_seconds),
        down=_rate(8.0 * (crossed[1] + model[1]), down_seconds),
        rtt=took.round_trips / trips if took.round_trips > 0 else math.nan,
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if amount > 0 and seconds > 0 else math.nan
