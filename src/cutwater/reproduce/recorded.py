"""The committed curve of EfficientNetV2-M, and how it is made of a run folder.

A training of the paper's own model takes hours, so one is kept in ``recorded.json``: what `cutwater reproduce
accuracy --full` had in its run folder when it was recorded by

    python -m cutwater.reproduce.record DIR/runs/accuracy/efficientnet_v2_m-seed-1
"""

from dataclasses import dataclass
from pathlib import Path

from cutwater.base.jsonfile import check_document, read_json
from cutwater.reproduce.item import Claim

FORMAT = "cutwater.recorded"
VERSION = 1
HOME = Path(__file__).with_name("recorded.json")
CLAIMED = 0.9
"""The accuracy that the paper's curve approaches."""


@dataclass(frozen=True)
class Recorded:
    """One training of EfficientNetV2-M, as far as it went."""

    seed: int
    lr: float
    done: int
    """Rounds that were trained."""
    rounds: tuple[int, ...]
    """Rounds after which the model was tested."""
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    """Mean training loss of every round."""
    seconds: dict[str, tuple[float, ...]]
    weights_sha256: str
    wall_hours: float
    versions: dict[str, str]

    def is_whole(self, rounds: int) -> bool:
        """Whether as many rounds were trained as the paper has."""
        return self.done >= rounds

    def sentence(self, rounds: int) -> str:
        """What was run."""
        long = self.seconds["fedavg"][-1] / self.seconds["exact"][-1]
        return (
            f"Recorded: EfficientNetV2-M, seed {self.seed}, {self.done} of {rounds} rounds of 20 "
            f"mini-batches ({self.wall_hours:g} hours of a shared machine): test accuracy "
            f"{self.accuracy[-1]:.3f}, training loss from {self.loss[0]:.2f} down to {self.loss[-1]:.2f}. "
            f"FedAvg's clock shows {long:.1f} times "
            f"the optimal plan's, because moving the whole model takes FedAvg most of such a short session."
        )

    def claims(self, rounds: int) -> list[Claim]:
        """What the paper says of EfficientNetV2's accuracy."""
        reached = next((r for r, a in zip(self.rounds, self.accuracy, strict=True) if a >= CLAIMED), None)
        far = "" if self.is_whole(rounds) else f" {self.done} of {rounds} rounds are too few to tell."
        if reached is not None:
            far = (
                f" It is there after {reached} rounds already: residual blocks start as identities, without "
                "which SGD does not learn this model at all."
            )
        return [
            Claim(
                claim=f"EfficientNetV2 approaches 0.90 after {rounds} rounds",
                paper="0.90",
                ours=f"{self.accuracy[-1]:.3f} after {self.rounds[-1]} rounds (best "
                f"{max(self.accuracy):.3f})",
                holds=max(self.accuracy) >= CLAIMED,
                why=f"One recorded training (seed {self.seed}, SGD with a learning rate of {self.lr:g}, "
                f"which the paper does not give), as far as it was run.{far}",
            )
        ]


def recorded(path: Path = HOME) -> Recorded | None:
    """The committed curve, if there is one."""
    if not path.exists():
        return None
    body = check_document(read_json(path), FORMAT, VERSION, str(path))
    lists = {name: tuple(body[name]) for name in ("rounds", "accuracy", "loss")}
    seconds = {planner: tuple(times) for planner, times in body["seconds"].items()}
    return Recorded(**{**body, **lists, "seconds": seconds})
