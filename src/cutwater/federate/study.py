"""Everything a run needs, as one value: model, data, clients, server, session and settings."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from cutwater.base.errors import RunError
from cutwater.base.speech import by_file
from cutwater.data.batches import batch_sizes, batches, check_session
from cutwater.data.custom import as_data
from cutwater.data.lengths import example_batches
from cutwater.data.partition import Partition
from cutwater.data.read_ahead import read_ahead
from cutwater.data.samples import ArraySamples, Batch, Data, Indices, Samples
from cutwater.data.share_out import METHODS, Share
from cutwater.data.test_batches import TestBatches
from cutwater.federate.aggregators import Aggregator, WeightedAverage, find_aggregator
from cutwater.federate.conditions import Conditions, check_trace
from cutwater.federate.fingerprint import digests, text_digest
from cutwater.federate.named_inputs import fitted, in_order
from cutwater.federate.selection import how_many, select
from cutwater.model.discover.layered import layered
from cutwater.model.layers import Layered
from cutwater.model.randomness import derive_seed, drawn_from, draws
from cutwater.model.traffic import Traffic, traffic
from cutwater.plan.fastest import fastest
from cutwater.plan.fleet import Client, Fleet, Held
from cutwater.plan.planners import Planner, called, planner_for
from cutwater.plan.problem import Band, Problem, Server
from cutwater.plan.session import Session, Wires, part_sizes
from cutwater.plan.value import Plan
from cutwater.profile.count import profile_layered
from cutwater.profile.optimizers import optimizer_kind
from cutwater.profile.values import Profile
from cutwater.scenario.judging import JudgeSettings
from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings
from cutwater.train.lookup import (
    check_goal,
    check_loss_is_fixed,
    check_loss_name,
    find_device,
    find_loss,
    find_optimizer,
    try_loss,
    two_samples,
)
from cutwater.train.manner import Clip, Manner
from cutwater.train.metrics import Evaluate, Metric, find_evaluate, find_metrics, own_scores, placed
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
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    planner: str | Planner = "exact"
    """By name, or a function from a problem to a plan."""
    planner_options: Mapping[str, Any] = field(default_factory=dict)
    wires: Wires = field(default_factory=Wires)
    band: Band = field(default_factory=Band)
    metrics: tuple[Metric, ...] = ()
    """What the model is scored by, besides loss and accuracy."""
    evaluate: Evaluate | None = None
    """An evaluation of the user's own, besides: of the model, numbers by name."""
    scores_local_tests: bool = True
    """Whether the model is scored on what clients hold back, where they do."""
    source: str | None = None
    """The scenario file that it was made from, if it was."""

    @classmethod
    def of(
        cls,
        model: nn.Module | Layered,
        data: Data | Any,
        clients: Sequence[Client],
        server: Server,
        session: Session,
        *,
        train: TrainSettings | None = None,
        share_out: DataSettings | Partition | Mapping[str, Any] | Share | None = None,
        conditions: ConditionSettings | None = None,
        loss: Loss | None = None,
        aggregator: Aggregator | None = None,
        judge: JudgeSettings | None = None,
        profile: Profile | None = None,
        planner: str | Planner = "exact",
        planner_options: Mapping[str, Any] | None = None,
        wires: Wires | None = None,
        band: Band | None = None,
        metrics: Mapping[str, Any] | None = None,
        evaluate: Evaluate | None = None,
    ) -> "Study":
        """A study of a user's own model, data and loss.

        ``data`` is what :func:`cutwater.from_datasets` makes, or what it takes: a dataset or a DataLoader,
        alone or as (train, test). ``share_out`` says how the data is spread over the clients (by default at
        random), or is a partition of your own: a Partition, the positions of each client by name, or a
        function that returns them, of the data and each client's number of samples. ``planner`` is a name or
        a function from a Problem to a Plan; ``metrics`` are functions of outputs and labels by name, or
        objects with ``update``, ``compute`` and ``reset``, besides those that ``train`` names; ``evaluate``
        is a function of the model that returns numbers by name, which count as metrics do; ``aggregator`` is
        your own, if none of those by name will do; ``judge`` says what an update may be before it counts;
        ``profile`` says what each cut costs (by default counted exactly); ``wires`` how smashed data and
        gradients may cross a cut (by default as they are); ``band`` which lines all clients share.
        """
        train, data = train or TrainSettings(), as_data(data)
        _check_batch_size(data, session)
        planner_for(planner, planner_options or {})
        device = find_device(train.device)
        fleet = clients if isinstance(clients, Fleet) else Fleet.of(clients)
        _check_rounds(fleet, train)
        conditions = conditions or ConditionSettings()
        check_trace(conditions.trace, fleet.names)
        partition = _partition(share_out, data, fleet, train.seed)
        trained = partition.train_sizes
        for client, count in zip(fleet, trained, strict=True):
            check_session(int(count), session.of(client), client.name)
        if loss is not None:
            check_loss_is_fixed(loss)
        elif train.loss is not None:
            check_loss_name(train.loss)
        find_optimizer(train)
        measured = placed(find_metrics(train.metrics, metrics), train.device)
        own = find_evaluate(train, evaluate)
        chosen = aggregator or find_aggregator(train.aggregator, train.aggregator_options)
        if isinstance(model, Layered):
            data, cut = fitted(data, model.module), model
        else:
            data = fitted(data, model)
            cut = layered(model.to(device), data.called(two_samples(data, device).inputs))
        data = in_order(data, cut)
        _check_state(cut.module)
        wanted = loss if loss is not None else find_loss(train.loss, cut, data, device)
        check_loss_is_fixed(wanted)
        classes = try_loss(cut, data, wanted, device, measured)
        check_goal(train, measured, data, classes, own=own is not None)
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
            conditions=conditions,
            loss=wanted,
            aggregator=chosen,
            judge=judge or JudgeSettings(),
            planner=planner,
            planner_options=planner_options or {},
            wires=wires or Wires(),
            band=band or Band(),
            metrics=measured,
            evaluate=own,
        )
        if len(study.profile) != len(cut):
            raise RunError(
                f"the profile has {len(study.profile)} layers, but the model {len(cut)}: profile it anew"
            )
        return study

    def select(self, number: int) -> tuple[str, ...]:
        """Who takes part in a round, in the fleet's order."""
        train = self.train
        if train.selection == "fastest" and train.clients_per_round is not None:
            return self._fastest
        return select(
            self.fleet.names,
            train.clients_per_round,
            seed=train.seed,
            round_=number,
            over_selection=train.over_selection,
        )

    @cached_property
    def _fastest(self) -> tuple[str, ...]:
        """The clients whose round together is the shortest, as the scenario describes them.

        They are the same in every round: others never take part, and the model is biased towards the data
        of these.
        """
        wanted = how_many(
            len(self.fleet), self.train.clients_per_round or len(self.fleet), self.train.over_selection
        )
        return tuple(self.fleet.names[k] for k in fastest(self.problem(self.fleet), wanted))

    def client(self, name: str) -> Client:
        """A client of the fleet by its name."""
        return self._client_at(self._index[name])

    @cached_property
    def _client_at(self) -> Callable[[int], Client]:
        """Clients by their place, a round's among them made once: it asks for each several times."""
        return lru_cache(maxsize=1 << 14)(self.fleet.__getitem__)

    def problem(self, clients: Sequence[Client]) -> Problem:
        """The planning problem of some clients of the fleet.

        The last is kept: a round is played on what it was planned on, where all is as it was believed to be.
        """
        return self._problem(clients if isinstance(clients, Fleet) else tuple(clients))

    @cached_property
    def _problem(self) -> Callable[[Sequence[Client]], Problem]:
        def problem(clients: Sequence[Client]) -> Problem:
            return Problem(self.priced, clients, self.server, self.session, self.wires, self.band)

        return lru_cache(maxsize=1)(problem)

    def tasks(self, number: int, plan: Plan, holds: Mapping[str, Held] | None = None) -> tuple[Task, ...]:
        """What the clients of a planned round train, in the plan's order."""
        by_round = self.train.schedule_by == "round"
        held = {name: self.client(name).held.joined((holds or {}).get(name, Held())) for name in plan.names}
        lr = self.train.learning_rate(number) if by_round else self.train.lr
        ways = [plan.options[place] for place in plan.wires.tolist()]
        rates, once = self._rates(plan), self._once(plan)
        return tuple(
            Task(
                client=name,
                round=number,
                cut=cut,
                seed=derive_seed(self.train.seed, "layers", number, name),
                lr=lr,
                samples=self.client(name).samples,
                holds=held[name].first,
                holds_last=held[name].last,
                schedule=way.schedule,
                up=way.up,
                down=way.down,
                second_cut=second_cut,
                rate_up=rate[0],
                rate_down=rate[1],
                once=rows_once,
            )
            for name, cut, second_cut, way, rate, rows_once in zip(
                plan.names, plan.cuts.tolist(), plan.second_cuts.tolist(), ways, rates, once, strict=True
            )
        )

    def _once(self, plan: Plan) -> list[bool]:
        """Who sends a row once a session, and later only its number."""
        if not any(cut.repeats for cut in self.priced.cuts):
            return [False] * len(plan)
        problem = self.problem([self.client(name) for name in plan.names])
        wires = [problem.options.index(plan.options[place]) for place in plan.wires.tolist()]
        return [bool(once) for once in problem.sends_once(plan.places, wires)]

    @cached_property
    def priced(self) -> Profile:
        """The profile as these samples have it: where reading one draws, none comes twice alike.

        Nor does one that is filled up to the longest of its mini-batch, which is another in every epoch.
        """
        cuts, train = self.profile.cuts, self.data.train
        if isinstance(train, ArraySamples) or not any(cut.repeats for cut in cuts):
            return self.profile
        drawn = draws(lambda: train.batch(np.zeros(1, dtype=np.int64)))
        if not drawn and len(self.example_batches) == 1:
            return self.profile
        return replace(self.profile, cuts=tuple(replace(cut, repeats=False) for cut in cuts))

    def _rates(self, plan: Plan) -> list[tuple[float, float]]:
        """What each client may send and is sent over lines that are shared; 0 where one is not."""
        if plan.rates is None:
            return [(0.0, 0.0)] * len(plan)
        lines = zip(plan.rates, (self.band.up, self.band.down), strict=True)
        up, down = (each.tolist() if math.isfinite(most) else [0.0] * len(plan) for each, most in lines)
        return list(zip(up, down, strict=True))

    def job(self) -> Job:
        """What all sessions share."""
        return Job(
            model=self.model,
            loss=self.loss,
            optimizer=find_optimizer(self.train),
            batches=self.batches,
            micro_batches=self.session.micro_batches,
            metrics=self.metrics,
            manner=self.manner,
        )

    def manner(self, task: Task) -> Manner:
        """What both sides of a session do alike: rates by step, clipping by the norm, autocast."""
        train, clip = self.train, self.train.clip_norm
        steps = 0 if train.schedule_by == "round" else len(self.batch_sizes(task.client))
        return Manner(
            rates=None if train.schedule_by == "round" else train.rates(task.round, steps),
            clip=None if clip is None else Clip(clip, self.model.places),
            autocast=self.session.autocast,
        )

    def batches(self, task: Task) -> Iterable[Batch]:
        """The mini-batches of a session, made one at a time."""
        return self.batches_of(task, self.data.train, self.partition[task.client].train)

    def batches_of(self, task: Task, samples: Samples, held: Indices) -> Iterable[Batch]:
        """The same from other samples, of which the client holds those at these positions."""
        mine = self.session.of(self.client(task.client))
        positions = batches(held, mine, seed=self.train.seed, round_=task.round, client=task.client)
        read = partial(self._batch, task, samples)
        return read_ahead(read, positions, self.data.workers, self.train.device)

    def batch_sizes(self, name: str) -> list[int]:
        """The sizes of a client's mini-batches in a session."""
        found = self.client(name)
        return batch_sizes(found.samples, self.session.of(found))

    def part_sizes(self, name: str) -> list[list[int]]:
        """The sizes of the micro-batches of each of them."""
        return [part_sizes(size, self.session.micro_batches) for size in self.batch_sizes(name)]

    def _batch(self, task: Task, samples: Samples, step: int, chosen: Indices, device: str) -> Batch:
        if isinstance(samples, ArraySamples):
            return samples.batch(chosen, device)
        # A dataset of the user's may draw, to augment its samples.
        with drawn_from(task.seed, step, "samples"):
            return samples.batch(chosen, device)

    def test(self) -> TestBatches:
        """The test set in mini-batches, then those of every client that holds samples back."""
        held = self.partition if self.scores_local_tests else None
        return TestBatches(self.data, self.train.device, held)

    @cached_property
    def example_batches(self) -> tuple[Batch, ...]:
        """Mini-batches that show what may cross a cut: the largest first, then smaller where sizes vary."""
        with drawn_from(0, "two samples"):
            return example_batches(self.data, self.train.device)

    def own_scores(self, weights: State) -> dict[str, float] | None:
        """What an evaluation of the user's own says of the model; None where there is none."""
        if self.evaluate is None:
            return None
        return own_scores(self.evaluate, self.model, weights, [metric.name for metric in self.metrics])

    def two_samples(self) -> Batch:
        """Two samples, for whoever looks at what a model makes of them."""
        return two_samples(self.data, torch.device(self.train.device))

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
        if self.data.test is None and self.evaluate is None:
            found.append(f"{self.data.name!r} has no test set: the model is not scored")
        return tuple(found)

    def fingerprint(self) -> str:
        """A digest of all that the results of this study follow from; more rounds do not change it."""
        return text_digest(self.fingerprints())

    def fingerprints(self) -> dict[str, str]:
        """The digest of each part that the results follow from, by name, to tell where two studies differ."""
        return dict(self._fingerprints)

    @property
    def planner_name(self) -> str:
        """What its planner is called."""
        return called(self.planner)

    def with_planner(self, planner: str | Planner, **options: Any) -> "Study":
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


def _partition(share_out: Any, data: Data, fleet: Fleet, seed: int) -> Partition:
    names, sizes = list(fleet.names), [int(count) for count in fleet.samples]
    if share_out is None or callable(share_out):
        share_out = DataSettings(partition=share_out or "iid")
    if isinstance(share_out, DataSettings):
        return share_out.share_out(data, names, sizes, seed)
    made = Partition.of(share_out) if isinstance(share_out, Mapping) else share_out
    if not isinstance(made, Partition):
        hint = f"DataSettings(partition={made!r})" if made in METHODS else "DataSettings(partition=...)"
        raise RunError(
            f"share_out is {made!r}, but must be {hint}, a Partition, the positions of each client by name, "
            "or a function of the data and each client's number of samples that returns them"
        )
    made.check_fits(names, sizes, len(data.train))
    return made


def _check_batch_size(data: Data, session: Session) -> None:
    """A loader's mini-batches are the session's, or somebody would be surprised."""
    if data.batch_size is not None and data.batch_size != session.batch_size:
        raise RunError(
            f"the DataLoader of {data.name!r} has batch_size {data.batch_size}, but the session "
            f"{session.batch_size}: set batch_size = {data.batch_size} "
            + by_file("in [session]", "of Session")
            + ", or give the loader's dataset"
        )


def _profile(
    model: Layered, data: Data, session: Session, train: TrainSettings, device: torch.device
) -> Profile:
    size = min(session.batch_size, len(data.train))
    with drawn_from(0, "two samples"):
        inputs, _ = data.train.batch(np.arange(size), str(device))
    name = type(model.module).__name__
    return profile_layered(
        model,
        inputs,
        optimizer=optimizer_kind(train.optimizer, train.momentum),
        autocast=session.autocast,
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
    if train.clients_per_round is not None:
        how_many(len(fleet), train.clients_per_round, train.over_selection)
    if train.quorum > len(fleet):
        raise RunError(f"quorum is {train.quorum}, but there are {len(fleet)} clients; use at most that many")
