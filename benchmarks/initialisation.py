"""What the zoo's initialisation of EfficientNetV2-M is worth to plain SGD, each part taken away in turn.

    CUTWATER_DATA=FOLDER_WITH_MNIST python benchmarks/initialisation.py [--steps 100] [--only NAME]

SGD at 0.05 without momentum on MNIST (28×28, one channel, mini-batches of 32), which is what a client of the
paper's Fig. 12 does, in one process and thread. For each start: the first loss, and the mean training loss of
the last 50 steps after 50 and after 100 steps. Chance is ln 10 = 2.30. It is evidence, with no limit to miss.
"""

import argparse
from collections.abc import Callable
from statistics import mean

import numpy as np
import torch
from torch import nn

from cutwater.data.batches import batches
from cutwater.model import zoo
from cutwater.model.zoo.parts import Residual
from cutwater.plan.session import Session
from cutwater.scenario.settings import DataSettings

LR, BATCH, EVERY = 0.05, 32, 50
CLASSES = 10
Change = Callable[[nn.Module], None]


def without_identities(model: nn.Module) -> None:
    """The last γ of every residual branch is 1, as torch makes it: blocks change their input at once."""
    for module in model.modules():
        if isinstance(module, Residual):
            last = [one for one in module.branch.modules() if isinstance(one, nn.BatchNorm2d)][-1]
            nn.init.ones_(last.weight)


def without_grouped_fan_out(model: nn.Module) -> None:
    """Grouped convolutions as torch's kaiming_normal_ has them: their fan-out counts all groups."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.groups > 1:
            nn.init.kaiming_normal_(module.weight, mode="fan_out")


def without_small_classifier(model: nn.Module) -> None:
    """The classifier with a deviation of 1/√classes, as torchvision's EfficientNet has it."""
    nn.init.normal_(model.get_submodule("head.classifier").weight, 0.0, CLASSES**-0.5)


STARTS: dict[str, tuple[Change, ...]] = {
    "the zoo's": (),
    "without identities": (without_identities,),
    "without grouped fan-out": (without_grouped_fan_out,),
    "without small classifier": (without_small_classifier,),
    "without all three": (without_identities, without_grouped_fan_out, without_small_classifier),
}


def losses(changes: tuple[Change, ...], steps: int, seed: int) -> list[float]:
    """Training loss of every step, from the zoo's start with these changes."""
    data = DataSettings(source="mnist").load()
    torch.manual_seed(seed)
    model = zoo.build("efficientnet_v2_m", data.input, CLASSES).train()
    for change in changes:
        change(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    everyone = np.arange(len(data.train))
    told = []
    session = Session(batch_size=BATCH, steps=steps)
    for indices in batches(everyone, session, seed=seed, round_=1, client="all"):
        inputs, labels = data.train.batch(indices)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(*inputs), labels)
        loss.backward()
        optimizer.step()
        told.append(loss.item())
    return told


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", choices=STARTS, help="this start alone")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(
        f"EfficientNetV2-M, MNIST, batch {BATCH}, SGD {LR:g}, seed {chosen.seed}: "
        f"mean loss of the last {EVERY} steps"
    )
    for name in [chosen.only] if chosen.only else STARTS:
        told = losses(STARTS[name], chosen.steps, chosen.seed)
        ends = range(EVERY, chosen.steps + 1, EVERY) or [chosen.steps]
        means = ", ".join(f"{mean(told[max(0, end - EVERY) : end]):.2f} after {end}" for end in ends)
        print(f"{name:25} first {told[0]:.2f}, {means}", flush=True)


if __name__ == "__main__":
    main()
