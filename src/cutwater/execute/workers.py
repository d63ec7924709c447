"""Worker processes that share weights by memory and talk JSON.

Workers are forked, so models, data and losses need not be picklable and cost no copy. The global weights lie
in shared memory that every worker reads; each worker writes what it trained into one of two buffers of its
own, and goes on with its next client and the other buffer while the parent averages the first. Memory is
(2·workers + 1) models, whatever the number of clients. A worker that dies is replaced and its sessions done
again: sessions are pure functions.
"""

import gc
import json
import mmap
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from traceback import format_exception
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from cutwater.base import errors
from cutwater.base.arrays import ALIGNMENT
from cutwater.base.errors import CutwaterError, EngineError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.base.usercode import blamed
from cutwater.data.samples import Batch
from cutwater.model.traffic import tensor_bytes
from cutwater.train.scores import Score, evaluate, units_of_work
from cutwater.train.session import Job, Result, State, Task, run_both_sides

_TRIES = 3
"""How often a session is tried before a worker's death is blamed on the session."""


def blamed_on(task: Task | None) -> AbstractContextManager[None]:
    """Within, whatever a user's model, loss or data raises becomes one sentence that says where it was."""
    where = "the test set" if task is None else f"client {task.client!r}, round {task.round}"
    return blamed(EngineError, lambda said: f"{where}: {said}")


class SharedState:
    """The tensors of a state dict in memory that forked processes share."""

    def __init__(self, like: State) -> None:
        sizes = [-(-tensor_bytes((tensor,)) // ALIGNMENT) * ALIGNMENT for tensor in like.values()]
        # Where each begins, and last where all end.
        *offsets, size = accumulate(sizes, initial=0)
        # Anonymous shared memory has no file, so it needs no room in /dev/shm and leaves nothing behind.
        self._memory = mmap.mmap(-1, max(size, 1))
        self.tensors: dict[str, Tensor] = {
            name: self._view(tensor, offset)
            for (name, tensor), offset in zip(like.items(), offsets, strict=True)
        }

    def _view(self, like: Tensor, offset: int) -> Tensor:
        if like.numel() == 0:
            return torch.empty_like(like)
        flat = torch.frombuffer(self._memory, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.view(like.shape)

    def write(self, state: State) -> None:
        """Copy a state dict in."""
        for name, tensor in self.tensors.items():
            tensor.copy_(state[name])


class _Order(NamedTuple):
    """A message that a worker has, and where its weights are to go."""

    place: int
    """Of the message among those handed out."""
    buffer: int
    message: bytes


class _Worker:
    """A forked process, its pipe and its two buffers."""

    def __init__(self, pool: "Workers") -> None:
        self.buffers = [SharedState(pool.current.tensors) for _ in range(2)]
        self.orders: deque[_Order] = deque()
        """What it has to do, in order: the one at hand, and at times the next."""
        self.turn, self.tries = 0, 0
        self.start(pool)

    def start(self, pool: "Workers") -> None:
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        ours = [worker.pipe for worker in pool.workers if worker is not self] + [self.pipe]
        self.process = context.Process(target=_serve, args=(pool, self.buffers, theirs, ours), daemon=True)
        # What it inherits must never be collected there: gRPC's objects, for one, would wait for their
        # threads, which a fork leaves behind. See _serve.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self.process.start()
        finally:
            if collecting:
                gc.enable()
        theirs.close()

    def give(self, pool: "Workers", place: int, message: dict[str, Any]) -> None:
        """Hand over a message; it goes to the buffer that was not used last."""
        text = json.dumps({**message, "buffer": self.turn}).encode()
        self.orders.append(_Order(place, self.turn, text))
        self.turn = 1 - self.turn
        try:
            self.pipe.send_bytes(text)
        except OSError:
            # It has died. If it was idle then, that is no session's fault; else its answer will be missed.
            if len(self.orders) == 1:
                self.restart(pool)

    def restart(self, pool: "Workers") -> None:
        """A new process that does what the old one had to."""
        self.stop()
        self.start(pool)
        for order in self.orders:
            self.pipe.send_bytes(order.message)

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Workers:
    """A pool of forked workers for one job."""

    def __init__(self, job: Job, test: Sequence[Batch], count: int) -> None:
        self.job, self.test, self.units = job, test, units_of_work(job, test)
        self.current = SharedState(job.model.module.state_dict())
        self.workers: list[_Worker] = []
        for _ in range(count):
            self.workers.append(_Worker(self))

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """Train all tasks; results come as they are done."""
        self.current.write(state)
        messages = [{"train": task.to_json()} for task in tasks]
        for index, answer, trained in self._all(messages):
            yield Result(task=tasks[index], state=trained, **answer)

    def evaluate(self, state: State) -> list[Score]:
        """Score the test mini-batches, each worker every n-th of them (of their sets, if need be)."""
        self.current.write(state)
        parts = len(self.workers)
        messages = [{"evaluate": [part, parts]} for part in range(parts)]
        scores: dict[int, Score] = {}
        for part, answer, _ in self._all(messages):
            places = [place for unit in self.units[part::parts] for place in unit]
            scores.update(zip(places, (Score(**fields) for fields in answer), strict=True))
        return [scores[index] for index in sorted(scores)]

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()
        self.workers.clear()

    def _all(self, messages: Sequence[dict[str, Any]]) -> Iterator[tuple[int, Any, State]]:
        """Hand out messages; yield (place of message, answer, what is in its buffer) as answers come."""
        waiting = deque(enumerate(messages))
        try:
            for worker in (*self.workers, *self.workers):
                self._hand_out(worker, waiting)
            while busy := {worker.pipe: worker for worker in self.workers if worker.orders}:
                ready = [busy[cast("Connection", pipe)] for pipe in wait(list(busy))]
                # Everyone gets something to do before anyone's results are looked at.
                for worker, done in [(worker, self._done(worker, waiting)) for worker in ready]:
                    if done is not None:
                        order, answer = done
                        yield order.place, answer, worker.buffers[order.buffer].tensors
                        self._hand_out(worker, waiting)
        finally:
            # Whoever stops listening half-way must not find old answers in the pipes later.
            for worker in self.workers:
                worker.tries = 0
                if worker.orders:
                    worker.orders.clear()
                    worker.process.kill()
                    worker.restart(self)

    def _hand_out(self, worker: _Worker, waiting: deque[tuple[int, dict[str, Any]]]) -> None:
        """Something to do for a worker without; for one at work, its next, so that it need not wait for us.

        The last messages are for whoever is free first.
        """
        has = len(worker.orders)
        if waiting and (has == 0 or (has == 1 and len(waiting) > len(self.workers))):
            worker.give(self, *waiting.popleft())

    def _done(self, worker: _Worker, waiting: deque[tuple[int, dict[str, Any]]]) -> tuple[_Order, Any] | None:
        """What a worker has done, which then has something to do again; None if it died over it."""
        try:
            answer = json.loads(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            answer = None
        if answer is None:
            # Outside of the except block: what a worker forked within raises would tell of that error, too.
            self._replace(worker)
            return None
        if "error" in answer:
            raise _revive(answer["error"], answer["message"], answer["trace"])
        order, worker.tries = worker.orders.popleft(), 0
        if not worker.orders:
            self._hand_out(worker, waiting)
        return order, answer["done"]

    def _replace(self, worker: _Worker) -> None:
        worker.tries += 1
        if worker.tries >= _TRIES:
            worker.stop()
            raise EngineError(
                f"a worker process died {_TRIES} times (exit code {worker.process.exitcode}) on "
                f"{worker.orders[0].message.decode()}; is the machine out of memory? Use fewer workers"
            )
        worker.restart(self)


def _serve(
    pool: Workers, buffers: Sequence[SharedState], pipe: Connection, others: Sequence[Connection]
) -> None:
    """The life of a worker: answer messages until the parent closes the pipe or dies."""
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()  # else the end of the parent would never reach its pipes
    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        try:
            answer: dict[str, Any] = {"done": _carry_out(pool, buffers, message)}
        except CutwaterError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
            answer["trace"] = "".join(format_exception(error))
        pipe.send_bytes(json.dumps(answer).encode())


def _carry_out(pool: Workers, buffers: Sequence[SharedState], message: dict[str, Any]) -> Any:
    state = pool.current.tensors
    if "evaluate" in message:
        part, parts = message["evaluate"]
        with blamed_on(None):
            scores = evaluate(pool.job, state, pool.test, pool.units[part::parts])
        return [asdict(score) for score in scores]
    task = Task(**message["train"])
    with blamed_on(task):
        result = run_both_sides(pool.job, task, state)
        buffers[message["buffer"]].write(result.state)
    names = ("loss", "steps", "bytes_up", "bytes_down")
    return {name: getattr(result, name) for name in names}


def _revive(kind: str, message: str, trace: str) -> CutwaterError:
    found = getattr(errors, kind, EngineError)
    error: CutwaterError = (found if issubclass(found, CutwaterError) else EngineError)(message)
    error.add_note(f"in a worker process: {trace}")
    return error
