"""A server in this process that has a session's cut moved when a test says so, as the product moves it."""

import copy

import torch
from torch import nn

import cutwater
from cutwater.train.kept_side import MovingStages, SideState, give, go_on
from cutwater.train.manner import Clip, Manner
from cutwater.train.movable import Crossing, why_fixed, why_not
from cutwater.train.session import Job, Task, run_session
from cutwater.train.step import optimizer_factory

ROWS, STEPS = 6, 4


def small_cnn(seed=0):
    """Five layers, of which two have no weights, with batch normalisation and dropout."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3)),
        nn.Conv2d(3, 2, 3),
        nn.Flatten(),
        nn.Sequential(nn.Linear(18, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)),
        nn.Linear(8, 3),
    )


def bare_ends(seed=0):
    """Four layers, of which the first and the last have nothing to train."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.Linear(6, 3), nn.Tanh())


def job_of(optimizer, options, *, micro_batches=1, clip=None, rates=None, make=small_cnn):
    model = cutwater.layered(make(), (torch.zeros(2, 1, 5, 5),))
    generator = torch.Generator().manual_seed(3)
    batches = [
        ((torch.randn(ROWS, 1, 5, 5, generator=generator),), torch.arange(ROWS) % 3) for _ in range(STEPS)
    ]
    manner = Manner(rates=rates, clip=None if clip is None else Clip(clip, model.places))
    return Job(
        model=model,
        loss=nn.functional.cross_entropy,
        optimizer=lambda lr: optimizer_factory(optimizer, lr, **options),
        batches=lambda task: batches,
        micro_batches=micro_batches,
        manner=lambda task: manner,
    )


class MovingServer(MovingStages):
    """Moves after so many mini-batches, each time to the cut told."""

    def __init__(self, job, task, moves):
        self.job, self.task, self.moves, self.steps = job, task, dict(moves), 0
        self.made, self.side = copy.deepcopy(job.model.module).state_dict(), None
        self.side = self.furnish(task)
        self.moved = []

    def furnish(self, task):
        half = copy.deepcopy(self.job.split(task.cut).server)
        half.load_state_dict({name: self.made[name] for name in half.state_dict()})
        return self.job.server_side(task, half)

    def send(self, part, smashed, labels):
        self.steps += part.last
        self.side.send(part, smashed, labels)

    def receive(self):
        return self.side.receive()

    def clip(self, norm):
        self.side.clip(norm)

    def due(self):
        return self.moves.pop(self.steps, 0)

    def move(self, cut, given):
        task = self.task
        assert (given is None) == (cut > task.cut)
        assert why_fixed(self.job, task) is why_not(self.job, task, cut) is None
        names = self.job.between(task.cut, cut)
        came = given or give(self.side, names)
        Crossing.of(self.job, task, cut).check(came)
        self.moved.append((self.steps, task.cut, cut))
        new = self.furnish(moved := Task(**{**task.to_json(), "cut": cut}))
        go_on(new, self.side, given)
        # What crossed is not what stays here: whoever writes into one does not write into the other.
        crossed = SideState({name: one.clone() for name, one in came.tensors.items()}, came.plain)
        self.side, self.task = new, moved
        return None if given is not None else crossed


def trained(job, cut, moves=(), make=small_cnn):
    """The joined weights of a session, which moves."""
    task = Task("k", 1, cut, seed=7, lr=0.05, samples=ROWS)
    job.model.module.load_state_dict(make().state_dict())
    whole = cut == len(job.model)
    server = None if whole else MovingServer(job, task, moves)
    steps = run_session(job, task, server, job.batches(task))
    state = {n: one.clone() for n, one in job.split(steps.cut).client.state_dict().items()}
    if server is not None:
        assert len(server.moved) == len(moves)
        state |= server.side.half.state_dict()
    return {name: state[name] for name in job.model.module.state_dict()}
