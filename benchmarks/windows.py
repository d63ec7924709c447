"""Codecs and windows over the stream: what an int8 step costs, and shares with several parts on their way.

    python benchmarks/stream.py --only windows        about a minute on two cores

An int8 step carries the same 1 MiB of float32 each way as an fp32 one, coded and decoded at both ends, to
a server in another process on this machine; they take turns, so that a busy machine hits both alike. On
loopback bytes cost next to nothing, so what is seen here is the price of coding. Then four sessions, each
with a window of sixteen parts, share one server's compute as 1 : 2 : 4 : 8. A session has no work between
two windows, which others may use, so windows are long beside that: else all would get more than promised.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import torch
from stream_rig import expecting

from cutwater.serve.shares import Delivery, ShareScheduler
from cutwater.stream.client import StreamClient
from cutwater.stream.expectation import Expectation
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import StepResult
from cutwater.train.step import Part

CODED = 1.25
"""What an int8 step may take, of an fp32 one."""
SHARE_ERROR = 0.05
SHARES = {"k1": 1.0, "k2": 2.0, "k3": 4.0, "k4": 8.0}
WINDOW = 16
ROWS = 4
MATRIX = 1000
"""The server's work on a part is a product of matrices of this size: longer than its transport."""
Verdict = Callable[..., None]


def int8_step(times: list[dict[str, float]], verdict: Verdict) -> None:
    """Median milliseconds of both kinds of step, from each set of processes."""
    ms = {name: median(each[name] for each in times) for name in times[0]}
    verdict(
        "an int8 step at 1 MiB, of an fp32 one",
        median(each["int8"] / each["fp32"] for each in times),
        CODED,
        least=False,
        detail=f"{ms['int8']:.2f} of {ms['fp32']:.2f} ms",
    )


class Products:
    """A server's halves that multiply matrices, each in its own lane."""

    def __init__(self, scheduler: ShareScheduler) -> None:
        self.lanes = {name: scheduler.lane(name, share) for name, share in SHARES.items()}
        self.matrix = torch.randn(MATRIX, MATRIX)

    async def step(self, session: Any, part: Part, smashed: Any, labels: Any) -> StepResult:
        """One product."""
        del part, labels
        work = partial(torch.mm, self.matrix, self.matrix)
        await self.lanes[session.client].run(work, 2.0 * MATRIX**3)
        return StepResult((torch.zeros_like(smashed[0]),), 0.0)

    async def closed(self, session: Any, record: Any) -> None:
        """Nothing to give up."""


def shares_with_windows(quick: bool, verdict: Verdict) -> None:
    """Sessions that hand in windows of parts for as long as the last of them does."""
    enough = 6 if quick else 24
    batches = [WINDOW * ROWS] * (16 * enough)
    like = expecting([torch.empty(ROWS, 64)], torch.zeros(ROWS).long(), batches=batches, classes=10)
    expect = replace(like, micro_batches=WINDOW, overlapped=True)
    over, deliveries = threading.Event(), list[Delivery]()
    with ShareScheduler() as scheduler:
        setup = scheduler.lane("threads", 1.0)
        setup.submit(lambda: torch.set_num_threads(1), 1.0).result()
        setup.close()
        halves = Products(scheduler)
        with StreamServer(halves) as server:

            def run(name: str) -> None:
                ticket = server.issue(run="shares", round=0, client=name, cut=1, expect=expect)
                with StreamClient(ticket, expect, client=name) as client:
                    _windows(client, expect, enough if name == "k4" else len(batches), over)
                    if name == "k4":  # what the others are still given after that is no longer shared
                        deliveries.extend(lane.delivery() for lane in halves.lanes.values())
                        over.set()

            threads = [threading.Thread(target=run, args=(name,)) for name in SHARES]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    off = max(abs(1 - each.delivered / each.promised) for each in deliveries)
    told = ", ".join(f"{each.delivered:.3f} of {each.promised:.3f}" for each in deliveries)
    verdict(
        "share off the promised, either way, windows open, at worst",
        off,
        SHARE_ERROR,
        least=False,
        detail=told,
    )


def _windows(client: StreamClient, expect: Expectation, most: int, over: threading.Event) -> None:
    smashed, labels = (torch.randn(ROWS, 64).requires_grad_(),), torch.zeros(ROWS).long()
    parts = iter(expect.parts())
    for _ in range(most):
        if over.is_set():
            return
        for _ in range(WINDOW):
            client.send(next(parts).part, smashed, labels)
        for _ in range(WINDOW):
            client.receive()


if __name__ == "__main__":
    print("run by: python benchmarks/stream.py --only windows")
