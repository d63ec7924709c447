"""Worker processes that share weights by memory and talk JSON.

Workers are forked, so models, data and losses need not be picklable and cost no copy. The global weights lie
in shared memory that every worker reads; each worker writes what it trained into a buffer of its own, which
the parent has averaged before it hands that worker the next client. Memory is (workers + 1) models, whatever
the number of clients. A worker that dies is replaced and its session done again: sessions are pure functions.
"""

import json
import mmap
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from cutwater import errors
from cutwater.engine.memory import keep_freed_memory
from cutwater.errors import CutwaterError, EngineError
from cutwater.train.session import Batch, Job, Result, Score, State, Task, evaluate, run_session

_ALIGNMENT = 64
_TRIES = 3
"""How often a session is tried before a worker's death is blamed on the session."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch uses one thread, which makes results independent of the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SharedState:
    """The tensors of a state dict in memory that forked processes share."""

    def __init__(self, like: State) -> None:
        offsets, size = {}, 0
        for name, tensor in like.items():
            offsets[name] = size
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        # Anonymous shared memory has no file, so it needs no room in /dev/shm and leaves nothing behind.
        self._memory = mmap.mmap(-1, max(size, 1))
        self.tensors: dict[str, Tensor] = {
            name: self._view(tensor, offsets[name]) for name, tensor in like.items()
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


class _Worker:
    """A forked process, its pipe and its buffer."""

    def __init__(self, pool: "Workers", index: int) -> None:
        self.index, self.task, self.tries = index, -1, 0
        self.trained = SharedState(pool.current.tensors)
        self.start(pool)

    def start(self, pool: "Workers") -> None:
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        ours = [worker.pipe for worker in pool.workers if worker is not self] + [self.pipe]
        self.process = context.Process(target=_serve, args=(pool, self.trained, theirs, ours), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: dict[str, Any]) -> None:
        self.pipe.send_bytes(json.dumps(message).encode())

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Workers:
    """A pool of forked workers for one job."""

    def __init__(self, job: Job, test: Sequence[Batch], count: int) -> None:
        self.job, self.test = job, test
        self.current = SharedState(job.model.module.state_dict())
        self.workers: list[_Worker] = []
        for index in range(count):
            self.workers.append(_Worker(self, index))

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """Train all tasks; results come as they are done."""
        self.current.write(state)
        messages = [{"train": task.to_json()} for task in tasks]
        for worker, index, answer in self._all(messages):
            yield Result(task=tasks[index], state=worker.trained.tensors, **answer)

    def evaluate(self, state: State) -> list[Score]:
        """Score the test mini-batches, each worker every n-th of them."""
        self.current.write(state)
        parts = len(self.workers)
        messages = [{"evaluate": [part, parts]} for part in range(parts)]
        scores: dict[int, Score] = {}
        for _, part, answer in self._all(messages):
            scores.update(zip(range(part, len(self.test), parts), map(_score, answer), strict=True))
        return [scores[index] for index in sorted(scores)]

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()
        self.workers.clear()

    def _all(self, messages: Sequence[dict[str, Any]]) -> Iterator[tuple[_Worker, int, Any]]:
        """Hand out messages to idle workers; yield (worker, index of message, answer) as answers come."""
        waiting = list(range(len(messages)))[::-1]
        busy: dict[Any, _Worker] = {}
        try:
            for worker in self.workers:
                self._hand_out(worker, waiting, messages, busy)
            while busy:
                for ready in wait(list(busy)):
                    worker = busy.pop(ready)
                    answer = self._answer(worker)
                    if answer is None:
                        self._replace(worker, messages[worker.task], busy)
                        continue
                    yield worker, worker.task, answer
                    self._hand_out(worker, waiting, messages, busy)
        finally:
            # Whoever stops listening half-way must not find old answers in the pipes later.
            for worker in busy.values():
                worker.process.kill()
                worker.stop()
                worker.start(self)

    def _hand_out(
        self, worker: _Worker, waiting: list[int], messages: Sequence[Any], busy: dict[Any, _Worker]
    ) -> None:
        if waiting:
            worker.task, worker.tries = waiting.pop(), 1
            try:
                worker.send(messages[worker.task])
            except OSError:
                # It died while it was idle, which is no session's fault.
                worker.stop()
                worker.start(self)
                worker.send(messages[worker.task])
            busy[worker.pipe] = worker

    def _answer(self, worker: _Worker) -> Any:
        """What a worker says, or None if it died."""
        try:
            answer = json.loads(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        if "error" in answer:
            raise _revive(answer["error"], answer["message"])
        return answer["done"]

    def _replace(self, worker: _Worker, message: Any, busy: dict[Any, _Worker]) -> None:
        worker.stop()
        if worker.tries >= _TRIES:
            code = worker.process.exitcode
            worker.start(self)
            raise EngineError(
                f"a worker process died {_TRIES} times (exit code {code}) on {json.dumps(message)}; "
                "is the machine out of memory? Use fewer workers"
            )
        worker.start(self)
        worker.tries += 1
        worker.send(message)
        busy[worker.pipe] = worker


def _serve(pool: Workers, trained: SharedState, pipe: Connection, others: Sequence[Connection]) -> None:
    """The life of a worker: answer messages until the parent closes the pipe or dies."""
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
            answer: dict[str, Any] = {"done": _carry_out(pool, trained, message)}
        except CutwaterError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except Exception as error:
            text = f"a worker failed on {json.dumps(message)}: {type(error).__name__}: {error}"
            answer = {"error": "EngineError", "message": text}
        pipe.send_bytes(json.dumps(answer).encode())


def _carry_out(pool: Workers, trained: SharedState, message: dict[str, Any]) -> Any:
    state = pool.current.tensors
    if "evaluate" in message:
        part, parts = message["evaluate"]
        batches = (pool.test[index] for index in range(part, len(pool.test), parts))
        return [asdict(score) for score in evaluate(pool.job, state, batches)]
    result = run_session(pool.job, Task(**message["train"]), state)
    trained.write(result.state)
    names = ("loss", "steps", "bytes_up", "bytes_down")
    return {name: getattr(result, name) for name in names}


def _score(fields: dict[str, Any]) -> Score:
    return Score(**fields)


def _revive(kind: str, message: str) -> CutwaterError:
    found = getattr(errors, kind, EngineError)
    return found(message) if issubclass(found, CutwaterError) else EngineError(message)
