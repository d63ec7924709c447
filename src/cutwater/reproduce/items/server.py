"""Fig. 11: what more compute at the server is worth."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cutwater.plan.knee import knee
from cutwater.plan.planners import solve
from cutwater.plan.problem import Server
from cutwater.report.figures import PLANNER_COLOURS
from cutwater.reproduce.item import Claim, Context, Expected, Item
from cutwater.reproduce.paper_setup import TEN_ARE, ten
from cutwater.reproduce.sheet import INK, QUIET, note, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_KNEE = 2000.0
FAST = 5.0
"""Gain a GFLOPS is 'rapid' before the knee if it is so many times what it is after."""


@dataclass(frozen=True)
class Settings:
    """F^max in GFLOPS, from the paper's smallest to its largest."""

    low: float = 100.0
    high: float = 9000.0
    step: float = 100.0


@dataclass(frozen=True)
class Sweep:
    """Round latency by server compute."""

    compute: tuple[float, ...]
    """F^max in GFLOPS."""
    exact: tuple[float, ...]
    alternating: tuple[float, ...]
    sharing: tuple[int, ...]
    """Clients with a share at the optimum."""
    fedavg: float
    knee: float
    """GFLOPS of the smallest server that saves 90 % of what any server could."""
    floor: float
    """Seconds of a round that no server can go below."""

    def at(self, compute: float) -> float:
        """The optimum at some F^max."""
        return float(np.interp(compute, self.compute, self.exact))

    @property
    def before(self) -> float:
        """Seconds saved by each 100 GFLOPS up to the paper's knee."""
        return (self.exact[0] - self.at(PAPER_KNEE)) / (PAPER_KNEE - self.compute[0]) * 100

    @property
    def after(self) -> float:
        """Seconds saved by each 100 GFLOPS beyond it."""
        return (self.at(PAPER_KNEE) - self.exact[-1]) / (self.compute[-1] - PAPER_KNEE) * 100

    @property
    def idle_below(self) -> float:
        """Up to here Algorithm 1 gains nothing over FedAvg, in GFLOPS; 0 if it always gains."""
        stuck = [
            c for c, seconds in zip(self.compute, self.alternating, strict=True) if seconds >= self.fedavg
        ]
        return max(stuck, default=0.0)


def run(settings: Settings, context: Context) -> Sweep:
    """Plan the ten clients for every server."""
    compute = np.arange(settings.low, settings.high + settings.step / 2, settings.step)
    exact, alternating, sharing = [], [], []
    for done, gflops in enumerate(compute, start=1):
        problem = ten(Server(float(gflops) * 1e9))
        best = solve(problem, leftover="none")
        exact.append(best.latency)
        sharing.append(best.sharing)
        alternating.append(solve(problem, "alternating").latency)
        context.watch(done, len(compute))
    found = knee(ten(), settings.low * 1e9, settings.high * 1e9)
    return Sweep(
        compute=tuple(compute.tolist()),
        exact=tuple(exact),
        alternating=tuple(alternating),
        sharing=tuple(sharing),
        fedavg=solve(ten(), "fedavg").latency,
        knee=found.compute / 1e9 if found else settings.high,
        floor=found.floor if found else exact[-1],
    )


def draw(values: Sweep) -> "Figure":
    """Two planners over the server's compute."""
    figure, (axes,) = panels(2.5)
    axes.axvspan(0, PAPER_KNEE, color="#f1f1f1", linewidth=0, zorder=0)
    axes.annotate(
        "paper:\nfast gain",
        (PAPER_KNEE / 2, 0.03),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=6.5,
        color="#555555",
    )
    axes.axhline(values.fedavg, color=PLANNER_COLOURS["fedavg"], linestyle=":", label="FedAvg", linewidth=1)
    axes.plot(
        values.compute, values.alternating, "--", color=PLANNER_COLOURS["alternating"], label="Algorithm 1"
    )
    axes.plot(values.compute, values.exact, color=PLANNER_COLOURS["exact"], label="optimum")
    axes.plot(values.knee, values.at(values.knee), "o", color=INK, markersize=4)
    seconds, line = values.at(values.knee), {"arrowstyle": "-", "color": QUIET, "linewidth": 0.7}
    told = f"knee: {values.knee:,.0f} GFLOPS,\n{seconds:.0f} s"
    note(axes, told, (values.knee, seconds), (14, -22), fontsize=6.5, arrowprops=line)
    axes.set(xlabel="server compute $F^{\\mathrm{max}}$ (GFLOPS)", ylabel="round latency (s)", xlim=(0, 9100))
    axes.set_ylim(0, 1.12 * values.fedavg)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.87))
    return figure


def reading(values: Sweep) -> str:
    """What to see."""
    stuck = (
        f" Up to {values.idle_below:,.0f} GFLOPS Algorithm 1 gains nothing: its equal first shares are too "
        f"small for anyone to split, and a client without a share never gets one again."
        if values.idle_below
        else ""
    )
    return (
        f"The optimum falls from {values.exact[0]:.0f} s to {values.at(PAPER_KNEE):.0f} s at 2,000 GFLOPS "
        f"and then only to {values.exact[-1]:.0f} s at 9,000. With {values.knee:,.0f} GFLOPS (the knee) 90 % "
        f"is saved of what any server could save.{stuck}"
    )


def claims(values: Sweep) -> list[Claim]:
    """What the paper says of the figure."""
    falling = all(b <= a * (1 + 1e-9) for a, b in pairwise(values.exact))
    sharing = all(b >= a for a, b in pairwise(values.sharing))
    return [
        Claim(
            claim="A larger server gains fast up to 2,000 GFLOPS and slowly after",
            paper="rapidly from 100 to 2,000 GFLOPS, slowly beyond",
            ours=f"{values.before:.1f} s for each 100 GFLOPS before, {values.after:.2f} s after; knee at "
            f"{values.knee:,.0f} GFLOPS",
            holds=values.before > FAST * values.after,
            why=f"At the optimum of the ten clients; the knee is where 90 % is saved of what any server "
            f"could, and {values.floor:.0f} s remain whatever the server.",
        ),
        Claim(
            claim="With a larger server the round gets shorter because more clients share it",
            paper="more and more clients share the server",
            ours=f"{values.sharing[0]} at 100 GFLOPS, {values.sharing[-1]} at 9,000 GFLOPS",
            holds=falling and sharing and values.sharing[-1] > values.sharing[0],
            why="At the optimum. Algorithm 1 as written gains nothing below "
            f"{values.idle_below + 100:,.0f} GFLOPS: cut L is absorbing.",
        ),
    ]


ITEM = Item(
    name="server",
    source="Fig. 11",
    title="What more server compute is worth",
    about="Round latency of the ten clients for a server of 100 to 9,000 GFLOPS.",
    basis=TEN_ARE,
    normal=Settings(),
    quick=Settings(step=445.0),
    full=Settings(step=25.0),
    run=run,
    draw=draw,
    reading=reading,
    claims=claims,
    expected=(
        Expected("exact.0", 850, 976.4),
        Expected("exact.-1", 355, 375),
        Expected("knee", 1500, 2500),
        Expected("before", 20, 35),
        Expected("after", 0.3, 2),
    ),
)
