"""What planners, partitions, aggregators, codecs and executors of one's own are written with.

docs/extending.md shows how.

``register(name, planner)`` adds a planner, which ``assemble``s its plan; an :class:`Aggregator` goes into
``Study.of(aggregator=...)`` or is named in [train]; a :class:`Codec` tells its :class:`Size` and is named in
[wire], or in ``Study.of(wires=Wires(...))``; ``train(study, executor, start(study))`` plays all rounds
of a study with an :class:`Executor` of one's own, of which ``examples/own_executor.py`` is one.
"""

from typing import TYPE_CHECKING

from cutwater.base.lazy import by_name, offered

if TYPE_CHECKING:  # what type checkers and editors see
    from cutwater.base.errors import CodecError as CodecError
    from cutwater.codec.value import Codec as Codec, Size as Size
    from cutwater.data.partition import Partition as Partition
    from cutwater.execute.local import LocalTrainer as LocalTrainer
    from cutwater.federate.aggregators import (
        Aggregator as Aggregator,
        Collection as Collection,
    )
    from cutwater.federate.clock import VirtualClock as VirtualClock
    from cutwater.federate.conditions import Condition as Condition
    from cutwater.federate.executor import (
        Arrival as Arrival,
        Executor as Executor,
        Lost as Lost,
        Orders as Orders,
        Trainer as Trainer,
        Update as Update,
    )
    from cutwater.federate.loop import (
        Progress as Progress,
        rounds as rounds,
        start as start,
        train as train,
    )
    from cutwater.federate.record import Record as Record
    from cutwater.federate.verify import verify as verify
    from cutwater.model.traffic import Traffic as Traffic
    from cutwater.plan.latency import (
        NOTHING as NOTHING,
        Phases as Phases,
        latency as latency,
        server_work as server_work,
    )
    from cutwater.plan.planners import register as register
    from cutwater.plan.session import Wires as Wires
    from cutwater.plan.value import assemble as assemble
    from cutwater.runs.checkpoint import load_newest as load_newest
    from cutwater.train.expected import BadUpdate as BadUpdate
    from cutwater.train.scores import Score as Score
    from cutwater.train.session import Result as Result, Task as Task

_HOME = by_name(
    {
        "cutwater.base.errors": ("CodecError",),
        "cutwater.codec.value": ("Codec", "Size"),
        "cutwater.data.partition": ("Partition",),
        "cutwater.execute.local": ("LocalTrainer",),
        "cutwater.federate.aggregators": ("Aggregator", "Collection"),
        "cutwater.federate.clock": ("VirtualClock",),
        "cutwater.federate.conditions": ("Condition",),
        "cutwater.federate.executor": ("Arrival", "Executor", "Lost", "Orders", "Trainer", "Update"),
        "cutwater.federate.loop": ("Progress", "rounds", "start", "train"),
        "cutwater.federate.record": ("Record",),
        "cutwater.federate.verify": ("verify",),
        "cutwater.model.traffic": ("Traffic",),
        "cutwater.plan.latency": ("NOTHING", "Phases", "latency", "server_work"),
        "cutwater.plan.planners": ("register",),
        "cutwater.plan.session": ("Wires",),
        "cutwater.plan.value": ("assemble",),
        "cutwater.runs.checkpoint": ("load_newest",),
        "cutwater.train.expected": ("BadUpdate",),
        "cutwater.train.scores": ("Score",),
        "cutwater.train.session": ("Result", "Task"),
    }
)

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place
__getattr__, __dir__ = offered(__name__, _HOME)
