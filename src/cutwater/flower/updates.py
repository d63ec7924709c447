"""What nodes send back: an update that may be averaged, or the reason why it may not.

It counts only if it answers this round's order, for the client that the node is, with the tensors, sample
count and steps that the plan calls for, all finite; and, where the model is split, if the server's half has
seen the session through.
"""

from dataclasses import dataclass

from flwr.app import Message

from cutwater.base.errors import EngineError
from cutwater.federate.conditions import Condition
from cutwater.federate.round import Part
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.measured import Measured, observed, phases
from cutwater.flower.orders import Orders, Sent
from cutwater.flower.shared_study import mini_batches
from cutwater.model.halves import join_states
from cutwater.plan.latency import PHASES
from cutwater.plan.value import ClientPlan
from cutwater.serve.hosting import Trained
from cutwater.train.session import Job, State, Task
from cutwater.train.step import state_bytes

_WATCHES = 1.1
"""How much faster than ours a node's clock may go."""


@dataclass(frozen=True)
class Update:
    """An update that counts, but for its weights: those are averaged at once and not kept."""

    task: Task
    measured: Measured
    part: Part
    condition: Condition
    """What the round says of the client's compute and rates."""
    loss: float


class Inbox:
    """Reads what comes back for orders."""

    def __init__(self, study: Study, job: Job, orders: Orders, *, emulated: bool) -> None:
        self._study, self._job, self._orders, self._emulated = study, job, orders, emulated

    def read(
        self,
        sent: Sent,
        reply: Message,
        *,
        planned: ClientPlan,
        wall: float,
        overhead: float | None,
    ) -> tuple[Update, State]:
        """The update in a reply that came ``wall`` seconds after its order, and the whole model's weights.

        Raises a CutwaterError that says why there is none.
        """
        task = sent.task
        if reply.has_error():
            raise EngineError(f"its node failed: {(reply.error.reason or 'no reason given')[:300]}")
        report, weights = wire.read_report(reply.content)
        _check(report, task, self._orders.run, len(mini_batches(self._study, task.client)))
        half = self._job.split(task.cut).client.state_dict()
        state, trained = wire.unpack(weights, half), None
        if sent.ticket is not None:
            trained = self._orders.collect(sent.ticket, report.steps)
            state = join_states(state, trained.state)
        _check_seconds(report, wall)
        took, timed = phases(report, planned.phases, wall, overhead, emulated=self._emulated)
        measured = _measured(planned, report, trained, wall, state_bytes(half.values()), timed)
        part = Part(
            planned.name,
            planned.cut,
            planned.share,
            planned.mode,
            planned.phases,
            took,
            delivered_share=measured.delivered_share,
        )
        crossed = (trained.bytes_up, trained.bytes_down) if trained else None
        condition = observed(self._study, task, took, crossed, timed=timed)
        return Update(task, measured, part, condition, trained.loss if trained else report.loss), state


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
    planned: ClientPlan, report: wire.Report, trained: Trained | None, wall: float, model: int, timed: bool
) -> Measured:
    session = report.seconds["session"]
    return Measured(
        name=planned.name,
        wall_seconds=wall,
        session_seconds=session,
        message_seconds=max(wall - session, 0.0),
        setup_seconds=report.seconds["setup"],
        bytes_up=model + (trained.bytes_up if trained else 0),
        bytes_down=model + (trained.bytes_down if trained else 0),
        promised_share=planned.share,
        delivered_share=trained.share if trained else None,
        promised_part=trained.delivery.promised if trained else None,
        delivered_part=trained.delivery.delivered if trained else None,
        model_timed=timed,
    )
