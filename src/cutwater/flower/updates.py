"""What nodes send back: an update that may be aggregated, or the reason why it may not.

It counts only if it answers this round's order, for the client that the node is, with the tensors, sample
count and steps that the plan calls for; and, where the model is split, if the server's half has seen the
session through. Whether its numbers may be aggregated is the aggregator's business.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flwr.app import RecordDict

from cutwater.base.errors import EngineError
from cutwater.federate.conditions import Condition
from cutwater.federate.executor import Orders, Update
from cutwater.federate.measured import Measured, Moved
from cutwater.federate.study import Study
from cutwater.flower import wire
from cutwater.flower.clocks import AtDevice, bounded, bounded_whole, check_seconds
from cutwater.flower.orders import OrderBook, Sent
from cutwater.model.halves import join_states
from cutwater.plan.latency import PHASES, Phases
from cutwater.plan.places import place_of
from cutwater.plan.value import ClientPlan
from cutwater.serve.hosting import Trained
from cutwater.train.session import Task

_KEPT = 0.8
"""Of a promised rate: a link that is slower than this is not held back by pacing, but slow itself."""
_UNSURE = 5.0
"""Seconds by which Flower's messages differ: its nodes look for orders every 3 s, the launcher of their apps
every second, both look for replies, and so do we."""
_LONGEST_SETUP = 60.0
"""Seconds that an app may take to get ready."""


@dataclass(frozen=True)
class Reply:
    """What a node sent back, and what is known of the way there and back."""

    content: RecordDict
    wall: float
    """Seconds after its order."""
    overhead: float | None = None
    """Seconds that an empty message takes, where it came in one."""
    transfers: tuple[float, float] | None = None
    """Seconds of the model's way to the node and back, where they were timed."""
    away: float | None = None
    """Seconds between the two, where they were timed."""


def read_update(
    study: Study,
    book: OrderBook,
    sent: Sent,
    reply: Reply,
    *,
    orders: Orders,
    emulated: bool,
) -> Update:
    """The update in a reply. Raises a CutwaterError that says why there is none."""
    task, job, wall = sent.task, study.job(), reply.wall
    report, weights = wire.read_report(reply.content)
    _check(report, task, book.run, len(study.batch_sizes(task.client)))
    trained = None if sent.ticket is None else book.collect(sent.ticket, report.steps)
    last = task if trained is None else replace(task, cut=trained.cut_of(task))
    mine, half = (
        job.traffic(last.cut, last.second_cut),
        job.split(last.cut, last.second_cut).client.state_dict(),
    )
    came = wire.unpack(weights, {name: half[name] for name in mine.every_round})
    state = mine.completed(came, orders.weights)
    if trained is not None:
        state = join_states(state, trained.state)
    check_seconds(report, task, wall)
    planned = orders.plan[task.client]
    at_once = task.schedule == "overlapped" and sent.ticket is not None
    took, timed = phases(report, planned.phases, reply, emulated=emulated, overlapped=at_once)
    if trained is not None:
        took = bounded(took, trained, overlapped=at_once)
    else:
        took = bounded_whole(took, time_at_device(report, took, reply, emulated=emulated), emulated=emulated)
    down, up = job.model_bytes(task)[0], job.model_bytes(last)[1]
    crossed = (trained.bytes_up, trained.bytes_down) if trained is not None else (0, 0)
    moved = (up + crossed[0], down + crossed[1])
    return Update(
        task=task,
        weights=state,
        # Where labels stay on the device, so does the loss.
        loss=trained.loss if trained is not None and not task.second_cut else report.loss,
        bytes_up=moved[0],
        bytes_down=moved[1],
        took=took,
        kept=report.kept,
        condition=not_paced(
            observed(
                study,
                task,
                took,
                crossed,
                (up, down) if timed else (0, 0),
                () if trained is None else trained.moves,
            ),
            task,
        ),
        measured=_measured(
            planned,
            report,
            trained,
            wall,
            moved,
            task,
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


def _measured(
    planned: ClientPlan,
    report: wire.Report,
    trained: Trained | None,
    wall: float,
    moved: tuple[int, int],
    task: Task,
    *,
    timed: bool,
    emulated: bool,
) -> Measured:
    session = report.seconds["session"]
    up, down = trained.rates if trained else (None, None)
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
        promised_rate_up=task.rate_up or None,
        delivered_rate_up=up if task.rate_up else None,
        promised_rate_down=task.rate_down or None,
        delivered_rate_down=down if task.rate_down else None,
        model_timed=timed,
        emulated=emulated,
        moves=trained.moves if trained else (),
    )


def phases(
    report: wire.Report,
    planned: Phases[float],
    reply: Reply,
    *,
    emulated: bool,
    overlapped: bool = False,
) -> tuple[Phases[float], bool]:
    """Seconds by phase, and whether the model's transfer was timed.

    Where parts overlap, phases add up to more than the mini-batches took by the wall: the rest is overlap.

    Flower moves the model in messages, whose fixed cost (polling, starting a process) is no part of eqs. (9)
    and (16): what a message took beyond the session and beyond an empty message is the model's transfer,
    halved. One that is lost in the polling is taken as planned. Letters of a lease are timed by the server.
    An emulated link has its own two numbers.
    """
    took = Phases(**{name: report.seconds[name] for name in PHASES})
    if overlapped:
        of_steps = took.total - took.model_download - took.model_upload
        took = replace(took, overlap=max(of_steps - report.seconds["steps"], 0.0))
    if emulated:
        return took, True
    if reply.transfers is not None:
        down, up = reply.transfers
        return replace(took, model_download=down, model_upload=up), True
    down, up, timed = planned.model_download, planned.model_upload, False
    if reply.overhead is not None:
        moved = reply.wall - report.seconds["session"] - report.seconds["setup"] - reply.overhead
        if moved > 2 * _UNSURE:
            down, up, timed = moved / 2, moved / 2, True
    return replace(took, model_download=down, model_upload=up), timed


def time_at_device(report: wire.Report, took: Phases[float], reply: Reply, *, emulated: bool) -> AtDevice:
    """What a node that trains the whole model had for it: its time on the wall less all that is timed.

    Over a lease the order's arrival and the answer's first byte are known. In a message there are Flower's
    own seconds besides, and those that the app took to get ready, of which a minute is believed.
    """
    of_model = 0.0 if emulated else took.model_download + took.model_upload
    most = max(reply.wall - of_model, 0.0)
    if reply.away is not None:
        return AtDevice(reply.away, most)
    if reply.overhead is None:
        return AtDevice(0.0, most)
    setup = min(report.seconds["setup"], _LONGEST_SETUP)
    return AtDevice(max(most - reply.overhead - 2 * _UNSURE - setup, 0.0), most)


def observed(
    study: Study,
    task: Task,
    took: Phases[float],
    crossed: tuple[int, int],
    model: tuple[int, int],
    moves: Sequence[Moved] = (),
) -> Condition:
    """f^C, r and the round trip of a client, from what a session took and the bytes that crossed the cut.

    ``model`` are the bytes of the model's own transfer, if that was timed. What can't be told is NaN.
    """
    problem = study.problem([study.client(task.client)])
    sizes, at, flops = study.batch_sizes(task.client), [0, *(each.step for each in moves)], 0.0
    for cut, begin, end in zip((task.cut, *(e.to for e in moves)), at, (*at[1:], len(sizes)), strict=True):
        place = int(place_of(cut, task.second_cut, problem.layers))
        flops += float(problem.costs.client[place - 1]) * sum(sizes[begin:end]) / sum(sizes)
    flops *= float(problem.work[0])
    up_seconds = took.smashed_upload + (took.model_upload if model[0] else 0.0)
    down_seconds = took.gradient_download + (took.model_download if model[1] else 0.0)
    steps = problem.steps
    trips = float((steps.count if task.schedule == "overlapped" else steps.parts)[0])
    trips *= 2 if task.second_cut else 1
    return Condition(
        compute=_rate(flops, took.client),
        up=_rate(8.0 * (crossed[0] + model[0]), up_seconds),
        down=_rate(8.0 * (crossed[1] + model[1]), down_seconds),
        rtt=took.round_trips / trips if took.round_trips > 0 else math.nan,
    )


def not_paced(seen: Condition, task: Task) -> Condition:
    """What is learned of a client whose link was paced: no more than that its link is not much slower."""

    def own(rate: float, paced: float) -> float:
        return rate if not paced or rate < _KEPT * paced else math.nan

    return replace(seen, up=own(seen.up, task.rate_up), down=own(seen.down, task.rate_down))


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if amount > 0 and seconds > 0 else math.nan
