"""What a device says it took, held against the server's own clock.

The next rounds are planned on these seconds, and everybody's share depends on everybody's. So what the
server can time, it times: its own work on a session, how long the session was open, a part's way from its
first frame to its last, and how long a device that trains the whole model kept it. A device divides the rest
between its compute and its link, and that is all it can say: the sum is the server's.
"""

from dataclasses import replace
from typing import NamedTuple

from cutwater.base.errors import EngineError
from cutwater.flower import wire
from cutwater.plan.latency import PHASES, Phases
from cutwater.serve.hosting import Trained
from cutwater.train.session import Task

_WATCHES = 1.1
"""How much faster than ours a node's clock may go."""
_OF_MODEL = ("model_download", "model_upload")
_OWN = ("client_forward", "client_backward", "smashed_upload", "gradient_download", "round_trips")
"""What a device and its link take in a split session."""
_COMPUTED = ("client_forward", "client_backward")
_UNTOLD = 1.5
_SETTING_UP = 1.0
"""A device need not book all of a session: a part of it, and seconds for its connection, are nobody's."""


def check_seconds(report: wire.Report, task: Task, wall: float) -> None:
    """Refuse seconds that were not there, and work that took none."""
    of_model = sum(report.seconds[name] for name in _OF_MODEL)
    of_steps = [report.seconds[name] for name in PHASES if name not in _OF_MODEL]
    # Parts that overlap are worked on, sent and received at the same time, but each for no longer than all.
    at_once = task.schedule == "overlapped"
    took = of_model + (max(*of_steps, report.seconds["steps"]) if at_once else sum(of_steps))
    if took > _WATCHES * wall:
        raise EngineError(f"it reports {took:.3g} s of work, but its reply came after {wall:.3g} s")
    if report.steps and not report.seconds["client_forward"] + report.seconds["client_backward"] > 0:
        raise EngineError(
            f"it reports 0 s for the {report.steps} steps that it computed: no clock says that, so that its "
            "update does not count"
        )


class AtDevice(NamedTuple):
    """Seconds that a whole model was at a device, by the server's clock."""

    least: float
    most: float


def bounded(took: Phases[float], trained: Trained, *, overlapped: bool) -> Phases[float]:
    """What a split session took: the server's part by its own clock, the device's within what is left.

    Where parts overlap, somebody works at every moment and several may, so that the device's phases come to
    at least what is left; each is bounded by the whole session, and so is what they took together.
    """
    mine = trained.clock
    if mine.session <= 0:  # the session was not timed: nothing to hold the claim against
        return took
    took = replace(
        took,
        smashed_upload=max(took.smashed_upload, min(mine.up, mine.session)),
    )
    away = max(mine.session - mine.server, 0.0)
    if not overlapped:
        return _scaled(took, _OWN, AtDevice(away, away))
    took = _scaled(took, _OWN, AtDevice(away, len(_OWN) * mine.session))
    most = _WATCHES * mine.session
    took = replace(took, **{name: min(getattr(took, name), most) for name in _OWN})
    of_steps = sum(getattr(took, name) for name in PHASES if name not in _OF_MODEL)
    together = min(max(of_steps - took.overlap, _least(mine.session)), most)
    return replace(took, overlap=max(of_steps - together, 0.0))


def bounded_whole(took: Phases[float], at_device: AtDevice, *, emulated: bool) -> Phases[float]:
    """What a device that trains the whole model took; it emulates the model's transfers, too, if it does."""
    return _scaled(took, (*_COMPUTED, *_OF_MODEL) if emulated else _COMPUTED, at_device)


def _scaled(took: Phases[float], names: tuple[str, ...], at_device: AtDevice) -> Phases[float]:
    """The phases of these names in the same proportions, within what they can have taken together."""
    claimed = sum(getattr(took, name) for name in names)
    if not (claimed > 0 and at_device.most > 0):
        return took
    within = min(max(claimed, _least(at_device.least)), _WATCHES * at_device.most)
    if within == claimed:
        return took
    return replace(took, **{name: getattr(took, name) / claimed * within for name in names})


def _least(seconds: float) -> float:
    return max(seconds / _UNTOLD - _SETTING_UP, 0.0)
