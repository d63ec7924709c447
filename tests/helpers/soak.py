"""Many rounds of many clients in this process; prints what is held every 25 rounds, for a test to look at.

python soak.py ROUNDS CLIENTS FOLDER SEED
"""

import gc
import json
import os
import sys
import threading
from pathlib import Path

import torch
from small_study import small_study
from torch import nn

from cutwater.execute import local
from cutwater.plan.fleet import Client
from cutwater.plan.session import Session


def main(rounds: int, clients: int, folder: str, seed: int) -> None:
    fleet = [
        Client(name=f"c{k}", compute=2e4 * (1 + k % 9), rate=4e4 * (1 + k % 3), samples=2)
        for k in range(clients)
    ]
    study = small_study(
        clients=fleet,
        session=Session(steps=1, batch_size=2),
        conditions={"dropout": 0.1},
        train={"rounds": rounds, "evaluate_every": 10, "lr": 1e-3, "keep_best": "accuracy", "seed": seed},
    )
    shape = tuple(next(iter(study.initial.values())).shape)
    lost = 0

    def look(round_) -> None:
        nonlocal lost
        lost += len(round_.record.lost)
        if round_.record.round % 25 == 0:
            told = [round_.record.round, *held(shape), lost]
            print(json.dumps(told), flush=True)

    local.run(study, folder, callbacks=[look])


def held(shape: tuple[int, ...]) -> list[int]:
    """Models by their first weight, descriptors, threads, and bytes of memory."""
    gc.collect()
    found = [each for each in gc.get_objects() if type(each) in (torch.Tensor, nn.Parameter)]
    models = {each.untyped_storage().data_ptr() for each in found if tuple(each.shape) == shape}
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return [
        len(models),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        pages * os.sysconf("SC_PAGE_SIZE"),
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
