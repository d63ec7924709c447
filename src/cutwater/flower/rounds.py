"""A round over Flower: plan, hand out, collect until the deadline, judge, aggregate (paper, Sec. III-B).

Whoever's update is not in by then, or does not count (``updates``), is left out and named; the others are
unaffected.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from cutwater.base.errors import CutwaterError
from cutwater.execute.local import LocalEngine
from cutwater.federate.loop import Progress, Step, is_tested, record
from cutwater.federate.round import Outcome, Part, below_quorum, under
from cutwater.federate.selection import select
from cutwater.federate.study import Study
from cutwater.flower.measured import NOTHING, RoundMeasured
from cutwater.flower.orders import Orders, Sent
from cutwater.flower.roster import Roster, exchange
from cutwater.flower.updates import Inbox, Update
from cutwater.plan.planners import solve_by
from cutwater.plan.value import Plan
from cutwater.serve.hosting import Hosting
from cutwater.stream.server import StreamServer
from cutwater.train.aggregate import Average
from cutwater.train.session import State

Clock = Callable[[], float]
_SPARE = 600.0
"""Seconds that a round without a deadline waits beyond five times its plan; the dead are told of sooner."""


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
    done: dict[str, Update] = field(default_factory=dict)
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
        self.study, self.emulate, self.clock = study, emulate, clock
        job = study.job()
        self.roster = Roster(grid, study.fleet.names, say, ask_all=not emulate)
        self._grid, self._say = grid, say
        self._engine = LocalEngine(job, study.test())
        self._orders = Orders(study, job, stream, hosting, run=run, identity=identity)
        self._inbox = Inbox(study, job, self._orders, emulated=emulate)

    def round(self, before: Progress, last: int) -> tuple[Step, RoundMeasured]:
        """The next round; below its quorum it leaves the model as it was."""
        began, number = self.clock(), before.round + 1
        self.roster.update()
        round_ = self._run(number, before, began)
        outcome = self._outcome(round_)
        for name, reason in outcome.lost.items():
            self._say(f"round {number} is without client {name}: {reason}")
        state: State = before.state if outcome.failed else round_.average.result()
        seen = [(self.study.client(name), arrived.condition) for name, arrived in round_.done.items()]
        scores = self._engine.evaluate(state) if is_tested(self.study, number, last) else []
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
        line = record(
            after,
            outcome,
            scores,
            loss=_mean_loss(arrived),
            up=sum(each.measured.bytes_up for each in arrived),
            down=sum(each.measured.bytes_down for each in arrived),
        )
        return Step(after, outcome, line), measured

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
        clients = [study.client(name) for name in here]
        believed = [before.estimates.in_round(study.truth, client, number) for client in clients]
        plan = solve_by(study.problem(under(clients, believed)), study.planner, study.planner_options)
        round_.plan = plan
        deadline = settings.deadline or 5 * plan.latency + _SPARE
        round_.began = self.clock()
        round_.until = round_.began + deadline
        self._exchange(round_, before, deadline)
        round_.until = self.clock()
        return round_

    def _exchange(self, round_: _Round, before: Progress, deadline: float) -> None:
        """Hand the orders out and take the answers in."""
        assert round_.plan is not None
        tasks = self.study.tasks(_as_planned(round_.number, round_.plan))
        out: list[Sent] = []
        try:
            shares = ((task, round_.plan[task.client].share) for task in tasks)
            # One by one, so that what was placed is ended if another can't be.
            out.extend(self._orders.place(task, share, before.state, deadline) for task, share in shares)
            messages = [
                self._orders.message(sent, self.roster.nodes[sent.task.client], before.state, deadline)
                for sent in out
            ]
            for index, reply in exchange(self._grid, messages, round_.until, self.clock):
                self._take(round_, out[index], reply)
                if len(round_.done) == round_.wanted:
                    break
            waited = self.clock() - round_.began
            for sent in out:
                if sent.task.client not in round_.done:
                    round_.lost.setdefault(sent.task.client, f"late: no update after {waited:.3g} s")
        finally:
            for sent in out:
                self._orders.end(sent)

    def _take(self, round_: _Round, sent: Sent, reply: Message) -> None:
        assert round_.plan is not None
        name = sent.task.client
        try:
            update, state = self._inbox.read(
                sent,
                reply,
                planned=round_.plan[name],
                wall=self.clock() - round_.began,
                overhead=self.roster.overhead.get(name),
            )
            round_.average.add(name, sent.task.samples, state)
            round_.done[name] = update
        except CutwaterError as error:
            round_.lost[name] = str(error)
        finally:
            self._orders.end(sent)

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
        failed = below_quorum(len(round_.done), len(parts), self.study.train.quorum)
        plan = round_.plan or self._nobody()
        return Outcome(round_.number, plan, tuple(parts), seconds, failed)

    def _lost(self, plan: Plan | None, name: str, reason: str) -> Part:
        if plan is None or name not in list(plan.names):
            return Part(name, len(self.study.model), 0.0, "fedavg", NOTHING, NOTHING, reason)
        planned = plan[name]
        return Part(name, planned.cut, planned.share, planned.mode, planned.phases, NOTHING, reason)

    def _nobody(self) -> Plan:
        """A round without any client is planned, too, for the record: as if the scenario's were there."""
        study = self.study
        return solve_by(study.problem(study.fleet), study.planner, study.planner_options)


def _as_planned(number: int, plan: Plan) -> Outcome:
    parts = [Part(c.name, c.cut, c.share, c.mode, c.phases, c.phases) for c in plan.clients]
    return Outcome(number, plan, tuple(parts), plan.latency)


def _mean_loss(arrived: list[Update]) -> float | None:
    weight = sum(each.task.samples for each in arrived)
    return sum(each.loss * each.task.samples for each in arrived) / weight if weight else None
