"""An executor of your own: it decides where sessions run, and by which clock a round is timed.

This one trains every session here, one after the other, and goes by the clock on this machine's wall: a round
takes what it really took. Selection, plans, aggregation, checkpoints and metrics are the loop's business, and
the weights are those of any other executor, bit for bit.

python examples/own_executor.py
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

import cutwater
from cutwater.extend import NOTHING, Arrival, Condition, LocalTrainer, Lost, Orders, Update, start, train

UNKNOWN = Condition(math.nan, math.nan, math.nan)
"""A session here says nothing of the client's own compute and rates."""


class OnThisWall:
    """Everybody's session on this machine, in turn."""

    def __init__(self, study: cutwater.Study) -> None:
        self.trainer = LocalTrainer(study.job(), study.test())
        self.began = self.ended = 0.0

    def absent(self, clients: Sequence[str]) -> Mapping[str, str]:
        """Who can't be asked, and why."""
        return {name: "it is on holiday" for name in clients if name == "phone-6"}

    def carry_out(self, orders: Orders) -> Iterator[Arrival]:
        """Train the tasks; whoever's turn comes after the deadline is lost."""
        self.began = time.monotonic()
        try:
            for task in orders.tasks:
                since = time.monotonic()
                if orders.deadline is not None and since - self.began > orders.deadline:
                    yield Lost(task.client, "its turn never came")
                    continue
                (result,) = self.trainer.sessions([task], orders.weights)
                yield Update(
                    task=task,
                    weights=result.state,
                    loss=result.loss,
                    bytes_up=result.bytes_up,
                    bytes_down=result.bytes_down,
                    took=replace(NOTHING, client_forward=time.monotonic() - since),
                    condition=UNKNOWN,
                )
        finally:
            self.ended = time.monotonic()

    def elapsed(self) -> float:
        """Seconds of the last round."""
        return self.ended - self.began

    def evaluate(self, weights):
        """Score the global model."""
        return self.trainer.evaluate(weights)

    def close(self) -> None:
        """End what was started."""
        self.trainer.close()


def study() -> cutwater.Study:
    """Six phones that learn the embedded digits."""
    torch.manual_seed(0)
    data = cutwater.DataSettings(source="digits").load()
    clients = [
        cutwater.Client(name=f"phone-{k}", compute=1e6 * 2**k, rate=2e6, samples=120) for k in range(1, 7)
    ]
    return cutwater.Study.of(
        cutwater.build("mlp", input=data.input, classes=data.classes),
        data,
        clients,
        cutwater.Server(200e6),
        cutwater.Session(epochs=1, batch_size=20),
        train=cutwater.TrainSettings(rounds=5, lr=0.1, seed=1),
        share_out=cutwater.DataSettings(partition="iid"),
    )


def main() -> None:
    subject = study()
    executor = OnThisWall(subject)

    def show(round_: cutwater.Round) -> None:
        record = round_.record
        print(
            f"round {record.round}: {record.accuracy:.0%}, {record.actual_seconds:.2f} s, lost {record.lost}"
        )

    try:
        train(subject, executor, start(subject), callbacks=[show])
    finally:
        executor.close()


if __name__ == "__main__":
    main()
