"""What Fig. 12 rests on: real trainings of the thirty clients, and what the clock shows for each planner.

SFL and FedAvg give the same bits in every round, wherever models are cut, so a training is run once for each
seed and timed by several planners' clocks; that the bits are the same is checked by really training both.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cutwater.base.errors import DataError
from cutwater.data.samples import Data
from cutwater.data.sources import MNIST_MIRRORS
from cutwater.execute.local import LocalTrainer, Tick, sensible_workers
from cutwater.execute.local import run as run_locally
from cutwater.federate.clock import clock_only
from cutwater.federate.record import Record
from cutwater.federate.selection import select
from cutwater.federate.study import Study
from cutwater.federate.verify import verify
from cutwater.model import zoo
from cutwater.model.precision import one_thread
from cutwater.plan.planners import run as plan_by
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.cache import profile_of
from cutwater.profile.values import Profile
from cutwater.reproduce.item import Context
from cutwater.reproduce.paper_setup import EPOCHS, MODEL, PICKED, SERVER, profile, thirty
from cutwater.runs.reader import read_run
from cutwater.scenario.settings import DataSettings, TrainSettings

PLANNERS = ("fedavg", "alternating", "exact")
SFL = "alternating"
"""The paper's SFL: plans by Algorithm 1."""
DIGITS_EACH = 48
"""Images that each of the thirty clients gets of the 1,797 embedded digits."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """A model, how long and how often it is trained, and on what."""

    model: str
    rounds: int
    seeds: tuple[int, ...] = (1, 2, 3)
    source: str = "mnist"
    steps: int = 20
    batch_size: int = 32
    clients: int = PICKED
    lr: float = 0.05
    evaluate_every: int = 1
    checked: int = 2
    """Rounds that are really trained as FedAvg, by Algorithm 1's plan and with random cuts."""
    keep: bool = False
    """Whether each training is kept in a run folder, so that it can be resumed."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training: accuracy by round, and when each round was over by each planner's clock."""

    seed: int
    rounds: tuple[int, ...]
    """The rounds after which the model was tested."""
    accuracy: tuple[float, ...]
    weights_sha256: str
    """Of the last round."""
    seconds: dict[str, tuple[float, ...]]
    """Virtual time at the end of each tested round, by planner."""
    done: int
    """Rounds that were trained."""
    loss: tuple[float, ...]
    """Mean training loss of every round."""


@dataclass(frozen=True)
class SameBits:
    """A round that was trained in several ways."""

    round: int
    agrees: bool
    weights_sha256: dict[str, str]


def load_data(source: str, mirrors: tuple[str, ...] = MNIST_MIRRORS) -> tuple[Data, str]:
    """The samples, and a note where they are not the ones that were asked for."""
    try:
        return DataSettings(source=source, mirrors=mirrors).load(), ""
    except DataError:
        if source != "mnist":
            raise
    note = (
        "MNIST was neither on this machine nor to be had from its mirrors, so these are the 1,797 embedded "
        "digits: name a folder with MNIST's four files by CUTWATER_DATA."
    )
    return DataSettings(source="digits").load(), note


def slowed(costs: Profile) -> float:
    """By how much clients and server are slowed down, so that a sample of a small model is as heavy for them.

    Γ of the model over Γ of EfficientNetV2-M: computing then takes as long as in the paper, and there is
    something to gain by splitting. The links stay as they are.
    """
    return costs.total_flops / profile().total_flops


def make_study(settings: TrainingSettings, data: Data, seed: int) -> Study:
    """The thirty clients with one model and seed."""
    costs = (
        profile()
        if settings.model == MODEL
        else profile_of(settings.model, input=data.input, classes=data.classes)
    )
    scale = slowed(costs)
    fleet = thirty().fleet
    fleet = fleet.replace(compute=fleet.compute * scale)
    if data.name == "digits":
        fleet = fleet.replace(samples=np.full(len(fleet), DIGITS_EACH))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = zoo.build(settings.model, data.input, data.classes)
    study = Study.of(
        model,
        data,
        fleet,
        Server(SERVER.compute * scale),
        Session(steps=settings.steps, batch_size=settings.batch_size),
        train=TrainSettings(
            rounds=settings.rounds,
            clients_per_round=settings.clients,
            lr=settings.lr,
            seed=seed,
            evaluate_every=settings.evaluate_every,
        ),
        share_out=DataSettings(partition="paper"),
        profile=costs,
        planner=SFL,
    )
    # What clients hold back is more than the test set, and no figure shows it.
    return replace(study, scores_local_tests=False)


def train(
    study: Study,
    folder: Path | None,
    watch: Callable[[Tick], None],
    planners: Sequence[str] = PLANNERS,
) -> Training:
    """Train a study to its end, or go on where its folder stands, and time it by the planners' clocks."""
    # Sessions have the cores; this process only adds up what they send.
    with one_thread():
        begun = folder is not None and folder.exists()
        trained = run_locally(study, folder, workers=None, resume=begun, watch=watch)
    lines = trained.records if folder is None else read_run(folder).undamaged().lines
    return as_training(study, lines, planners)


def train_one(
    study: Study,
    settings: TrainingSettings,
    context: Context,
    name: str,
    *,
    done: int,
    trainings: int,
    planners: Sequence[str] = PLANNERS,
) -> Training:
    """One of so many trainings, of which so many are done; what is kept goes on where it was interrupted."""
    folder = context.runs / name if settings.keep and context.runs is not None else None
    each = settings.rounds * settings.clients

    def heard(tick: Tick) -> None:
        context.watch(done * each + (tick.round - 1) * tick.sessions + tick.done, trainings * each)

    return train(study, folder, heard, planners)


def as_training(study: Study, lines: Sequence[Record], planners: Sequence[str] = PLANNERS) -> Training:
    """A training as its metrics tell it."""
    tested = [(line.round, line.accuracy) for line in lines if line.accuracy is not None]
    rounds = tuple(number for number, _ in tested)
    return Training(
        seed=study.train.seed,
        rounds=rounds,
        accuracy=tuple(accuracy for _, accuracy in tested),
        weights_sha256=lines[-1].weights_sha256,
        seconds={planner: clock(study.with_planner(planner), rounds) for planner in planners},
        done=len(lines),
        loss=tuple(line.loss for line in lines if line.loss is not None),
    )


def clock(study: Study, rounds: tuple[int, ...]) -> tuple[float, ...]:
    """Virtual time at the end of some rounds."""
    ends = np.cumsum([outcome.seconds for outcome in clock_only(study, max(rounds))])
    return tuple(float(ends[number - 1]) for number in rounds)


def check(study: Study, last: int, seed: int) -> tuple[SameBits, ...]:
    """Train the first rounds as FedAvg, by the study's plan and with random cuts, and compare all bits."""
    with closing(LocalTrainer(study.job(), (), sensible_workers(study))) as trainer, one_thread():
        found = verify(study, trainer, last, seed)
        return tuple(SameBits(each.round, each.agrees, dict(each.digests)) for each in found)


def long_sessions(rounds: int, seed: int) -> dict[str, float]:
    """Virtual time of rounds of EfficientNetV2-M with sessions of 20 epochs, as in the latency figures."""
    scenario, costs = thirty(), profile()
    place = {name: k for k, name in enumerate(scenario.fleet.names)}
    total = dict.fromkeys(PLANNERS, 0.0)
    for number in range(1, rounds + 1):
        names = select(scenario.fleet.names, PICKED, seed=seed, round_=number)
        clients = [scenario.fleet[place[name]] for name in names]
        problem = Problem(costs, clients, SERVER, Session(epochs=EPOCHS))
        for planner in PLANNERS:
            total[planner] += plan_by(problem, planner).latency
    return total
