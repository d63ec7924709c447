"""Where splitting stops paying: docs/figures/when.png and the table of docs/start/when.md.

One client with a server to itself, planned exactly for every pair of its compute and its link: as much as
splitting can ever save it. Clients that share the server save less.
"""

import re
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm

import cutwater
from cutwater.base.arrays import Floats
from cutwater.plan.latency import whole_model_latency

DOCS = Path(__file__).parents[1] / "docs"
MODELS = {
    "cnn": ("small CNN, 28×28", "1x28x28"),
    "resnet18": ("ResNet-18, 32×32", "3x32x32"),
    "efficientnet_v2_m": ("EfficientNetV2-M, 28×28", "1x28x28"),
}
SERVER = cutwater.Server(3e12)
SESSION = cutwater.Session(epochs=20, batch_size=32)
SAMPLES = 1000
COMPUTE: Floats = np.geomspace(1e9, 10e12, 33)
RATE: Floats = np.geomspace(0.1e6, 1e9, 33)
"""Bits per second."""
SLOWEST = 0.01e6
"""Where this pays, any link does: nothing but bits counts there, on either side."""
PAYS = 1.1
"""A plan that is faster by less than a tenth is not worth a server."""
DEVICES = (1e9, 10e9, 100e9, 1e12)


def gain(profile: cutwater.Profile, compute: float, rate: float) -> float:
    """FedAvg's latency over the optimum's."""
    client = cutwater.Client(name="c", compute=float(compute), rate=float(rate), samples=SAMPLES)
    problem = cutwater.Problem(profile, [client], SERVER, SESSION)
    return float(whole_model_latency(problem)[0] / cutwater.solve(problem).latency)


def slowest_link(profile: cutwater.Profile, compute: float) -> str:
    """The least rate at which splitting pays for a device of this compute, to two digits."""
    rates = [float(f"{rate:.2g}") for rate in np.geomspace(SLOWEST, 10e9, 300)]
    if gain(profile, compute, SLOWEST) >= PAYS:
        return "any"
    return next((f"{rate / 1e6:g} Mbit/s" for rate in rates if gain(profile, compute, rate) >= PAYS), "never")


def draw(profiles: dict[str, cutwater.Profile]) -> None:
    """One panel for each model."""
    figure, panels = plt.subplots(1, len(profiles), figsize=(9, 3.1), sharey=True, layout="constrained")
    levels = [1, PAYS, 1.5, 2, 4, 8, 16, 32]
    for panel, (name, profile) in zip(panels, profiles.items(), strict=True):
        gains = np.array([[gain(profile, compute, rate) for compute in COMPUTE] for rate in RATE])
        shades = panel.contourf(
            COMPUTE / 1e9,
            RATE / 1e6,
            gains,
            levels=levels,
            cmap="YlGnBu",
            norm=LogNorm(0.8, 40),
            extend="max",
        )
        panel.contour(COMPUTE / 1e9, RATE / 1e6, gains, levels=[PAYS], colors="black", linewidths=1.2)
        panel.set(xscale="log", yscale="log", title=MODELS[name][0], xlabel="device, GFLOPS")
    panels[0].set_ylabel("link, Mbit/s")
    bar = figure.colorbar(shades, ax=panels, ticks=levels[1:], format="%g×")
    bar.set_label("FedAvg's time ÷ the optimum's")
    figure.savefig(DOCS / "figures" / "when.png", dpi=160)


def table(profiles: dict[str, cutwater.Profile]) -> str:
    """The slowest link that pays, by model and device."""
    heads = [f"{compute / 1e9:,.0f} GFLOPS" for compute in DEVICES]
    lines = [f"| model | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, profile in profiles.items():
        cells = [slowest_link(profile, compute) for compute in DEVICES]
        lines.append(f"| {MODELS[name][0]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def refreshed(page: str, made: str) -> str:
    """The page with its table made anew."""
    return re.sub(r"(<!-- where it pays -->\n).*?(<!-- end -->)", rf"\g<1>{made}\2", page, flags=re.DOTALL)


def main() -> None:
    """Make figure and table anew."""
    profiles = {name: cutwater.profile_model(name, input=shape) for name, (_, shape) in MODELS.items()}
    draw(profiles)
    page = DOCS / "start" / "when.md"
    made = table(profiles)
    page.write_text(refreshed(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
