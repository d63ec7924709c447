"""The true compute and rates of a round.

The virtual clock works on them, the planner on estimates (:mod:`cutwater.federate.estimates`). They are a
pure function of (settings, seed, client, round), so that nothing has to be saved to resume a run.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from cutwater.base.errors import CutwaterError, FileFormatError
from cutwater.base.seeded import stream
from cutwater.base.textfile import reading
from cutwater.base.units import parse_compute, parse_rate
from cutwater.plan.fleet import Client
from cutwater.scenario.settings import ConditionSettings

_BLOCK = 64
"""Rounds whose coins come from one stream."""


@dataclass(frozen=True)
class Condition:
    """What a client can do in one round, as it is or as it is believed to be."""

    compute: float
    """f^C in FLOPS."""
    up: float
    """r to the server, in bits per second."""
    down: float
    """r from the server."""
    rtt: float = 0.0
    """The link's round trip, in seconds."""

    @classmethod
    def of(cls, client: Client) -> "Condition":
        """What the scenario says."""
        return cls(client.compute, client.up, client.down, client.rtt)

    def scaled(self, compute: float, rate: float) -> "Condition":
        """The same with compute and rates multiplied."""
        return replace(self, compute=self.compute * compute, up=self.up * rate, down=self.down * rate)


@dataclass(frozen=True)
class Trace:
    """Conditions by client and round, from a file. A row holds until the client's next; before its first
    row, and for a client without any, the scenario's own values hold. The round trip is the scenario's."""

    rows: Mapping[str, tuple[tuple[int, Condition], ...]]

    def at(self, client: Client, round_: int) -> Condition:
        """What the trace says of a client in a round."""
        found = Condition.of(client)
        for since, condition in self.rows.get(client.name, ()):
            if since > round_:
                break
            found = replace(condition, rtt=client.rtt)
        return found


@dataclass(frozen=True)
class Conditions:
    """The true conditions of every client in every round."""

    settings: ConditionSettings
    seed: int
    trace: Trace | None = None

    @classmethod
    def of(cls, settings: ConditionSettings, seed: int) -> "Conditions":
        """Conditions by settings; reads the trace file if there is one."""
        return cls(settings, seed, read_trace(settings.trace) if settings.trace is not None else None)

    def true(self, client: Client, round_: int) -> Condition:
        """What a client can really do in a round."""
        said = Condition.of(client)
        settings, name = self.settings, client.name
        if settings.change == "jitter":
            return said.scaled(
                self._jitter("compute", name, round_, settings.compute_jitter),
                self._jitter("rate", name, round_, settings.rate_jitter),
            )
        if settings.change == "markov":
            return said.scaled(
                settings.slow_compute if self.in_bad_spell("compute", name, round_) else 1.0,
                settings.slow_rate if self.in_bad_spell("rate", name, round_) else 1.0,
            )
        if self.trace is not None:
            return self.trace.at(client, round_)
        return said

    def lost_at(self, client: str, round_: int) -> float | None:
        """The part of its session after which a client drops out of a round, or None if it stays."""
        if self.settings.dropout == 0:
            return None
        draw = stream(self.seed, "dropout", client, round_)
        dropped, point = draw.random_sample(2)
        return float(point) if dropped < self.settings.dropout else None

    def in_bad_spell(self, what: str, client: str, round_: int) -> bool:
        """The state of a two-state Markov chain in a round, found without its past.

        With p = ``degrade`` and q = ``recover``, a step of the chain is a coin: with probability p + q it
        forgets its state and draws a new one, bad with probability p / (p + q); otherwise it keeps it. (If
        p + q > 1, it forgets with probability 2 - p - q and otherwise flips.) So the state of a round follows
        from the last step that forgot, a few rounds back.
        """
        p, q = self.settings.degrade, self.settings.recover
        flips = p + q > 1
        forgets, bad = (2 - p - q, 1 - q) if flips else (p + q, p)
        for block in range(round_ // _BLOCK, -1, -1):
            # Coins are drawn many at a time, because making a stream costs more than drawing from it.
            draws = stream(self.seed, "spell", what, client, block).random_sample((_BLOCK, 2))
            rounds = range(min(round_, (block + 1) * _BLOCK - 1), max(block * _BLOCK, 1) - 1, -1)
            for at in rounds:
                coin, state = draws[at % _BLOCK]
                flipped = flips and (round_ - at) % 2 == 1
                if at == 1:
                    # The first round is drawn from the long-run share of bad rounds.
                    return bool(state * (p + q) < p) != flipped
                if coin < forgets:
                    return bool(state * forgets < bad) != flipped
        raise AssertionError(f"rounds are counted from 1, not {round_}")

    def _jitter(self, what: str, client: str, round_: int, sigma: float) -> float:
        # The inverse distribution function needs one draw and no method that a NumPy release could change.
        uniform = stream(self.seed, "jitter", what, client, round_).random_sample()
        return math.exp(sigma * NormalDist().inv_cdf(min(max(uniform, 1e-12), 1 - 1e-12)))


def read_trace(path: str | Path) -> Trace:
    """A trace from CSV: columns round, client, compute and rate (or up and down), with units."""
    with reading(path, "CSV"), Path(path).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True, strict=True)
        _check_columns(reader.fieldnames or [], path)
        rows: dict[str, dict[int, Condition]] = {}
        for row in reader:
            _add_row(rows, row, f"{path}, line {reader.line_num}")
    return Trace({client: tuple(sorted(by.items(), key=lambda item: item[0])) for client, by in rows.items()})


def check_trace(path: str | None, clients: Iterable[str]) -> None:
    """Refuse a trace, if there is one, that can't be read or speaks of a client which is not there."""
    if path is None:
        return
    known = set(clients)
    for client in read_trace(path).rows:
        if client not in known:
            raise FileFormatError(
                f"{path} has rows of client {client!r}, but there is no client of that name; use the names "
                f"that there are, such as {min(known)!r}"
            )


def _check_columns(columns: Any, path: str | Path) -> None:
    for allowed in (["round", "client", "compute", "rate"], ["round", "client", "compute", "up", "down"]):
        if sorted(columns) == sorted(allowed):
            return
    raise FileFormatError(
        f"{path} has columns {', '.join(columns) or 'none'}, but a trace has round, client, compute and rate "
        "(or up and down)"
    )


def _add_row(rows: dict[str, dict[int, Condition]], row: Mapping[str | None, Any], where: str) -> None:
    if None in row:  # where csv.DictReader puts what is beyond the last column
        raise FileFormatError(f"{where} has more cells than there are columns; remove {row[None]!r}")
    try:
        round_ = int(row["round"])
        if "rate" in row:
            up = down = parse_rate(row["rate"])
        else:
            up, down = parse_rate(row["up"], "up"), parse_rate(row["down"], "down")
        condition = Condition(parse_compute(row["compute"]), up, down)
    except (ValueError, TypeError, CutwaterError) as error:
        raise FileFormatError(f"{where}: {error}") from error
    if round_ < 1:
        raise FileFormatError(f"{where}: round is {round_}, but rounds are counted from 1")
    if round_ in rows.setdefault(row["client"], {}):
        raise FileFormatError(f"{where}: client {row['client']!r} has round {round_} twice")
    rows[row["client"]][round_] = condition
