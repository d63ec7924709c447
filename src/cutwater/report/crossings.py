"""How sessions crossed their cuts, for a report: schedules, codecs, and that a run is lossy where it is."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cutwater.base.text import shown
from cutwater.codec.registry import any_lossy, in_words, lossy, wire_in_words
from cutwater.federate.record import ClientRound, KeptRound
from cutwater.plan.session import Wire


@dataclass(frozen=True)
class Crossings:
    """The wires of a run's split sessions, the most frequent first."""

    counts: dict[Wire, int]

    @classmethod
    def of(cls, rounds: Iterable[KeptRound]) -> "Crossings":
        """Those of all sessions that were split."""
        wires = (wire_of(client) for each in rounds for client in each.clients)
        return cls(dict(Counter(wire for wire in wires if wire is not None).most_common()))

    @property
    def texts(self) -> list[str]:
        """Each wire in words."""
        return [shown(wire_in_words(wire.schedule, wire.up, wire.down)) for wire in self.counts]

    def place(self, client: ClientRound) -> int | None:
        """Which of them a client went by; None where it had the whole model."""
        wire = wire_of(client)
        return None if wire is None else list(self.counts).index(wire)

    @property
    def sentence(self) -> str | None:
        """How sessions crossed their cuts; None where none did."""
        counts = list(self.counts.values())
        if not counts:
            return None
        told = (
            self.texts
            if len(counts) == 1
            else [f"{t} ({n})" for t, n in zip(self.texts, counts, strict=True)]
        )
        return f"{sum(counts)} split sessions crossed the cut: {', '.join(told)}."

    @property
    def lossy(self) -> str | None:
        """That a run is lossy, in plain words; None where what arrived is what was sent."""
        wires = [wire for wire in self.counts if any_lossy(wire.up, wire.down)]
        if not wires:
            return None
        ways = (("smashed data", {wire.up for wire in wires}), ("gradients", {wire.down for wire in wires}))
        changed = {what: sorted(name for name in names if lossy(name) is not False) for what, names in ways}
        told = " and ".join(
            f"{what} crossed the cut as {', '.join(map(in_words, names))}"
            for what, names in changed.items()
            if names
        )
        certain = any(lossy(name) for names in changed.values() for name in names)
        return shown(
            f"This run {'is' if certain else 'may be'} lossy: {told}, so that numbers arrived "
            "changed and what was learned differs from training without codecs."
        )


def wire_of(client: ClientRound) -> Wire | None:
    """How a session crossed its cut; None where it had the whole model."""
    return None if client.mode == "fedavg" else Wire(client.schedule, client.up, client.down)
