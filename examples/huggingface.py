"""A script as a Hugging Face user writes it: dict samples of different lengths, a model from its config.

AdamW with warm-up by step, gradients clipped at 1.0, bf16, a metric. Three phones and a server train it.

python examples/huggingface.py
"""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

import cutwater

WORDS = 60


def sentences(count: int, seed: int) -> list[dict]:
    """Sentences of 6 to 12 tokens; the label says whether token 7 comes before token 3."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        length = int(torch.randint(6, 13, (1,), generator=random))
        ids = torch.randint(8, WORDS, (length,), generator=random)
        first, second = torch.randperm(length, generator=random)[:2].tolist()
        ids[first], ids[second] = 7, 3
        made.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(first < second)})
    return made


def f1(output, labels: torch.Tensor) -> float:
    said = output.logits.argmax(-1)
    right = int(((said == 1) & (labels == 1)).sum())
    return 2 * right / max(int((said == 1).sum() + (labels == 1).sum()), 1)


def main(rounds: int = 6, samples: int = 300) -> cutwater.TrainedRun:
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=WORDS, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    study = cutwater.Study.of(
        DistilBertForSequenceClassification(config),
        cutwater.from_datasets(sentences(3 * samples, 0), sentences(200, 1), collate="pad", name="order"),
        [cutwater.Client(name=f"phone-{k}", compute=2e9 * k, rate=20e6, samples=samples) for k in (1, 2, 3)],
        cutwater.Server(50e9),
        cutwater.Session(epochs=1, batch_size=16, autocast="bf16"),
        train=cutwater.TrainSettings(
            rounds=rounds,
            optimizer="adamw",
            lr=3e-3,
            weight_decay=0.01,
            clip_norm=1.0,
            schedule="linear",
            schedule_by="step",
            warmup=10,
        ),
        metrics={"f1": f1},
    )

    def show(round_: cutwater.Round) -> None:
        record = round_.record
        print(f"round {record.round}: test loss {record.test_loss:.3f}, f1 {record.metrics['f1']:.2f}")

    return cutwater.run(study, callbacks=[show])


if __name__ == "__main__":
    main()
