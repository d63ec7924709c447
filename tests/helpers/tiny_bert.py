"""A BERT of a few thousand weights and dict samples for it, as Hugging Face has them."""

import torch
from torch import nn

from cutwater import Client, Server, Session, Study, TrainSettings, from_datasets
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides

VOCABULARY = 40


def config(**options):
    from transformers import BertConfig

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return BertConfig(vocab_size=VOCABULARY, num_labels=3, max_position_embeddings=32, **{**sizes, **options})


def classifier(**options) -> nn.Module:
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification(config(**options))


def samples(count: int, *, seed: int = 0, tokens: bool = False, length: int | None = None) -> list[dict]:
    """Sentences of 4 to 8 tokens, or of ``length``; a label for each, or for each token."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        size = length or int(torch.randint(4, 9, (1,), generator=random))
        ids = torch.randint(1, VOCABULARY, (size,), generator=random).tolist()
        label = [one % 3 for one in ids] if tokens else sum(ids) % 3
        made.append({"text": "so", "input_ids": ids, "attention_mask": [1] * size, "labels": label})
    return made


def sentences():
    """(train, test), as a scenario's source."""
    return samples(24), samples(8, seed=1)


def study(model: nn.Module | None = None, data=None, *, train=None, session=None, **options) -> Study:
    """Two clients that train a BERT."""
    if model is None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = classifier()
    return Study.of(
        model,
        data or from_datasets(samples(24), samples(8, seed=1), collate="pad"),
        [Client(name=f"c{k}", compute=1e9, rate=1e6, samples=12) for k in range(2)],
        Server(1e10),
        session or Session(epochs=1, batch_size=6),
        train=train or TrainSettings(rounds=1, optimizer="adamw", lr=1e-2),
        **options,
    )


def trained_at(study: Study, cut: int, **how):
    """What a session of the first client leaves behind, cut there."""
    task = Task(client="c0", round=1, cut=cut, seed=7, lr=study.train.lr, samples=12, **how)
    return run_both_sides(study.job(), task, study.initial)


def hashes(study: Study, cuts=None, **how) -> list[str]:
    """Of the weights after a session at every cut, the whole model last."""
    found = cuts or [cut for cut in range(1, len(study.model) + 1) if cut not in study.model.ruled_out]
    return [weights_sha256(trained_at(study, cut, **how).state) for cut in found]
