"""What a scenario says about data, training and conditions, as frozen values. Needs no torch.

Each class is one section of the scenario file (:mod:`cutwater.scenario.sections` has them all), and each
field says what it may be and what it is for.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from cutwater.base.errors import DataError, RunError, ScenarioError
from cutwater.base.kinds import Choice, Flag, Many, Number, Table, Text, Whole, quote
from cutwater.base.schema import Told, called, check, described
from cutwater.base.speech import Say, quiet
from cutwater.base.usercode import find, told
from cutwater.data.custom import LONGEST, WORKERS
from cutwater.data.partition import Partition
from cutwater.data.samples import Data
from cutwater.data.share_out import METHODS, partition, share_by
from cutwater.data.sources import MNIST_MIRRORS, SOURCES, load
from cutwater.scenario.goal import Goal, GoalText

SCHEDULES = ("constant", "step", "exponential", "cosine", "linear")
AGGREGATORS = ("average", "fedavgm", "fedadam", "median", "trimmed", "clipped")
CHANGES = ("constant", "jitter", "markov", "trace")
ESTIMATES = ("nominal", "last", "average", "true")

_BY_NORM = ("grad_clip", "max_grad_norm", "clip_grad_norm", "gradient_clip_val")
"""What people call clipping by the global norm."""
SCHEDULED_BY = ("round", "step", "session")
_LARGEST_RATE = 1e30
"""No learning rate is larger: 32-bit weights end at 3e38."""
_SEED = Whole(1 - 2**63, 2**63 - 1)
"""What torch takes as a seed."""


@described("[data]", ScenarioError)
@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """``[data]``: which samples there are and who holds them."""

    source: Annotated[
        str,
        Choice(SOURCES, own=True),
        "`digits` (1,797 real 8×8 digits, embedded), `mnist`, `fashion-mnist`, `cifar10`, or your own "
        "function as `package.module:function`, which returns (train, test) datasets (of torch, or of 🤗 "
        "datasets) or a training set alone; a sample is (input, …, label), or a dict with `labels`",
    ] = "digits"
    partition: Annotated[
        str | Callable[..., Any],
        Choice(METHODS, own=True, code=True),
        "`paper` (each class spread evenly, a quarter held back for local tests), `iid`, `dirichlet` (skewed "
        "mixes of classes), `shards` (a few runs of sorted samples each), or your own as "
        "`package.module:function`: of the data and each client's number of samples, the positions of each",
    ] = "paper"
    folder: Annotated[
        str | None,
        Text(empty=True, file=True),
        "where the source's files are, after `CUTWATER_DATA` and before the user's cache; relative to the "
        "scenario file",
    ] = None
    mirrors: Annotated[
        tuple[str, ...],
        Many(Text()),
        "where MNIST is downloaded from if it is nowhere on this machine (files are checked by MD5); an "
        "empty list forbids downloads",
        Told("known mirrors"),
    ] = MNIST_MIRRORS
    scale: Annotated[
        bool,
        Flag(),
        "shrink the clients' samples in proportion where they add up to more than the source has",
    ] = False
    local_test: Annotated[
        float | None,
        Number(0, below=1),
        "the part of its samples that a client holds back: the global model is scored on them, client by "
        "client; a quarter for `paper`, else nothing; 0 holds nothing back",
    ] = None
    alpha: Annotated[
        float, Number(above=0, most=1e9), "`dirichlet`: the smaller, the fewer classes a client sees"
    ] = 0.5
    shards: Annotated[int, Whole(1), "`shards`: runs of samples that a client gets"] = 2
    seed: Annotated[int | None, _SEED, "seed of the partition; that of `[train]` if not given"] = None
    options: Annotated[Mapping[str, Any], Table(), "arguments of your own function"] = field(
        default_factory=dict
    )
    collate: Annotated[
        str | Callable[..., Any] | None,
        Text(code=True),
        "what makes a mini-batch of a list of your own samples: `pad` (samples of different lengths are "
        "filled up, labels with -100), or your own as `package.module:function`",
    ] = None
    labels: Annotated[
        str | None, Text(), "what the labels are called in samples that are dicts; `labels` or `label`"
    ] = None
    longest: Annotated[
        int | None,
        LONGEST,
        "with `collate`: the largest that a size which varies may become, over a network; if not given, that "
        "of the largest sample, for which all are looked at once",
    ] = None
    workers: Annotated[
        int,
        WORKERS,
        "processes that read mini-batches of your own samples ahead; however many, they draw the same",
    ] = 0

    def __post_init__(self) -> None:
        check(self)

    def load(self, say: Say = quiet) -> Data:
        """The source's samples; ``say`` is told what takes long."""
        names = ("collate", "labels", "longest", "workers")
        given = {name: getattr(self, name) for name in names}
        return load(
            self.source,
            folder=self.folder,
            mirrors=self.mirrors,
            options=self.options,
            settings={key: value for key, value in given.items() if value},
            say=say,
        )

    def share_out(
        self, data: Data, clients: Sequence[str], samples: Sequence[int] | None, seed: int
    ) -> Partition:
        """Who holds which training samples; ``samples`` are the clients' |D_k| where the scenario has them.

        ``seed`` is that of the run, for where ``[data]`` has none of its own.
        """
        seed = seed if self.seed is None else self.seed
        named = self.partition
        if callable(named) or ":" in named:
            function = named if callable(named) else find(named, "partition", DataError)
            counts = dict(zip(clients, [0] * len(clients) if samples is None else samples, strict=True))
            return share_by(function, data, counts, local_test=self.local_test or 0.0, seed=seed)
        return partition(
            len(data.train),
            data.train.labels,
            clients,
            method=named,
            samples=samples,
            scale=self.scale,
            local_test=self.local_test,
            alpha=self.alpha,
            shards=self.shards,
            seed=seed,
        )


SELECTIONS = ("random", "fastest")
"""By which rule the clients of a round are chosen."""


@described(
    "[train]", ScenarioError, instead=dict.fromkeys(_BY_NORM, "clipping by the global norm is clip_norm")
)
@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """``[train]``: how long, with what, and with whom. Rounds are counted from 1."""

    rounds: Annotated[int, Whole(1), "rounds of global training"] = 60
    clients_per_round: Annotated[
        int | None, Whole(1), "how many clients a round aggregates; all if not given"
    ] = None
    selection: Annotated[
        str,
        Choice(SELECTIONS),
        "who the `clients_per_round` are: `random` (drawn anew in every round), or `fastest` (those whose "
        "round together is the shortest, exactly: the same in every round, so that what the others' data "
        "could teach is never learned)",
    ] = "random"
    optimizer: Annotated[
        str | Callable[..., Any],
        Text(code=True),
        "any optimizer of torch.optim whose update of a parameter needs that parameter's gradient alone "
        "(not LBFGS, not SparseAdam) and that takes parameters of any shape (not Muon), or your own of that "
        "kind as `package.module:Class`; each session starts it afresh on both sides of the cut",
    ] = "sgd"
    lr: Annotated[
        float, Number(above=0, most=_LARGEST_RATE), "η, the learning rate that the schedule starts from"
    ] = 0.05
    momentum: Annotated[float, Number(0), "of SGD, and of what else takes it"] = 0.0
    weight_decay: Annotated[float, Number(0), "as the optimizer defines it"] = 0.0
    optimizer_options: Annotated[
        Mapping[str, Any], Table(), "what else the optimizer takes, such as `{ betas = [0.9, 0.99] }`"
    ] = field(default_factory=dict)
    schedule: Annotated[
        str | Callable[[int], float],
        Choice(SCHEDULES, own=True, code=True),
        "how the learning rate changes: `constant`, `step`, `exponential`, `cosine`, `linear`, or your own "
        "as `package.module:function`: of the round (or step, see `schedule_by`), counted from 1, the "
        "factor of `lr`",
    ] = "constant"
    schedule_by: Annotated[
        str,
        Choice(SCHEDULED_BY),
        "what `schedule`, `every`, `horizon` and `warmup` count: `round`; `step`, the mini-batches that a "
        "client would have had since the run began, had it been in every round, so that all cuts and a "
        "client that is alone agree; or `session`, mini-batches of the session, which begins anew in every "
        "round. By mini-batches, warm-up rises from 0 and `linear` and `cosine` run down from its end, as "
        "those of transformers do",
    ] = "round"
    gamma: Annotated[float, Number(above=0), "the factor of `step` and `exponential`"] = 0.1
    every: Annotated[int, Whole(1), "`step` applies its factor after this many rounds, or steps"] = 20
    final_lr: Annotated[float, Number(0, _LARGEST_RATE), "where `cosine` and `linear` end"] = 0.0
    horizon: Annotated[
        int | None,
        Whole(1),
        "rounds, or steps, over which `cosine` and `linear` run down; all of the run, or session, if not "
        "given",
    ] = None
    warmup: Annotated[
        int, Whole(0), "rounds, or steps, over which the learning rate first rises to its full value"
    ] = 0
    clip_norm: Annotated[
        float | None,
        Number(above=0),
        "the gradients of a mini-batch are scaled down to this norm, that of all of them on all "
        "sides of the cuts together; it costs no message and means the same at every cut, and pair of cuts",
    ] = None
    clip_value: Annotated[
        float | None,
        Number(above=0),
        "gradients are clipped to ± this, element by element, which means the same at every cut",
    ] = None
    loss: Annotated[
        str | None,
        Text(),
        "a function of torch.nn.functional, your own as `package.module:function` of output and labels, or "
        "`model` (what a model of transformers computes itself when it is given labels); it returns the mean "
        "over the mini-batch; if not given, `model` where the model has such a loss, else `cross_entropy`",
    ] = None
    aggregator: Annotated[
        str,
        Choice(AGGREGATORS, own=True, own_is="Class"),
        "what becomes of a round's updates: `average` (FedAvg), `fedavgm`, `fedadam`; `median`, `trimmed` "
        "(mean) and `clipped` (mean), which tolerate clients that lie; or your own as "
        "`package.module:Class`",
    ] = "average"
    aggregator_options: Annotated[
        Mapping[str, Any], Table(), "what the aggregator takes, such as `{ lr = 0.1 }`"
    ] = field(default_factory=dict)
    seed: Annotated[
        int,
        _SEED,
        "from it follow all draws of a run: initial weights, partition, selection, mini-batches, dropout "
        "masks, conditions",
    ] = 0
    device: Annotated[str, Text(), "where training runs: `cpu`, `cuda`, `cuda:1` …"] = "cpu"
    deadline: Annotated[
        float | None,
        Number(above=0, unit="seconds"),
        "seconds of virtual time after which a round no longer waits",
    ] = None
    quorum: Annotated[
        int, Whole(1), "a round with updates from fewer clients fails and leaves the model as it was"
    ] = 1
    over_selection: Annotated[
        float,
        Number(0, 1e6),
        "the part of `clients_per_round` that is selected in addition; the first to finish count",
    ] = 0.0
    evaluate_every: Annotated[
        int, Whole(1), "the model is evaluated after every so many rounds, and after the last"
    ] = 1
    metrics: Annotated[
        tuple[str, ...],
        Many(Text()),
        "what the model is evaluated by besides its test loss, and its accuracy where labels are classes: "
        "`mae`, `rmse`, or your own as `package.module:function` of outputs and labels, or "
        "`package.module:Class` with `update`, `compute` and `reset`",
        Told("`[]`"),
    ] = ()
    evaluate: Annotated[
        str | None,
        Text(),
        "an evaluation of your own besides, as `package.module:function`: it gets the model of a round that "
        "is evaluated and returns numbers by name, such as `{'f1': 0.9}`, which count as metrics do",
    ] = None
    keep_best: Annotated[
        str | None,
        GoalText(),
        "the metric by which the best model is kept beside the newest: `accuracy`, `test_loss`, `mae`, "
        "`rmse`, or one of your own with its direction, as `max f1` or `min error`",
    ] = None
    patience: Annotated[
        int | None,
        Whole(1),
        "the run ends where that metric was not better in so many evaluations in a row; if not given, never",
    ] = None

    def __post_init__(self) -> None:
        where = called(self)
        self._refuse_code(where)
        check(self)
        if self.clients_per_round is not None and self.quorum > self.clients_per_round:
            raise ScenarioError(
                f"{where} quorum is {self.quorum}, but must be at most clients_per_round "
                f"({self.clients_per_round})"
            )
        if self.patience is not None and self.keep_best is None:
            raise ScenarioError(
                f"{where} patience is {self.patience}, but there is no keep_best that says which metric is "
                "waited for: give both"
            )
        if self.clip_norm is not None and self.clip_value is not None:
            raise ScenarioError(
                f"{where} clip_norm is {self.clip_norm} and clip_value is {self.clip_value}, but gradients "
                "are clipped one way or the other: leave one of them out"
            )
        if not self._rises_to() <= _LARGEST_RATE:
            raise ScenarioError(
                f"{where} gamma is {self.gamma}, but must be so small that the learning rate stays at most "
                f"{_LARGEST_RATE} in all {self.rounds} rounds"
            )

    def _refuse_code(self, where: str) -> None:
        """Loss and metrics are named here; of functions themselves, the study is told."""
        given: Any = self.metrics
        held = list(given.values()) if isinstance(given, Mapping) else given
        if callable(self.loss):
            raise ScenarioError(
                f"{where} loss is {self.loss!r}, but must be a name: give the function to Study.of(loss=...)"
            )
        if callable(self.evaluate):
            raise ScenarioError(
                f"{where} evaluate is {self.evaluate!r}, but must be a name: give the function to "
                "Study.of(evaluate=...)"
            )
        if isinstance(given, Mapping) or (isinstance(held, list | tuple) and any(map(callable, held))):
            raise ScenarioError(
                f"{where} metrics is {quote(given)}, but must be a list of names: give functions and objects "
                "to Study.of(metrics={name: function})"
            )

    def wanted(self, clients: int) -> int:
        """How many of so many clients a round waits for.

        >>> TrainSettings(clients_per_round=3).wanted(5), TrainSettings().wanted(5)
        (3, 5)
        """
        return min(self.clients_per_round or clients, clients)

    def learning_rate(self, round_: int) -> float:
        """η of a round, the same for every client and cut.

        >>> train = TrainSettings(lr=0.1, schedule="step", gamma=0.5, every=10)
        >>> [train.learning_rate(round_) for round_ in (1, 10, 11)]
        [0.1, 0.1, 0.05]
        """
        done = round_ - 1
        warm = min(1.0, round_ / (self.warmup + 1))
        left = max(0.0, 1 - done / (self.horizon or self.rounds))
        if self.schedule == "step":
            return float(warm * self.lr * self.gamma ** (done // self.every))
        if self.schedule == "exponential":
            return float(warm * self.lr * self.gamma**done)
        if self.schedule == "cosine":
            return warm * (self.final_lr + (self.lr - self.final_lr) * (1 - math.cos(math.pi * left)) / 2)
        if self.schedule == "linear":
            return warm * (self.final_lr + (self.lr - self.final_lr) * left)
        return warm * self.lr * (self._own_factor(round_) if self._own_schedule else 1.0)

    def rates(self, round_: int, steps: int) -> Callable[[int], float]:
        """The factor of η at each step of a session, counted from 0, where the schedule is by step.

        ``steps`` are those of one of the client's sessions. As transformers' schedules, a warm-up begins at
        0, and `linear` and `cosine` run down from its end to the horizon.

        >>> train = TrainSettings(rounds=2, schedule="linear", schedule_by="step", warmup=2)
        >>> [train.rates(1, 3)(step) for step in range(3)], [train.rates(2, 3)(step) for step in range(3)]
        ([0.0, 0.5, 1.0], [0.75, 0.5, 0.25])
        """
        whole_run = self.schedule_by == "step"
        done = (round_ - 1) * steps if whole_run else 0
        horizon = self.horizon or (self.rounds if whole_run else 1) * steps
        return partial(self._factor, done, horizon)

    def _factor(self, done: int, horizon: int, step: int) -> float:
        at = done + step
        if at < self.warmup:
            return at / self.warmup
        if self.schedule in ("linear", "cosine"):
            left = max(0.0, (horizon - at) / max(1, horizon - self.warmup))
            left = left if self.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2
            least = self.final_lr / self.lr
            return least + (1 - least) * left
        if self.schedule in ("step", "exponential"):
            times = at // self.every if self.schedule == "step" else at
            return float(self.gamma**times)
        return self._own_factor(at + 1) if self._own_schedule else 1.0

    @property
    def goal(self) -> Goal | None:
        """What the best model is best by."""
        return None if self.keep_best is None else Goal.parse(self.keep_best)

    @property
    def _own_schedule(self) -> bool:
        return callable(self.schedule) or ":" in self.schedule

    def _own_factor(self, round_: int) -> float:
        named = self.schedule
        function = named if callable(named) else find(named, "schedule", RunError)
        try:
            factor = float(function(round_))
        except Exception as error:  # whatever a user's function does
            raise RunError(
                f"schedule {self.schedule!r} failed at {self._unit} {round_} ({told(error)}): it takes the "
                f"{self._unit}, "
                "counted from 1, and returns the factor of lr"
            ) from error
        if not 0 <= factor * self.lr <= _LARGEST_RATE:
            raise RunError(
                f"schedule {self.schedule!r} gave {factor} for {self._unit} {round_}, but must give a factor "
                f"of lr that is 0 or more and makes it at most {_LARGEST_RATE}"
            )
        return factor

    @property
    def _unit(self) -> str:
        return "round" if self.schedule_by == "round" else "step"

    def _rises_to(self) -> float:
        """What the learning rate stays below: of its start and, where it grows by a factor, its end."""
        if self.schedule_by != "round" and self.gamma > 1 and self.schedule in ("step", "exponential"):
            return math.inf  # how many steps there are is not known here
        if self._own_schedule:
            return self.lr  # a user's code is not run before it is needed
        try:
            return max(self.lr, self.final_lr, self.learning_rate(self.rounds))
        except OverflowError:
            return math.inf

    def optimizer_arguments(self) -> dict[str, Any]:
        """What the optimizer is made with, besides parameters and learning rate."""
        named = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        return {name: value for name, value in named.items() if value} | dict(self.optimizer_options)


@described("[conditions]", ScenarioError)
@dataclass(frozen=True, kw_only=True)
class ConditionSettings:
    """``[conditions]``: how true compute and rates depart from what the scenario says of a client."""

    change: Annotated[
        str,
        Choice(CHANGES),
        "`constant`, `jitter` (log-normal, each round anew), `markov` (good and bad spells) or `trace` "
        "(from a file)",
    ] = "constant"
    compute_jitter: Annotated[
        float,
        Number(0, 10),
        "`jitter`: standard deviation of the logarithm of compute; the median is the scenario's value",
    ] = 0.2
    rate_jitter: Annotated[float, Number(0, 10), "`jitter`: the same for the rates, up and down together"] = (
        0.2
    )
    degrade: Annotated[
        float, Number(0, 1), "`markov`: probability that a good round is followed by a bad one"
    ] = 0.1
    recover: Annotated[
        float, Number(0, 1), "`markov`: probability that a bad round is followed by a good one"
    ] = 0.5
    slow_compute: Annotated[float, Number(1e-6, 1), "`markov`: what is left of compute in a bad round"] = 0.5
    slow_rate: Annotated[
        float,
        Number(1e-6, 1),
        "`markov`: what is left of the rates in a bad round; devices and links have spells of their own",
    ] = 0.25
    trace: Annotated[
        str | None,
        Text(empty=True, file=True),
        "`trace`: a CSV file with columns round, client, compute, rate (or up and down), with units; a row "
        "holds until the client's next",
    ] = None
    dropout: Annotated[
        float,
        Number(0, below=1),
        "probability that a selected client is lost in a round, at a random point of its session",
    ] = 0.0
    estimate: Annotated[
        str,
        Choice(ESTIMATES),
        "what the planner believes: `nominal` (the scenario), `last` (as last seen), `average` (a robust "
        "average of what was seen) or `true` (an oracle, for comparison)",
    ] = "nominal"
    smoothing: Annotated[
        float,
        Number(above=0, most=1),
        "`average`: the weight of the newest round, from a client's third on; at first, the scenario and "
        "two rounds have a vote each and the middle one counts",
    ] = 0.3

    def __post_init__(self) -> None:
        check(self)
        if (self.change == "trace") != (self.trace is not None):
            raise ScenarioError(
                f"{called(self)} change is {self.change!r} and trace is {self.trace!r}, but change 'trace' "
                "and a trace file go together: give both or neither"
            )
