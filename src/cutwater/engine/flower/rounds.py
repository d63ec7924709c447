"""A round over Flower: plan, hand out, collect until the deadline, judge, aggregate (paper, Sec. III-B).

What a node sends counts only if it answers this round's order in time, for the client that the node is, with
the tensors, sample count and steps that the plan calls for, all finite; and, where the model is split, if the
server's half has seen the session through. Everything else is left out and named; the others are unaffected.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid
from torch import Tensor

from cutwater.engine.flower import wire
from cutwater.engine.flower.hosting import Hosting, Trained
from cutwater.engine.flower.measured import NOTHING, Measured, RoundMeasured, observed, phases
from cutwater.engine.flower.node import expectation
from cutwater.engine.flower.roster import Roster, exchange
from cutwater.engine.flower.study import mini_batches
from cutwater.engine.local import LocalEngine
from cutwater.engine.stream.server import StreamServer
from cutwater.engine.stream.ticket import Ticket
from cutwater.errors import CutwaterError, EngineError
from cutwater.model.layers import join_states
from cutwater.plan.fleet import Client
from cutwater.plan.planners import solve
from cutwater.plan.value import Plan
from cutwater.train.aggregate import Average, weights_sha256
from cutwater.train.conditions import Condition
from cutwater.train.round import Outcome, Part, under
from cutwater.train.run import Progress, Record, Step
from cutwater.train.selection import select
from cutwater.train.session import Score, State, Task
from cutwater.train.step import state_bytes
from cutwater.train.study import Study

Clock = Callable[[], float]
_SPARE = 600.0
"""Seconds that a round without a deadline waits beyond five times its plan; the dead are told of sooner."""

_LATE = 10.0
"""Seconds that a message outlives the deadline, so that who is late is said to be, and not to have failed."""

_SETTLE = 5.0
"""Seconds in which the server's end of a session must be over, once its client says that it is."""


@dataclass
class _Sent:
    """An order that is out."""

    task: Task
    ticket: Ticket | None


@dataclass
class _Arrived:
    """An update that counts."""

    task: Task
    measured: Measured
    part: Part
    condition: Condition
    loss: float
    bytes_up: int
    bytes_down: int


@dataclass
class _Round:
    """What is known of a round while it runs."""

    number: int
    plan: Plan | None
    average: Average
    began: float
    until: float
    wanted: int
    """Updates that the round is over with."""
    done: dict[str, _Arrived] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class Deployment:
    """Rounds of one study over a grid of nodes."""

    def __init__(
        self,
        study: Study,
        grid: Grid,
        stream: StreamServer,
        hosting: Hosting,
        *,
        run: str,
        identity: str,
        emulate: bool = False,
        say: Callable[[str], None] = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.study, self.stream, self.hosting = study, stream, hosting
        self.run, self.emulate, self.clock = run, emulate, clock
        self.job = study.job()
        self.roster = Roster(grid, study.fleet.names, say, ask_all=not emulate)
        self._grid, self._say = grid, say
        self._engine = LocalEngine(self.job, study.test())
        self._identity = identity
        self._index = {name: k for k, name in enumerate(study.fleet.names)}

    def round(self, before: Progress, last: int) -> tuple[Step, RoundMeasured]:
        """The next round; below its quorum it leaves the model as it was."""
        began, number = self.clock(), before.round + 1
        self.roster.update()
        round_ = self._run(number, before, began)
        outcome = self._outcome(round_)
        for name, reason in outcome.lost.items():
            self._say(f"round {number} is without client {name}: {reason}")
        state: State = before.state if outcome.failed else round_.average.result()
        seen = [(self._client(name), arrived.condition) for name, arrived in round_.done.items()]
        scores = self._evaluate(state, number, last)
        after = Progress(
            round=number,
            state=state,
            estimates=before.estimates.after(seen),
            virtual_seconds=before.virtual_seconds + outcome.seconds,
            wall_seconds=before.wall_seconds + self.clock() - began,
        )
        arrived = [round_.done[name] for name in outcome.done]
        measures = tuple(
            round_.done[part.name].measured for part in outcome.parts if part.name in round_.done
        )
        measured = RoundMeasured(number, self.emulate, round_.until - round_.began, measures)
        return Step(after, outcome, _record(after, outcome, arrived, scores)), measured

    def _run(self, number: int, before: Progress, began: float) -> _Round:
        study, settings = self.study, self.study.train
        names = select(
            study.fleet.names,
            settings.clients_per_round,
            seed=settings.seed,
            round_=number,
            over_selection=settings.over_selection,
        )
        here = [name for name in names if name in self.roster.nodes]
        wanted = min(settings.clients_per_round or len(names), len(names))
        round_ = _Round(number, None, Average(before.state), began, began, wanted)
        round_.lost = {name: "no node of this client is connected" for name in names if name not in here}
        if not here:
            round_.until = self.clock()
            return round_
        clients = [self._client(name) for name in here]
        believed = [before.estimates.believed(client) for client in clients]
        plan = solve(study.problem(under(clients, believed)), study.planner, **study.planner_options)
        round_.plan = plan
        deadline = settings.deadline or 5 * plan.latency + _SPARE
        round_.began = self.clock()
        round_.until = round_.began + deadline
        self._exchange(round_, before, deadline, dict(zip(here, believed, strict=True)))
        round_.until = self.clock()
        return round_

    def _exchange(
        self, round_: _Round, before: Progress, deadline: float, believed: dict[str, Condition]
    ) -> None:
        """Hand the orders out and take the answers in."""
        assert round_.plan is not None
        tasks = self.study.tasks(_as_planned(round_.number, round_.plan))
        out: list[_Sent] = []
        try:
            out += [self._ticket(task, round_.plan[task.client].share, before, deadline) for task in tasks]
            messages = [self._message(sent, before.state, deadline) for sent in out]
            for index, reply in exchange(self._grid, messages, round_.until, self.clock):
                sent = out[index]
                name = sent.task.client
                try:
                    arrived, state = self._accept(sent, reply, round_, believed[name])
                    round_.average.add(name, sent.task.samples, state)
                    round_.done[name] = arrived
                except CutwaterError as error:
                    round_.lost[name] = str(error)
                finally:
                    self._end(sent)
                if len(round_.done) == round_.wanted:
                    break
            waited = self.clock() - round_.began
            for sent in out:
                if sent.task.client not in round_.done:
                    round_.lost.setdefault(sent.task.client, f"late: no update after {waited:.3g} s")
        finally:
            for sent in out:
                self._end(sent)

    def _ticket(self, task: Task, share: float, before: Progress, deadline: float) -> _Sent:
        if task.cut == len(self.job.model):
            return _Sent(task, None)
        ticket = self.stream.issue(
            run=self.run,
            round=task.round,
            client=task.client,
            cut=task.cut,
            expect=expectation(self.study, task),
            open_seconds=deadline,
            session_seconds=deadline,
        )
        self.hosting.expect(ticket.claims.id, task, share, before.state)
        return _Sent(task, ticket)

    def _message(self, sent: _Sent, state: State, deadline: float) -> Message:
        task, half = sent.task, self.job.split(sent.task.cut).client
        ticket = sent.ticket.to_text() if sent.ticket else ""
        order = wire.Order(self.run, task, self._identity, ticket)
        records = wire.order_records(order, {name: state[name] for name in half.state_dict()})
        return Message(
            records, self.roster.nodes[task.client], "train", ttl=deadline + _LATE, group_id=str(task.round)
        )

    def _accept(
        self, sent: _Sent, reply: Message, round_: _Round, believed: Condition
    ) -> tuple[_Arrived, dict[str, Tensor]]:
        """An update that may be averaged, or a CutwaterError that says why it may not."""
        task = sent.task
        wall = self.clock() - round_.began
        if reply.has_error():
            raise EngineError(f"its node failed: {(reply.error.reason or 'no reason given')[:300]}")
        report, weights = wire.read_report(reply.content)
        _check_report(report, task, self.run, len(mini_batches(self.study, task.client)))
        half = self.job.split(task.cut).client.state_dict()
        state = wire.unpack(weights, half)
        trained = None
        if sent.ticket is not None:
            trained = self._server_side(sent.ticket, report.steps)
            state = join_states(state, trained.state)
        assert round_.plan is not None
        planned = round_.plan[task.client]
        overhead = self.roster.overhead.get(task.client)
        took = phases(report, wall, overhead, emulated=self.emulate)
        model = state_bytes(half.values())
        bytes_up = model + (trained.bytes_up if trained else 0)
        bytes_down = model + (trained.bytes_down if trained else 0)
        share = trained.share if trained else None
        session = report.seconds["session"]
        measured = Measured(
            name=task.client,
            wall_seconds=wall,
            session_seconds=session,
            message_seconds=max(wall - session, 0.0),
            setup_seconds=report.seconds["setup"],
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            promised_share=planned.share,
            delivered_share=share,
            promised_part=trained.delivery.promised if trained else None,
            delivered_part=trained.delivery.delivered if trained else None,
        )
        part = Part(
            planned.name,
            planned.cut,
            planned.share,
            planned.mode,
            planned.phases,
            took,
            delivered_share=share,
        )
        condition = observed(self.study, task, took, believed, trained)
        loss = trained.loss if trained else report.loss
        return _Arrived(task, measured, part, condition, loss, bytes_up, bytes_down), state

    def _server_side(self, ticket: Ticket, steps: int) -> Trained:
        try:
            record = self.stream.wait(ticket, timeout=_SETTLE)
        except TimeoutError:
            raise EngineError("its session is not over, though it says so") from None
        if record.failure is not None:
            raise EngineError(f"its session failed: {record.failure}")
        if record.steps != steps:
            raise EngineError(f"it counts {steps} steps, but {record.steps} arrived at the server")
        return self.hosting.collect(ticket.claims.id)

    def _end(self, sent: _Sent) -> None:
        if sent.ticket is not None:
            ticket, sent.ticket = sent.ticket, None
            self.stream.revoke(ticket)
            self.hosting.forget(ticket.claims.id)

    def _outcome(self, round_: _Round) -> Outcome:
        parts = [
            round_.done[name].part
            if name in round_.done
            else self._lost(round_.plan, name, round_.lost[name])
            for name in self.study.fleet.names
            if name in round_.done or name in round_.lost
        ]
        elapsed = round_.until - round_.began
        totals = [float(arrived.part.actual.total) for arrived in round_.done.values()]
        # A round that had to do without somebody took as long as it waited for them.
        seconds = max(totals, default=0.0) if len(totals) >= round_.wanted else elapsed
        failed = None
        if len(round_.done) < self.study.train.quorum:
            failed = (
                f"{len(round_.done)} of {len(parts)} clients were done, but the quorum is "
                f"{self.study.train.quorum}"
            )
        plan = round_.plan or self._nobody()
        return Outcome(round_.number, plan, tuple(parts), seconds, failed)

    def _lost(self, plan: Plan | None, name: str, reason: str) -> Part:
        if plan is None or name not in list(plan.names):
            return Part(name, len(self.job.model), 0.0, "fedavg", NOTHING, NOTHING, reason)
        planned = plan[name]
        return Part(name, planned.cut, planned.share, planned.mode, planned.phases, NOTHING, reason)

    def _nobody(self) -> Plan:
        """A round without any client is planned, too, for the record: as if the scenario's were there."""
        study = self.study
        return solve(study.problem(study.fleet), study.planner, **study.planner_options)

    def _client(self, name: str) -> Client:
        return self.study.fleet[self._index[name]]

    def _evaluate(self, state: State, number: int, last: int) -> list[Score]:
        due = number % self.study.train.evaluate_every == 0 or number == last
        return self._engine.evaluate(state) if due else []


def _check_report(report: wire.Report, task: Task, run: str, steps: int) -> None:
    found = (report.run, report.round, report.client)
    if found != (run, task.round, task.client):
        raise EngineError(
            f"its report is for run, round and client {found}, not {(run, task.round, task.client)}"
        )
    if report.samples != task.samples:
        raise EngineError(f"it reports {report.samples} samples, but {task.samples} are registered")
    if report.steps != steps:
        raise EngineError(f"it reports {report.steps} steps, but the plan has {steps}")


def _as_planned(number: int, plan: Plan) -> Outcome:
    parts = [Part(c.name, c.cut, c.share, c.mode, c.phases, c.phases) for c in plan.clients]
    return Outcome(number, plan, tuple(parts), plan.latency)


def _record(after: Progress, outcome: Outcome, arrived: list[_Arrived], scores: list[Score]) -> Record:
    answers = sum(score.answers for score in scores)
    weight = sum(each.task.samples for each in arrived)
    return Record(
        round=after.round,
        virtual_seconds=after.virtual_seconds,
        wall_seconds=after.wall_seconds,
        loss=sum(each.loss * each.task.samples for each in arrived) / weight if weight else None,
        test_loss=sum(s.loss for s in scores) / sum(s.samples for s in scores) if scores else None,
        accuracy=sum(score.right for score in scores) / answers if answers else None,
        bytes_up=sum(each.bytes_up for each in arrived),
        bytes_down=sum(each.bytes_down for each in arrived),
        weights_sha256=weights_sha256(after.state),
        planned_seconds=outcome.plan.latency,
        actual_seconds=outcome.seconds,
        bottleneck=outcome.bottleneck,
        clients=outcome.done,
        lost=outcome.lost,
        failed=outcome.failed,
    )
