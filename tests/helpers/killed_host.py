"""A process that hosts sessions, to be killed; forked from one that has done all imports, so it is quick."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch
from small_study import small_study
from torch import nn

from cutwater.data.custom import from_datasets
from cutwater.plan.fleet import Client
from cutwater.plan.session import Session
from cutwater.serve import process
from cutwater.serve.process import SessionHost, host_for
from cutwater.serve.told import read_tensors, write_tensors
from cutwater.stream.office import Office
from cutwater.stream.ticket import TicketKey
from cutwater.stream.tls import Certificate

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["killed_host"])


def _start_forkserver() -> None:
    """With the path of the tests, which it would not find its module by otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()


KEY = bytes(range(32))
CUT = 2


class Noted(nn.Module):
    """Adds a running mean that no state dict holds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 2, 3))
        return x - self.mean[:, None, None]


def model():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2)),
        nn.Sequential(Noted(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.3), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(24, 3)),
    )


def data():
    random = torch.Generator().manual_seed(2)
    images = torch.randn(80, 1, 4, 4, generator=random)
    samples = [(image, place % 3) for place, image in enumerate(images)]
    return from_datasets(samples[:60], samples[60:], classes=3, name="maps")


_STUDY = small_study(
    model=model(),
    data=data(),
    clients=[Client(name="k", compute=1e6, rate=1e6, samples=51)],
    session=Session(epochs=1, batch_size=8),
)
"""Looked into once, before any process is forked: seven mini-batches, the last of which is smaller."""


def study_of(about):
    study = _frozen() if about.get("frozen") else _STUDY
    train = replace(study.train, lr=0.01, **about["train"])
    return replace(study, train=train, session=replace(study.session, micro_batches=about["micro_batches"]))


def _frozen():
    """Two epochs behind a first layer that does not learn, so that its rows go up once."""
    net = model()
    net[0].requires_grad_(requires_grad=False)
    return small_study(
        model=net,
        data=data(),
        clients=[Client(name="k", compute=1e6, rate=1e6, samples=51)],
        session=Session(epochs=2, batch_size=8),
    )


class _Bounded(SessionHost):
    """Takes a snapshot after so many bytes."""

    most = None

    def __init__(self, *args, **how):
        super().__init__(*args, most_noted=self.most, **how)


def _host(line, most):
    _Bounded.most = most
    process.SessionHost = _Bounded
    host_for(line, study_of)


class KilledHost:
    """Sessions of one study in a process that is killed and started again."""

    def __init__(self, folder: Path, about: dict, most: int | None = None) -> None:
        self.folder, self.about, self.most, self.port = folder, about, most, 0
        folder.mkdir(mode=0o700)
        _start_forkserver()
        self.certificate = Certificate.self_signed()
        self.restored: list[int] = []
        self.over: set[str] = set()
        self.start()

    def start(self) -> None:
        self.line, theirs = socket.socketpair()
        self.process = CONTEXT.Process(target=_host, args=(theirs, self.most), daemon=True)
        self.process.start()
        theirs.close()
        self.heard, self.number = self.line.makefile("rb"), 0
        pair = (self.certificate.name, self.certificate.certificate, self.certificate.key.decode())
        hello = {"study": self.about, "folder": str(self.folder), "key": KEY.hex(), "certificate": pair}
        hello |= {"host": "127.0.0.1", "port": self.port, "turns": "", "run": "r", "emulate": False}
        self._say(hello)
        while "ready" not in (told := self._hear()):
            pass
        self.port = told["ready"]
        self.restored.append(told["restored"])

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.heard.close()
        self.line.close()

    def close(self) -> None:
        self.heard.close()
        self.line.close()
        self.process.join(30)

    def open(self, study, task, state, seconds=600.0):
        """A session; its ticket."""
        office = Office(TicketKey(KEY), self.certificate, "127.0.0.1", self.port)
        ticket = office.issue(
            run="r",
            round=task.round,
            client=task.client,
            cut=task.cut,
            second_cut=task.second_cut,
            open_seconds=seconds,
            session_seconds=seconds,
        )
        write_tensors(self.folder / "weights", state)
        opening = {
            "claims": asdict(ticket.claims),
            "task": task.to_json(),
            "share": 1e6,
            "weights": "weights",
        }
        self.ask("open", opening={**opening, "issued": time.monotonic(), "rate_down": 0.0})
        return ticket

    def collect(self, ticket):
        told = self.ask("collect", session=ticket.claims.id)
        return told["trained"], read_tensors(self.folder / told["file"])

    def ask(self, what, **about):
        self.number += 1
        self._say({"number": self.number, "ask": what, "about": about})
        while "number" not in (told := self._hear()):
            pass
        assert "error" not in told, told["error"]
        return told["answer"]

    def _say(self, what) -> None:
        self.line.sendall(json.dumps(what).encode() + b"\n")

    def _hear(self):
        told = json.loads(self.heard.readline())
        self.over |= {told["over"]} if "over" in told else set()
        return told
