"""What nodes send back: an update that may be aggregated, or the reason why it may not.

It counts only if it answers this round's order, for the client that the node is, with the tensors, sample
count and steps that the plan calls for; and, where the model is split, if the server's half has seen the
session through. Whether its numbers may be aggregated is the aggregator's business.
"""

from flwr.app import Message

from cutwater.base.errors import EngineError
from cutwater.federate.executor import Orders, Update
from cutwater.federate.measured import Measured
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.measured import observed, phases
from cutwater.flower.orders import OrderBook, Sent
from cutwater.model.halves import join_states
from cutwater.plan.latency import PHASES
from cutwater.plan.value import ClientPlan
from cutwater.serve.hosting import Trained
from cutwater.train.session import Task

_WATCHES = 1.1
"""How much faster than ours a node's clock may go."""


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
    _check_seconds(report, wall)
    planned = orders.plan[task.client]
    took, timed = phases(report, planned.phases, wall, overhead, emulated=emulated)
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


def _check_seconds(report: wire.Report, wall: float) -> None:
    """The next rounds are planned on these seconds, and everybody's share depends on everybody's."""
    took = sum(report.seconds[name] for name in PHASES)
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
