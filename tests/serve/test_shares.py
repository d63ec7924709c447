"""The share scheduler: promises kept to within one piece of work, nothing idle, the same order every time."""

import asyncio
import threading
import time
from collections import defaultdict
from concurrent.futures import CancelledError, Future
from itertools import combinations

import own_loop
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import EngineError
from cutwater.serve.fair_queue import FairQueue
from cutwater.serve.shares import BRIEF, Lane, ShareScheduler

COSTS = st.floats(0.1, 100.0)
WEIGHTS = st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6)


def fill(queue: FairQueue[int], weights: list[float], costs: list[list[float]]) -> None:
    for flow, weight in enumerate(weights):
        queue.open(str(flow), weight)
    for flow, mine in enumerate(costs):
        for cost in mine:
            queue.push(str(flow), cost, flow)


def drain(queue: FairQueue[int]) -> list[tuple[int, float]]:
    served = []
    while (piece := queue.pop()) is not None:
        served.append((piece[2], piece[1]))
    return served


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[list[float], list[list[float]]]:
    weights = draw(WEIGHTS)
    return weights, [draw(st.lists(COSTS, min_size=1, max_size=20)) for _ in weights]


@settings(deadline=None)
@given(backlogs())
def test_everything_handed_in_is_served_once_and_in_order_within_a_session(
    case: tuple[list[float], list[list[float]]],
) -> None:
    weights, costs = case
    queue: FairQueue[int] = FairQueue()
    fill(queue, weights, costs)
    got: dict[int, list[float]] = defaultdict(list)
    for flow, cost in drain(queue):
        got[flow].append(cost)
    assert [got[flow] for flow in range(len(weights))] == costs


@settings(deadline=None, max_examples=200)
@given(backlogs())
def test_sessions_that_always_have_work_get_it_in_proportion_to_their_shares(
    case: tuple[list[float], list[list[float]]],
) -> None:
    """Normalised service differs by at most two pieces of each, whatever the pieces and shares are."""
    weights, costs = case
    queue: FairQueue[int] = FairQueue()
    fill(queue, weights, costs)
    left = [len(mine) for mine in costs]
    largest = [max(mine) for mine in costs]
    slack = 2 * max(largest) / sum(weights)
    work = [0.0] * len(weights)
    for flow, cost in drain(queue):
        work[flow] += cost
        left[flow] -= 1
        if not all(left):
            break
        for a, b in combinations(range(len(weights)), 2):
            bound = 2 * (largest[a] / weights[a] + largest[b] / weights[b]) + slack
            assert abs(work[a] / weights[a] - work[b] / weights[b]) <= bound * (1 + 1e-9)


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[float], list[list[tuple[float, float]]]]:
    """Sessions whose steps come now and then: for each, (when, how much)."""
    weights = draw(WEIGHTS)
    gaps = st.lists(st.tuples(st.floats(0, 20.0), COSTS), min_size=1, max_size=15)
    arrivals = []
    for _ in weights:
        at, mine = 0.0, []
        for gap, cost in draw(gaps):
            at += gap
            mine.append((at, cost))
        arrivals.append(mine)
    return weights, arrivals


def simulate(
    weights: list[float], arrivals: list[list[tuple[float, float]]], speed: float
) -> list[tuple[int, float, float, float, float]]:
    """A device of this speed with a clock of its own: (flow, arrival, cost, begin, end) as served."""
    queue: FairQueue[tuple[int, float]] = FairQueue()
    for flow, weight in enumerate(weights):
        queue.open(str(flow), weight)
    coming = sorted((at, flow, cost) for flow, mine in enumerate(arrivals) for at, cost in mine)
    clock, served = 0.0, []
    while True:
        while coming and coming[0][0] <= clock:
            at, flow, cost = coming.pop(0)
            queue.push(str(flow), cost, (flow, at))
        piece = queue.pop()
        if piece is not None:
            _, cost, (flow, at) = piece
            served.append((flow, at, cost, clock, clock + cost / speed))
            clock += cost / speed
        elif coming:
            clock = coming[0][0]
        else:
            return served


@settings(deadline=None)
@given(traffic(), st.floats(0.5, 50.0))
def test_the_device_never_idles_while_anyone_has_work(
    case: tuple[list[float], list[list[tuple[float, float]]]], speed: float
) -> None:
    served = simulate(*case, speed)
    assert len(served) == sum(map(len, case[1]))
    for place, (_, _, _, begin, _) in enumerate(served):
        before = served[place - 1][4] if place else 0.0
        if begin > before:
            assert all(at >= begin for _, at, _, _, _ in served[place:])


@settings(deadline=None, max_examples=300)
@given(traffic())
def test_a_piece_is_late_by_at_most_one_other_piece(
    case: tuple[list[float], list[list[tuple[float, float]]]],
) -> None:
    """The plan's promise: c / f after it came, or after the piece before it was due."""
    weights, arrivals = case
    speed = sum(weights)
    longest = max(cost for mine in arrivals for _, cost in mine) / speed
    due = [0.0] * len(weights)
    for flow, at, cost, _, end in simulate(weights, arrivals, speed):
        due[flow] = max(due[flow], at) + cost / weights[flow]
        assert end <= (due[flow] + longest) * (1 + 1e-9)


def test_an_unused_share_goes_to_the_others_in_proportion() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, [1.0, 2.0, 100.0], [[1.0] * 60, [1.0] * 60, []])
    first = [flow for flow, _ in drain(queue)[:60]]
    assert (first.count(0), first.count(1)) == (20, 40)


def test_a_session_that_was_away_is_owed_nothing_for_it() -> None:
    """It comes back to its share of now: the others are not starved while it catches up."""
    queue: FairQueue[int] = FairQueue()
    fill(queue, [1.0, 1.0], [[1.0] * 50, []])
    for _ in range(40):
        queue.pop()
    for _ in range(10):
        queue.push("1", 1.0, 1)
    assert [flow for flow, _ in drain(queue)[:10]].count(1) == 5


@settings(deadline=None)
@given(WEIGHTS, st.data())
def test_serving_at_once_is_handing_in_and_taking_out_where_nobody_waits(
    weights: list[float], data: st.DataObject
) -> None:
    """Both queues go on alike, with pieces that wait in between."""
    queues: list[FairQueue[int]] = [FairQueue(), FairQueue()]
    for queue in queues:
        fill(queue, weights, [[] for _ in weights])
    flows = st.integers(0, len(weights) - 1)
    pieces = st.lists(st.tuples(flows, COSTS, st.booleans(), st.lists(flows, max_size=4)))
    for flow, cost, meanwhile, waiting in data.draw(pieces):
        queues[0].serve(str(flow), cost)
        queues[1].push(str(flow), cost, flow)
        assert queues[1].pop() == (str(flow), cost, flow)
        if not meanwhile:
            queues[0].idle()
            assert queues[1].pop() is None
        for queue in queues:
            for each in waiting:
                queue.push(str(each), cost, each)
            assert queue.waiting == len(waiting)
        assert drain(queues[0]) == drain(queues[1])
        assert not any(queue.waiting for queue in queues)
        for each in map(str, range(len(weights))):
            assert queues[0].account(each) == pytest.approx(queues[1].account(each))


@settings(deadline=None, max_examples=200)
@given(backlogs(), st.data())
def test_shares_that_change_are_kept_from_then_on_and_promises_are_those_of_both_times(
    case: tuple[list[float], list[list[float]]], data: st.DataObject
) -> None:
    """After the change as before it: normalised service differs by a few pieces, whatever they are."""
    weights, costs = case
    after = [data.draw(st.floats(0.1, 100.0)) for _ in weights]
    queue: FairQueue[int] = FairQueue()
    fill(queue, weights, costs)
    left, work, largest = [len(mine) for mine in costs], [0.0] * len(weights), [max(mine) for mine in costs]
    change = data.draw(st.integers(0, sum(left)))
    now, promised = weights, [0.0] * len(weights)
    for number in range(sum(left)):
        if number == change:
            for flow, weight in enumerate(after):
                queue.reweigh(str(flow), weight)
            now, work = after, [0.0] * len(weights)
        waiting = [flow for flow in range(len(weights)) if left[flow]]
        piece = queue.pop()
        assert piece is not None
        flow, cost = piece[2], piece[1]
        for each in waiting:
            promised[each] += cost * now[each] / sum(now)
        work[flow] += cost
        left[flow] -= 1
        if all(left):
            slack = 2 * max(largest) / sum(now)
            for a, b in combinations(range(len(weights)), 2):
                bound = 4 * (largest[a] / now[a] + largest[b] / now[b]) + slack
                assert abs(work[a] / now[a] - work[b] / now[b]) <= bound * (1 + 1e-9)
    for flow, mine in enumerate(costs):
        served, _, entitled = queue.account(str(flow))
        assert served == pytest.approx(sum(mine))
        assert entitled == pytest.approx(promised[flow])


def test_a_session_that_had_next_to_nothing_is_not_held_to_that_once_it_has_more() -> None:
    queue: FairQueue[int] = FairQueue()
    fill(queue, [1e-6, 1.0], [[1.0] * 50, [1.0] * 60])
    for _ in range(10):
        queue.pop()
    queue.reweigh("0", 1.0)
    assert [flow for flow, _ in drain(queue)[:20]].count(0) == 10


def test_a_lane_tells_its_last_share_and_refuses_one_that_is_none_or_comes_too_late() -> None:
    with ShareScheduler() as scheduler:
        lane = scheduler.lane("a", 1.0)
        lane.reshare(3.0)
        assert lane.delivery().share == 3.0
        with pytest.raises(EngineError, match="share of 'a'"):
            lane.reshare(0.0)
        lane.close()
        with pytest.raises(EngineError, match="closed"):
            lane.reshare(2.0)


def test_a_flow_that_is_closed_takes_what_it_had_waiting_along() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in "ab":
        queue.open(name, 1.0)
        queue.push(name, 1.0, name)
    assert queue.close("a") == ["a"]
    assert queue.waiting == 1


def test_work_that_is_no_longer_wanted_is_neither_served_nor_charged() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.open("a", 1.0)
    queue.push("a", 5.0, "dead")
    queue.push("a", 1.0, "alive")
    assert queue.pop(lambda item: item != "dead") == ("a", 1.0, "alive")
    assert queue.account("a") == (1.0, 1.0, 1.0)


@settings(deadline=None)
@given(backlogs())
def test_the_order_of_service_is_a_function_of_the_work_alone(
    case: tuple[list[float], list[list[float]]],
) -> None:
    orders = []
    for _ in range(2):
        queue: FairQueue[int] = FairQueue()
        fill(queue, *case)
        orders.append(drain(queue))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_share_that_makes_no_sense_is_refused(weight: float) -> None:
    with ShareScheduler() as scheduler, pytest.raises(EngineError, match="share of 'a'"):
        scheduler.lane("a", weight)


@pytest.mark.parametrize("flops", [0.0, -1.0, float("nan"), float("inf")])
def test_work_that_costs_nothing_or_everything_is_refused(flops: float) -> None:
    with ShareScheduler() as scheduler, pytest.raises(EngineError, match="FLOPs"):
        scheduler.lane("a", 1.0).submit(lambda: None, flops)


def test_two_sessions_cannot_have_one_name() -> None:
    with ShareScheduler() as scheduler:
        scheduler.lane("a", 1.0)
        with pytest.raises(EngineError, match="name of its own"):
            scheduler.lane("a", 1.0)


def test_a_device_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(EngineError, match=r"'cuda:99'.*has cpu"):
        ShareScheduler("cuda:99")


class Gate:
    """Holds the runner until all work is handed in, so that what is measured is saturation."""

    def __init__(self, scheduler: ShareScheduler) -> None:
        self.open = threading.Event()
        self.lane = scheduler.lane("gate", 1e-9)
        self.lane.submit(self.open.wait, 1e-9)

    def lift(self) -> None:
        self.lane.close()
        self.open.set()


def test_saturated_the_device_delivers_what_was_promised() -> None:
    """Real work in a real thread, shares 1:2:4:8, pieces of different sizes."""
    import numpy as np

    shares = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}
    sizes = {"a": 40, "b": 60, "c": 50, "d": 80}
    served: list[str] = []
    with ShareScheduler() as scheduler:
        gate = Gate(scheduler)
        lanes = {name: scheduler.lane(name, share) for name, share in shares.items()}

        def piece(name: str) -> None:
            matrix = np.ones((sizes[name], sizes[name]), np.float32)
            matrix @ matrix
            served.append(name)

        futures = {
            name: [lane.submit(lambda name=name: piece(name), 2.0 * sizes[name] ** 3) for _ in range(1500)]
            for name, lane in lanes.items()
        }
        gate.lift()
        # While the one with the largest share still has work, all have.
        futures["d"][500].result(timeout=30)
        deliveries = {each.name: each for each in scheduler.report()}
        for lane in lanes.values():
            lane.close()
    total = sum(each.flops for each in deliveries.values())
    for name, each in deliveries.items():
        promised = shares[name] / 15
        assert each.promised == pytest.approx(promised, rel=0.01)
        assert each.delivered == pytest.approx(promised, rel=0.05)
        assert each.flops / total == pytest.approx(promised, rel=0.05)
        assert each.busy_seconds > 0
        assert each.pieces > 0


def test_alone_a_session_gets_the_whole_device_and_the_report_says_so() -> None:
    with ShareScheduler() as scheduler:
        lane = scheduler.lane("a", 1.0)
        scheduler.lane("idle", 9.0)
        for _ in range(5):
            assert lane.submit(lambda: 7, 2.0).result(5) == 7
        delivery = lane.delivery()
    assert (delivery.pieces, delivery.flops) == (5, 10.0)
    assert delivery.promised == pytest.approx(0.1)
    assert delivery.delivered == pytest.approx(1.0)


def test_what_work_raises_is_its_sessions_alone() -> None:
    def fail() -> None:
        raise ValueError("mine")

    with ShareScheduler() as scheduler:
        bad, good = scheduler.lane("bad", 1.0), scheduler.lane("good", 1.0)
        broken, fine = bad.submit(fail, 1.0), good.submit(lambda: "fine", 1.0)
        with pytest.raises(ValueError, match="mine"):
            broken.result(5)
        assert fine.result(5) == "fine"


def test_closing_a_lane_drops_its_waiting_work_and_returns_its_share() -> None:
    with ShareScheduler() as scheduler:
        gate = Gate(scheduler)
        lane = scheduler.lane("a", 1.0)
        waiting = lane.submit(lambda: None, 1.0)
        lane.close()
        gate.lift()
        with pytest.raises(CancelledError):
            waiting.result(5)
        with pytest.raises(EngineError, match="closed"):
            lane.submit(lambda: None, 1.0)
        other = scheduler.lane("b", 1.0)
        other.submit(lambda: None, 1.0).result(5)
        assert other.delivery().promised == pytest.approx(1.0)


def test_the_rest_of_a_piece_comes_before_anything_else_and_costs_nothing_more() -> None:
    order: list[str] = []
    with ShareScheduler() as scheduler:
        first, other = scheduler.lane("first", 1.0), scheduler.lane("other", 100.0)
        first.submit(lambda: order.append("first"), 2.0).result(5)
        gate = Gate(scheduler)
        done = [other.submit(lambda: order.append("other"), 1.0)]
        done.append(first.submit(lambda: order.append("next"), 2.0))
        done.append(first.follow(lambda: (order.append("rest"), time.sleep(0.01))))
        gate.lift()
        for each in done:
            wait(each)
        deliveries = {each.name: each for each in scheduler.report()}
    assert order == ["first", "rest", "other", "next"]
    assert (deliveries["first"].pieces, deliveries["first"].flops) == (2, 4.0)
    assert deliveries["first"].busy_seconds >= 0.01


def test_closing_a_lane_drops_the_rest_of_its_last_piece() -> None:
    ran: list[str] = []
    with ShareScheduler() as scheduler:
        gate = Gate(scheduler)
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)
        rest = lane.follow(lambda: ran.append("rest"))
        kept = other.follow(lambda: ran.append("kept"))
        assert rest is not None
        assert kept is not None
        lane.close()
        gate.lift()
        kept.result(5)
        assert rest.cancelled()
        with pytest.raises(EngineError, match="closed"):
            lane.follow(lambda: None)
    assert ran == ["kept"]


def test_a_step_that_is_cancelled_before_its_turn_is_never_run() -> None:
    ran: list[str] = []

    async def main(scheduler: ShareScheduler) -> None:
        gate = Gate(scheduler)
        lane = scheduler.lane("a", 1.0)
        task = asyncio.ensure_future(lane.run(lambda: ran.append("cancelled"), 1.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.lift()
        await lane.run(lambda: ran.append("run"), 1.0)
        assert lane.delivery().flops == 1.0

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))
    assert ran == ["run"]


def where() -> int:
    return threading.get_ident()


def wait(rest: "Future[object] | None") -> None:
    """Until the rest of a piece is done, if it is not yet; raises what went wrong."""
    if rest is not None:
        rest.result(5)


def test_a_session_that_is_alone_gets_brief_work_done_where_it_is_handed_in() -> None:
    async def main(scheduler: ShareScheduler) -> list[int]:
        lane = scheduler.lane("a", 3.0)
        scheduler.lane("idle", 1.0)
        places = []
        for _ in range(3):
            places.append(await lane.run(where, 2.0))
            wait(lane.follow(lambda: places.append(where())))
        delivery = lane.delivery()
        assert (delivery.pieces, delivery.flops) == (3, 6.0)
        assert delivery.promised == pytest.approx(0.75)
        assert delivery.delivered == pytest.approx(1.0)
        return places

    with ShareScheduler() as scheduler:
        places = own_loop.run(main(scheduler))
    assert len(set(places[:2])) == 1, "nobody knew how long these would take"
    assert set(places[2:]) != set(places[:2])
    assert len(set(places[2:])) == 1


def test_a_session_is_alone_from_its_second_piece_on_until_another_comes() -> None:
    seen: list[bool] = []
    with ShareScheduler() as scheduler:
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)

        def one(mine: Lane) -> None:
            mine.submit(lambda: seen.append(mine.alone), 1.0).result(5)

        for each in (lane, lane, other, lane, lane):
            one(each)
        wait(lane.follow(lambda: None))
        one(lane)
    assert seen == [False, True, False, False, True, True]


def test_a_session_is_not_alone_while_another_waits() -> None:
    order: list[str] = []
    seen: list[bool] = []
    with ShareScheduler() as scheduler:
        lane = scheduler.lane("a", 1.0)
        lane.submit(lambda: None, 1.0).result(5)
        began, go_on = threading.Event(), threading.Event()
        holding = lane.submit(lambda: (began.set(), go_on.wait(5)), 1.0)
        assert began.wait(5)
        other = scheduler.lane("b", 1.0)
        theirs = other.submit(lambda: order.append("theirs"), 100.0)
        mine = lane.submit(lambda: (order.append("mine"), seen.append(lane.alone)), 1.0)
        go_on.set()
        for each in (holding, mine, theirs):
            each.result(5)
    assert order == ["mine", "theirs"]
    assert seen == [False]


def test_a_session_that_is_served_where_it_is_is_alone() -> None:
    async def main(scheduler: ShareScheduler) -> list[bool]:
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)
        found = [await lane.run(lambda: lane.alone, 1.0) for _ in range(3)]
        await other.run(lambda: None, 1.0)
        return [*found, *[await lane.run(lambda: lane.alone, 1.0) for _ in range(3)]]

    with ShareScheduler() as scheduler:
        assert own_loop.run(main(scheduler)) == [False, True, True] * 2


def test_long_work_never_keeps_the_event_loop_from_its_other_business() -> None:
    async def main(scheduler: ShareScheduler) -> set[int]:
        lane = scheduler.lane("a", 1.0)

        def long() -> int:
            time.sleep(2 * BRIEF)
            return where()

        ran = {await lane.run(long, 1.0) for _ in range(3)}
        for _ in range(3):
            followed = lane.follow(lambda: ran.add(long()))
            assert followed is not None
            await asyncio.wrap_future(followed)
        return ran

    with ShareScheduler() as scheduler:
        places = own_loop.run(main(scheduler))
    assert len(places) == 1


def test_sessions_that_take_turns_hand_their_work_over() -> None:
    """Whoever had the device last may do without; what another does at once would never be queued."""

    async def main(scheduler: ShareScheduler) -> list[int]:
        lanes = [scheduler.lane(name, 1.0) for name in "ab"]
        return [await lanes[turn % 2].run(where, 1.0) for turn in range(8)]

    with ShareScheduler() as scheduler:
        assert len(set(own_loop.run(main(scheduler)))) == 1


def test_shares_are_kept_for_sessions_of_one_event_loop_that_always_have_work() -> None:
    shares = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}

    async def keep_busy(lane: Lane) -> None:
        while True:
            await lane.run(lambda: time.sleep(1e-4), 1.0)

    async def main(scheduler: ShareScheduler) -> None:
        lanes = {name: scheduler.lane(name, share) for name, share in shares.items()}
        busy = [asyncio.ensure_future(keep_busy(lane)) for lane in lanes.values() for _ in range(16)]
        while lanes["d"].delivery().pieces < 600:
            await asyncio.sleep(0.01)
        for name, lane in lanes.items():
            delivery = lane.delivery()
            assert delivery.delivered == pytest.approx(shares[name] / 15, rel=0.1)
        for each in busy:
            each.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))


def test_what_brief_work_raises_is_raised_and_the_device_goes_on() -> None:
    def fail() -> None:
        raise ValueError("mine")

    async def main(scheduler: ShareScheduler) -> None:
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)
        await lane.run(where, 1.0)
        wait(lane.follow(where))
        with pytest.raises(ValueError, match="mine"):
            await lane.run(fail, 1.0)
        with pytest.raises(ValueError, match="mine"):
            wait(lane.follow(fail))
        with pytest.raises(EngineError, match="FLOPs"):
            await lane.run(where, 0.0)
        assert await other.run(lambda: "fine", 1.0) == "fine"
        assert await lane.run(lambda: "fine", 1.0) == "fine"
        lane.close()
        with pytest.raises(EngineError, match="closed"):
            await lane.run(where, 1.0)

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))


def test_work_that_comes_while_another_does_its_own_at_once_waits_for_its_turn() -> None:
    """One piece at a time, whichever thread: what is computed shares a random generator."""
    inside, overlaps = threading.Lock(), []

    def careful() -> None:
        overlaps.append(not inside.acquire(blocking=False))
        time.sleep(0.002)
        inside.release()

    async def main(scheduler: ShareScheduler) -> None:
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)
        for turn in range(60):
            if turn % 3 == 0:
                meanwhile = threading.Timer(0.001, lambda: other.submit(careful, 1.0).result(5))
                meanwhile.start()
            await lane.run(careful, 1.0)
            if turn % 3 == 2:
                await asyncio.to_thread(meanwhile.join)

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))
    assert len(overlaps) == 80
    assert not any(overlaps)


def test_a_step_waits_for_the_rest_of_the_last_in_whichever_thread_that_is() -> None:
    order: list[str] = []

    def update() -> None:
        time.sleep(0.03)
        order.append("update")

    async def main(scheduler: ShareScheduler) -> None:
        lane = scheduler.lane("a", 1.0)
        for number in range(3):
            await lane.run(lambda number=number: order.append(f"step {number}"), 1.0)
            lane.follow(update)
            await asyncio.sleep(0.01)  # it has begun

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))
    assert order[:5] == ["step 0", "update", "step 1", "update", "step 2"]


def test_nobody_is_owed_anything_for_what_was_done_at_once_before_it_came() -> None:
    order: list[str] = []

    async def main(scheduler: ShareScheduler) -> None:
        first, second = scheduler.lane("first", 1.0), scheduler.lane("second", 1.0)
        for _ in range(2):
            await first.run(where, 10.0)
        gate = Gate(scheduler)
        done = [second.submit(lambda: order.append("second"), 5.0)]
        done.append(first.submit(lambda: order.append("first"), 4.0))
        gate.lift()
        for each in done:
            each.result(5)

    with ShareScheduler() as scheduler:
        own_loop.run(main(scheduler))
    assert order == ["first", "second"]


def test_what_comes_while_brief_work_is_done_at_once_is_not_forgotten() -> None:
    async def main(scheduler: ShareScheduler) -> object:
        lane, other = scheduler.lane("a", 1.0), scheduler.lane("b", 1.0)
        await lane.run(where, 1.0)
        handed_in = []

        def meanwhile() -> None:
            handed_in.append(other.submit(where, 1.0))
            time.sleep(0.02)  # time to look for it in vain

        await lane.run(meanwhile, 1.0)
        return await asyncio.wait_for(asyncio.wrap_future(handed_in[0]), 5)

    with ShareScheduler() as scheduler:
        assert own_loop.run(main(scheduler)) != where()


def test_closing_the_scheduler_ends_its_thread_and_lets_nobody_wait() -> None:
    before = threading.active_count()
    scheduler = ShareScheduler()
    gate = Gate(scheduler)
    waiting = scheduler.lane("a", 1.0).submit(lambda: None, 1.0)
    closer = threading.Thread(target=scheduler.close)
    closer.start()
    while not waiting.cancelled():
        time.sleep(0.001)
    gate.open.set()
    closer.join()
    assert threading.active_count() == before
    with pytest.raises(EngineError, match="closed"):
        scheduler.lane("b", 1.0)
