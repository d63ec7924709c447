"""Everything a run needs, as one value: model, data, clients, server, session and settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cutwater.base.errors import RunError
from cutwater.base.speech import by_file
from cutwater.data.batches import batch_sizes, batches, check_session
from cutwater.data.partition import Partition
from cutwater.data.samples import ArraySamples, Batch, Data, Indices, Samples
from cutwater.data.test_batches import TestBatches
from cutwater.federate.aggregators import Aggregator, WeightedAverage, find_aggregator
from cutwater.federate.conditions import Conditions, check_trace
from cutwater.federate.fingerprint import digests, text_digest
from cutwater.federate.selection import select
from cutwater.model.discover.layered import layered
from cutwater.model.layers import Layered
from cutwater.model.randomness import derive_seed, drawn_from
from cutwater.model.traffic import Traffic, traffic
from cutwater.plan.fleet import Client, Fleet
from cutwater.plan.planners import planner_for
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.plan.value import Plan
from cutwater.profile.count import profile_layered
from cutwater.profile.optimizers import optimizer_kind
from cutwater.profile.values import Profile
from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings
from cutwater.train.lookup import (
    check_goal,
    check_loss_is_fixed,
    find_device,
    find_optimizer,
    named_loss,
    try_loss,
)
from cutwater.train.metrics import Metric, find_metrics, placed
from cutwater.train.session import Job, State, Task
from cutwater.train.step import Loss


@dataclass(frozen=True, eq=False)
class Study:
    """A federated training, complete but for the executor that carries it out. Make it with :meth:`of`."""

    model: Layered = field(repr=False)
    """The layers; engines load weights into them and train in place."""
    initial: State = field(repr=False)
    """A copy of the weights that the model came with."""
    profile: Profile = field(repr=False)
    data: Data
    partition: Partition = field(repr=False)
    fleet: Fleet
    """The clients; ``samples`` is what each trains on, n_k, so that plan and clock count the real work."""
    server: Server
    session: Session
    train: TrainSettings
    conditions: ConditionSettings
    loss: Loss
    aggregator: Aggregator = field(default_factory=WeightedAverage)
    planner: str = "exact"
    planner_options: Mapping[str, Any] = field(default_factory=dict)
    wires: Wires = field(default_factory=Wires)
    metrics: tuple[Metric, ...] = ()
    """What the model is scored by, besides loss and accuracy."""
    scores_local_tests: bool = True
    """Whether the model is scored on what clients hold back, where they do."""
    source: str | None = None
    """The scenario file that it was made from, if it was."""

    @classmethod
    def of(
        cls,
        model: nn.Module | Layered,
        data: Data,
        clients: Sequence[Client],
        server: Server,
        session: Session,
        *,
        train: TrainSettings | None = None,
        share_out: DataSettings | Partition | None = None,
        conditions: ConditionSettings | None = None,
        loss: Loss | None = None,
        aggregator: Aggregator | None = None,
        profile: Profile | None = None,
        planner: str = "exact",
        planner_options: Mapping[str, Any] | None = None,
        wires: Wires | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> "Study":
        """A study of a user's own model, data and loss.

        ``share_out`` says how the data is spread over the clients (by default at random), or is a partition
        of your own; ``metrics`` are functions of outputs and labels by name, or objects with ``update``,
        ``compute`` and ``reset``, besides those that ``train`` names; ``aggregator`` is your own, if none of
        those by name will do; ``profile`` says what each cut costs (by default counted exactly); ``wires``
        how smashed data and gradients may cross a cut (by default as they are).
        """
        train, share_out = train or TrainSettings(), share_out or DataSettings(partition="iid")
        planner_for(planner, planner_options or {})
        device = find_device(train.device)
        fleet = clients if isinstance(clients, Fleet) else Fleet.of(clients)
        _check_rounds(fleet, train)
        if conditions is not None and conditions.trace is not None:
            check_trace(conditions.trace, fleet.names)
        partition = _partition(share_out, data, fleet, train.seed)
        trained = partition.train_sizes
        _check_sessions(fleet, trained, session)
        wanted = loss if loss is not None else named_loss(train.loss)
        check_loss_is_fixed(wanted)
        find_optimizer(train)
        measured = placed(find_metrics(train.metrics, metrics), train.device)
        chosen = aggregator or find_aggregator(train.aggregator, train.aggregator_options)
        cut = model if isinstance(model, Layered) else _discover(model.to(device), data, device)
        _check_state(cut.module)
        classes = try_loss(cut, data, wanted, device, measured)
        check_goal(train, measured, data, classes)
        cut.restart()  # from here on its buffers are known as they came
        study = cls(
            model=cut,
            initial={name: tensor.detach().clone() for name, tensor in cut.module.state_dict().items()},
            profile=profile or _profile(cut, data, session, train, device),
            data=data,
            partition=partition,
            fleet=fleet.replace(samples=trained),
            server=server,
            session=session,
            train=train,
            conditions=conditions or ConditionSettings(),
            loss=wanted,
            aggregator=chosen,
            planner=planner,
            planner_options=planner_options or {},
            wires=wires or Wires(),
            metrics=measured,
        )
        if len(study.profile) != len(cut):
            raise RunError(
                f"the profile has {len(study.profile)} layers, but the model {len(cut)}: profile it anew"
            )
        return study

    def select(self, number: int) -> tuple[str, ...]:
        """Who takes part in a round, in the fleet's order."""
        train = self.train
        return select(
            self.fleet.names,
            train.clients_per_round,
            seed=train.seed,
            round_=number,
            over_selection=train.over_selection,
        )

    def client(self, name: str) -> Client:
        """A client of the fleet by its name."""
        return self.fleet[self._index[name]]

    def problem(self, clients: Sequence[Client]) -> Problem:
        """The planning problem of some clients of the fleet."""
        return Problem(self.profile, clients, self.server, self.session, self.wires)

    def tasks(self, number: int, plan: Plan, holds: Mapping[str, int] | None = None) -> tuple[Task, ...]:
        """What the clients of a planned round train, in the plan's order."""
        held, lr = holds or {}, self.train.learning_rate(number)
        ways = [plan.options[place] for place in plan.wires.tolist()]
        return tuple(
            Task(
                client=name,
                round=number,
                cut=cut,
                seed=derive_seed(self.train.seed, "layers", number, name),
                lr=lr,
                samples=self.client(name).samples,
                holds=max(self.client(name).holds, held.get(name, 0)),
                schedule=way.schedule,
                up=way.up,
                down=way.down,
            )
            for name, cut, way in zip(plan.names, plan.cuts.tolist(), ways, strict=True)
        )

    def job(self) -> Job:
        """What all sessions share."""
        return Job(
            model=self.model,
            loss=self.loss,
            optimizer=find_optimizer(self.train),
            batches=self.batches,
            micro_batches=self.session.micro_batches,
            metrics=self.metrics,
        )

    def batches(self, task: Task) -> Iterable[Batch]:
        """The mini-batches of a session, made one at a time."""
        return self.batches_of(task, self.data.train, self.partition[task.client].train)

    def batches_of(self, task: Task, samples: Samples, held: Indices) -> Iterable[Batch]:
        """The same from other samples, of which the client holds those at these positions."""
        mine = self.session.of(self.client(task.client))
        positions = batches(
            held,
            batch_size=mine.batch_size,
            seed=self.train.seed,
            round_=task.round,
            client=task.client,
            epochs=mine.epochs,
            steps=mine.steps,
        )
        return (self._batch(task, samples, step, chosen) for step, chosen in enumerate(positions))

    def batch_sizes(self, name: str) -> list[int]:
        """The sizes of a client's mini-batches in a session."""
        found = self.client(name)
        mine = self.session.of(found)
        return batch_sizes(found.samples, batch_size=mine.batch_size, epochs=mine.epochs, steps=mine.steps)

    def _batch(self, task: Task, samples: Samples, step: int, chosen: Indices) -> Batch:
        if isinstance(samples, ArraySamples):
            return samples.batch(chosen, self.train.device)
        # A dataset of the user's may draw, to augment its samples.
        with drawn_from(task.seed, step, "samples"):
            return samples.batch(chosen, self.train.device)

    def test(self) -> TestBatches:
        """The test set in mini-batches, then those of every client that holds samples back."""
        held = self.partition if self.scores_local_tests else None
        return TestBatches(self.data, self.train.device, held)

    def two_samples(self) -> Batch:
        """Two samples, for whoever looks at what a model makes of them."""
        with drawn_from(0, "two samples"):
            return self.data.train.batch(np.arange(min(2, len(self.data.train))), self.train.device)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of it before it is trained."""
        found = []
        kept = int(self.partition.test_sizes.sum())
        if kept:
            held = kept + int(self.partition.train_sizes.sum())
            found.append(
                f"{kept:,} of {held:,} samples are held back by the clients for local tests; "
                f"{by_file('local_test = 0 in [data]', 'DataSettings(local_test=0)')} trains on them, too"
            )
        if self.data.test is None:
            found.append(f"{self.data.name!r} has no test set: the model is not scored")
        return tuple(found)

    def fingerprint(self) -> str:
        """A digest of all that the results of this study follow from; more rounds do not change it."""
        return text_digest(self.fingerprints())

    def fingerprints(self) -> dict[str, str]:
        """The digest of each part that the results follow from, by name, to tell where two studies differ."""
        return dict(self._fingerprints)

    def with_planner(self, planner: str, **options: Any) -> "Study":
        """The same study under another planner."""
        return replace(self, planner=planner, planner_options=options)

    @cached_property
    def traffic(self) -> Traffic:
        """Which of the model's tensors learn, and which stay as they are."""
        return traffic(self.model.half(0, len(self.model)))

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {name: k for k, name in enumerate(self.fleet.names)}

    @cached_property
    def _fingerprints(self) -> Mapping[str, str]:
        return digests(self)

    @cached_property
    def truth(self) -> Conditions:
        """The conditions that the clock runs on."""
        return Conditions.of(self.conditions, self.train.seed)


def _partition(share_out: DataSettings | Partition, data: Data, fleet: Fleet, seed: int) -> Partition:
    names, sizes = list(fleet.names), [int(count) for count in fleet.samples]
    if isinstance(share_out, DataSettings):
        return share_out.share_out(data, names, sizes, seed)
    share_out.check_fits(names, sizes, len(data.train))
    return share_out


def _check_sessions(fleet: Fleet, trained: NDArray[np.int64], session: Session) -> None:
    for client, count in zip(fleet, trained, strict=True):
        mine = session.of(client)
        check_session(
            int(count),
            batch_size=mine.batch_size,
            client=client.name,
            epochs=mine.epochs,
            steps=mine.steps,
        )


def _discover(model: nn.Module, data: Data, device: torch.device) -> Layered:
    inputs, _ = data.train.batch(np.arange(min(2, len(data.train))), str(device))
    return layered(model, inputs)


def _profile(
    model: Layered, data: Data, session: Session, train: TrainSettings, device: torch.device
) -> Profile:
    size = min(session.batch_size, len(data.train))
    inputs, _ = data.train.batch(np.arange(size), str(device))
    name = type(model.module).__name__
    return profile_layered(
        model,
        inputs,
        optimizer=optimizer_kind(train.optimizer, train.momentum),
        model=name,
        input=data.input,
        classes=data.classes,
    )


def _check_state(model: nn.Module) -> None:
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise RunError(
                f"the model's state has {name!r}, which is {type(value).__name__}, but only tensors can be "
                "averaged over clients: keep it in a buffer, or out of the state"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RunError(
            "the model has no parameter that requires a gradient, so that there is nothing to train: "
            "set requires_grad for one at least"
        )


def _check_rounds(fleet: Fleet, train: TrainSettings) -> None:
    select(fleet.names, train.clients_per_round, seed=train.seed, round_=1)
    if train.quorum > len(fleet):
        raise RunError(f"quorum is {train.quorum}, but there are {len(fleet)} clients; use at most that many")
