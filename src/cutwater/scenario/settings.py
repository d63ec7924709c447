"""What a scenario says about data, training and conditions, as frozen values. Needs no torch.

Each class is one section of the scenario file: ``from_table`` reads it, construction checks it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutwater.base.errors import RunError, ScenarioError
from cutwater.base.usercode import find, told
from cutwater.data.download import Say, quiet
from cutwater.data.partition import Partition
from cutwater.data.samples import Data
from cutwater.data.share_out import METHODS, partition
from cutwater.data.sources import MNIST_MIRRORS, SOURCES, load
from cutwater.scenario import tables

SCHEDULES = ("constant", "step", "exponential", "cosine", "linear")
CHANGES = ("constant", "jitter", "markov", "trace")
ESTIMATES = ("nominal", "last", "average", "true")

_REFUSED = ("clip_norm", "grad_clip", "max_grad_norm", "clip_grad_norm")
"""What people call clipping by the global norm."""
_LARGEST_RATE = 1e30
"""No learning rate is larger: 32-bit weights end at 3e38."""
_SEEDS = 2**63
_SEED = "a whole number between -2**63 and 2**63"
"""What torch takes as a seed."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """``[data]``: which samples there are and who holds them."""

    source: str = "digits"
    """Name of a source (digits, mnist, fashion-mnist, cifar10) or ``package.module:function``."""
    partition: str = "paper"
    """How samples are shared out: paper, iid, dirichlet or shards."""
    folder: str | None = None
    """Where the source's files are, after ``CUTWATER_DATA`` and before the user's cache."""
    mirrors: tuple[str, ...] = MNIST_MIRRORS
    """Where MNIST is downloaded from if it is nowhere; an empty list forbids downloads."""
    scale: bool = False
    """Shrink the clients' samples in proportion where they add up to more than the source has."""
    local_test: float | None = None
    """The part of its samples that a client keeps for tests; a quarter for ``paper``, else none."""
    alpha: float = 0.5
    """Concentration of ``dirichlet``: the smaller, the fewer classes a client sees."""
    shards: int = 2
    """Runs of samples that a client gets from ``shards``."""
    seed: int | None = None
    """Seed of the partition; that of ``[train]`` if not given."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the user's own function."""

    def __post_init__(self) -> None:
        tables.check_types(self, "[data]")
        tables.check_name("[data]", "source", self.source, SOURCES, own=True)
        tables.check_name("[data]", "partition", self.partition, METHODS)
        kept = self.local_test
        self._check(kept is None or 0 <= kept < 1, "local_test", "at least 0 and below 1")
        self._check(0 < self.alpha <= 1e9, "alpha", "a number above 0 and at most 1e9")
        self._check(self.shards >= 1, "shards", "a whole number of at least 1")
        self._check(self.seed is None or abs(self.seed) < _SEEDS, "seed", _SEED)

    def _check(self, good: bool, name: str, allowed: str) -> None:
        tables.check(good, "[data]", name, getattr(self, name), allowed)

    @classmethod
    def from_table(cls, table: object) -> "DataSettings":
        """The settings of a ``[data]`` section."""
        return tables.from_table(cls, table, "[data]")

    def load(self, say: Say = quiet) -> Data:
        """The source's samples; ``say`` is told what takes long."""
        return load(self.source, folder=self.folder, mirrors=self.mirrors, options=self.options, say=say)

    def share_out(
        self, data: Data, clients: Sequence[str], samples: Sequence[int] | None, seed: int
    ) -> Partition:
        """Who holds which training samples; ``samples`` are the clients' |D_k| where the scenario has them.

        ``seed`` is that of the run, for where ``[data]`` has none of its own.
        """
        return partition(
            len(data.train),
            data.train.labels,
            clients,
            method=self.partition,
            samples=samples,
            scale=self.scale,
            local_test=self.local_test,
            alpha=self.alpha,
            shards=self.shards,
            seed=seed if self.seed is None else self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """``[train]``: how long, with what, and with whom. Rounds are counted from 1."""

    rounds: int = 60
    """Rounds of global training."""
    clients_per_round: int | None = None
    """How many clients a round aggregates; all if not given."""
    optimizer: str = "sgd"
    """An optimizer of torch.optim by name, or your own as ``package.module:Class``; each session starts it
    afresh, on both sides of the cut."""
    lr: float = 0.05
    """η: the learning rate that the schedule starts from."""
    momentum: float = 0.0
    """Momentum of SGD (and of what else of torch.optim takes it)."""
    weight_decay: float = 0.0
    """Weight decay, as the optimizer defines it."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """What else the optimizer takes, such as ``betas`` or ``nesterov``."""
    schedule: str = "constant"
    """How the learning rate changes by round: constant, step, exponential, cosine, linear, or your own
    function of the round as ``package.module:function``, which returns the factor of ``lr``."""
    gamma: float = 0.1
    """The factor of ``step`` and ``exponential``."""
    every: int = 20
    """``step`` applies its factor after this many rounds."""
    final_lr: float = 0.0
    """Where ``cosine`` and ``linear`` end."""
    horizon: int | None = None
    """Rounds over which ``cosine`` and ``linear`` run down; ``rounds`` if not given."""
    warmup: int = 0
    """Rounds over which the learning rate rises to its full value first."""
    clip_value: float | None = None
    """Gradients are clipped to ± this, element by element, which means the same at every cut."""
    loss: str = "cross_entropy"
    """A function of torch.nn.functional by name, or ``package.module:function``."""
    aggregator: str = "average"
    """What becomes of a round's updates: average (FedAvg), fedavgm, fedadam, or your own as
    ``package.module:Class``."""
    aggregator_options: Mapping[str, Any] = field(default_factory=dict)
    """What the aggregator takes, such as ``lr`` and ``momentum``."""
    seed: int = 0
    """From it follow all draws of a run: initial weights, partition, selection, mini-batches, conditions."""
    device: str = "cpu"
    """Where training runs: cpu, cuda, cuda:1 …"""
    deadline: float | None = None
    """Seconds after which a round no longer waits for a client; none if not given."""
    quorum: int = 1
    """A round with updates from fewer clients than this fails and leaves the model as it was."""
    over_selection: float = 0.0
    """The part of ``clients_per_round`` that is selected in addition; the first to finish count."""
    evaluate_every: int = 1
    """The test set is evaluated after every so many rounds, and after the last."""

    def __post_init__(self) -> None:
        tables.check_types(self, "[train]")
        tables.check_name("[train]", "schedule", self.schedule, SCHEDULES, own=True)
        for name in ("rounds", "every", "quorum", "evaluate_every"):
            self._check(getattr(self, name) >= 1, name, "a whole number of at least 1")
        for name in ("clients_per_round", "horizon"):
            value = getattr(self, name)
            self._check(value is None or value >= 1, name, "a whole number of at least 1")
        self._check(0 < self.gamma < math.inf, "gamma", "a number above 0")
        self._check(0 < self.lr <= _LARGEST_RATE, "lr", f"a number above 0 and at most {_LARGEST_RATE}")
        for name in ("momentum", "weight_decay", "warmup"):
            self._check(0 <= getattr(self, name) < math.inf, name, "0 or more")
        for name, most in (("final_lr", _LARGEST_RATE), ("over_selection", 1e6)):
            self._check(0 <= getattr(self, name) <= most, name, f"0 or more and at most {most}")
        self._check(abs(self.seed) < _SEEDS, "seed", _SEED)
        for name in ("clip_value", "deadline"):
            value = getattr(self, name)
            self._check(value is None or 0 < value < math.inf, name, "a number above 0")
        if self.clients_per_round is not None and self.quorum > self.clients_per_round:
            self._check(False, "quorum", f"at most clients_per_round ({self.clients_per_round})")
        self._check(
            self._rises_to() <= _LARGEST_RATE,
            "gamma",
            f"so small that the learning rate stays at most {_LARGEST_RATE} in all {self.rounds} rounds",
        )

    def _check(self, good: bool, name: str, allowed: str) -> None:
        tables.check(good, "[train]", name, getattr(self, name), allowed)

    @classmethod
    def from_table(cls, table: object) -> "TrainSettings":
        """The settings of a ``[train]`` section."""
        refused = [name for name in _REFUSED if isinstance(table, Mapping) and name in table]
        if refused:
            raise ScenarioError(
                f"[train] {refused[0]} can't be used: clipping by the global norm needs the gradients of "
                "both sides of the cut at once; use clip_value, which clips element by element"
            )
        return tables.from_table(cls, table, "[train]")

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
        return warm * self.lr * (self._own_factor(round_) if ":" in self.schedule else 1.0)

    def _own_factor(self, round_: int) -> float:
        function = find(self.schedule, "schedule", RunError)
        try:
            factor = float(function(round_))
        except Exception as error:  # whatever a user's function does
            raise RunError(
                f"schedule {self.schedule!r} failed at round {round_} ({told(error)}): it takes the round, "
                "counted from 1, and returns the factor of lr"
            ) from error
        if not 0 <= factor * self.lr <= _LARGEST_RATE:
            raise RunError(
                f"schedule {self.schedule!r} gave {factor} for round {round_}, but must give a factor of lr "
                f"that is 0 or more and makes it at most {_LARGEST_RATE}"
            )
        return factor

    def _rises_to(self) -> float:
        """What the learning rate stays below: of its start and, where it grows by a factor, its end."""
        if ":" in self.schedule:
            return self.lr  # a user's code is not run before it is needed
        try:
            return max(self.lr, self.final_lr, self.learning_rate(self.rounds))
        except OverflowError:
            return math.inf

    def optimizer_arguments(self) -> dict[str, Any]:
        """What the optimizer is made with, besides parameters and learning rate."""
        named = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        return {name: value for name, value in named.items() if value} | dict(self.optimizer_options)


@dataclass(frozen=True, kw_only=True)
class ConditionSettings:
    """``[conditions]``: how true compute and rates depart from what the scenario says of a client."""

    change: str = "constant"
    """constant, jitter (log-normal, each round anew), markov (good and bad spells) or trace (from a file)."""
    compute_jitter: float = 0.2
    """``jitter``: standard deviation of the logarithm of compute; the median is the scenario's value."""
    rate_jitter: float = 0.2
    """``jitter``: the same for the rates, up and down together."""
    degrade: float = 0.1
    """``markov``: probability that a good round is followed by a bad one."""
    recover: float = 0.5
    """``markov``: probability that a bad round is followed by a good one."""
    slow_compute: float = 0.5
    """``markov``: what is left of compute in a bad round."""
    slow_rate: float = 0.25
    """``markov``: what is left of the rates in a bad round; links and devices have spells of their own."""
    trace: str | None = None
    """``trace``: a CSV file with columns round, client, compute, rate (or up and down)."""
    dropout: float = 0.0
    """Probability that a selected client is lost in a round, at a random point of its session."""
    estimate: str = "nominal"
    """What the planner believes: nominal (the scenario), last (as last seen), average (a robust average of
    what was seen) or true (an oracle, for comparison)."""
    smoothing: float = 0.3
    """``average``: the weight of the newest round."""

    def __post_init__(self) -> None:
        tables.check_types(self, "[conditions]")
        tables.check_name("[conditions]", "change", self.change, CHANGES)
        tables.check_name("[conditions]", "estimate", self.estimate, ESTIMATES)
        for name in ("compute_jitter", "rate_jitter"):
            self._check(0 <= getattr(self, name) <= 10, name, "0 or more and at most 10")
        for name in ("degrade", "recover"):
            self._check(0 <= getattr(self, name) <= 1, name, "a probability between 0 and 1")
        for name in ("slow_compute", "slow_rate"):
            self._check(1e-6 <= getattr(self, name) <= 1, name, "at least 1e-6 and at most 1")
        self._check(0 < self.smoothing <= 1, "smoothing", "above 0 and at most 1")
        self._check(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")
        if (self.change == "trace") != (self.trace is not None):
            raise ScenarioError(
                f"[conditions] change is {self.change!r} and trace is {self.trace!r}, but change 'trace' "
                "and a trace file go together: give both or neither"
            )

    def _check(self, good: bool, name: str, allowed: str) -> None:
        tables.check(good, "[conditions]", name, getattr(self, name), allowed)

    @classmethod
    def from_table(cls, table: object) -> "ConditionSettings":
        """The settings of a ``[conditions]`` section."""
        return tables.from_table(cls, table, "[conditions]")
