"""Which words are names? A token classifier of Hugging Face, from data to report; see tokens.toml."""

import torch
from torch import nn

WORDS, NAMES = 50, range(40, 50)


def sentences(count: int = 360, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """(train, test): sentences of 5 to 9 words; a word is a name (1) if it is one and no 7 precedes it."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        length = int(torch.randint(5, 10, (1,), generator=random))
        ids = torch.randint(1, WORDS, (length,), generator=random).tolist()
        tags = [int(word in NAMES and (place == 0 or ids[place - 1] != 7)) for place, word in enumerate(ids)]
        made.append({"input_ids": ids, "attention_mask": [1] * length, "labels": tags})
    return made[count // 5 :], made[: count // 5]


def tagger() -> nn.Module:
    """A small BERT, which computes the loss of its tags itself."""
    from transformers import BertConfig, BertForTokenClassification

    return BertForTokenClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            num_labels=2,
        )
    )


class F1:
    """Of the words that are names; padding, whose label is -100, is none."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.both = self.either = 0

    def update(self, output, labels: torch.Tensor) -> None:
        said, real = output.logits.argmax(-1) == 1, labels == 1
        said = said & (labels >= 0)
        self.both += int((said & real).sum())
        self.either += int(said.sum() + real.sum())

    def compute(self) -> float:
        return 2 * self.both / max(self.either, 1)
