"""A training step of EfficientNetV2-M on 28×28 pixels against the same with torch's own convolutions.

    python benchmarks/small_images.py

Both in one thread and in turns, medians of their times. Exits with 1 if the limit is missed.
"""

import sys
import time
from statistics import median

import torch
from torch import nn

from cutwater.model import zoo
from cutwater.model.zoo.convolution import Convolution

LIMIT = 0.65
"""A step takes at most this part of what it takes with torch's own convolutions."""
PAIRS = 5


def step(model, x, y) -> float:
    start = time.perf_counter()
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = zoo.build("efficientnet_v2_m", "1x28x28", 10).train()
    x, y = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    ways = {"ours": Convolution.forward, "torch's": nn.Conv2d.forward}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(PAIRS + 1):
        for way, forward in ways.items():
            Convolution.forward = forward
            taken = step(model, x, y)
            if number:  # the first of each warms up
                times[way].append(taken)
    ours, torchs = (median(times[way]) for way in ways)
    good = ours <= LIMIT * torchs
    print(
        f"EfficientNetV2-M, 28x28, batch 32: a step takes {ours:.2f} s, with torch's own convolutions "
        f"{torchs:.2f} s: {ours / torchs:.2f} (limit {LIMIT}) {'ok' if good else 'MISSED'}"
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
