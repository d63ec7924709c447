"""What the scores of a round say: of the test set, of clients' own tests, and whether it is the best yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cutwater.base.errors import EngineError
from cutwater.data.test_batches import TEST_SET
from cutwater.federate.record import Best, Spread
from cutwater.federate.study import Study
from cutwater.scenario.goal import Goal
from cutwater.train.metrics import check_told
from cutwater.train.scores import Score, Scored
from cutwater.train.session import State


@dataclass(frozen=True)
class Tested:
    """The global model after a round, where it was evaluated."""

    whole: Scored | None = None
    """On the test set, where there is one."""
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    """On what each client holds back: each score over the clients, by name."""
    own: Mapping[str, float] | None = None
    """What an evaluation of the user's own says, where there is one."""

    @property
    def values(self) -> dict[str, float]:
        """All that is said of the model as a whole, by name."""
        return {**(self.whole.values if self.whole else {}), **(self.own or {})}

    @property
    def metrics(self) -> dict[str, float]:
        """The same without what is built in."""
        return {**(self.whole.metrics if self.whole else {}), **(self.own or {})}

    @classmethod
    def of(cls, study: Study, scores: Sequence[Score], own: Mapping[str, float] | None = None) -> "Tested":
        """From the scores of all mini-batches of ``study.test()``, in order; nothing of no scores."""
        if not scores:
            return cls(own=own)
        owners = study.test().owners
        if len(owners) != len(scores):
            raise EngineError(
                f"the executor gave {len(scores)} scores, but must give one for each of the {len(owners)} "
                "mini-batches of study.test(), in their order"
            )
        pairs = groupby(zip(owners, scores, strict=True), key=lambda pair: pair[0])
        found = {owner: Scored.of([one for _, one in some], study.metrics) for owner, some in pairs}
        whole = found.pop(TEST_SET, None)
        return cls(whole, _spreads([each for each in found.values() if each is not None]), own)


def check_evaluation(study: Study, weights: State) -> None:
    """Try an evaluation of the user's own before the first round, and what models are kept by with it."""
    own = study.own_scores(weights)
    if own is None:
        return
    known = [metric.name for metric in study.metrics]
    built_in = [] if study.data.test is None else ["test_loss", "accuracy"]
    check_told(study.train, [*built_in, *(known if built_in else ()), *own])


def _spreads(clients: Sequence[Scored]) -> dict[str, Spread]:
    names = dict.fromkeys(name for each in clients for name in each.values)
    return {name: Spread.of([each.values[name] for each in clients if name in each.values]) for name in names}


def best_so_far(goal: Goal | None, before: Best | None, number: int, scored: Tested) -> Best | None:
    """The best model after a round; one that was not evaluated changes nothing."""
    if goal is None or (scored.whole is None and scored.own is None):
        return before
    value = scored.values.get(goal.metric)
    if value is not None and goal.improves(value, before.value if before else None):
        return Best(metric=goal.metric, better=goal.better, round=number, value=value)
    return before and replace(before, waited=before.waited + 1)


def out_of_patience(study: Study, best: Best | None) -> str | None:
    """Why training ends although there are rounds left; None where it goes on."""
    patience = study.train.patience
    if patience is None or best is None or best.waited < patience:
        return None
    return (
        f"stopped early: {best.metric} was not better than in round {best.round} ({best.value:.4g}) in "
        f"{best.waited} evaluations in a row"
    )
