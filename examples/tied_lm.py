"""A tied language model whose labels never leave the devices: GPT-2 in small, cut in three parts.

Its first and its last layer share their weights, as those of most language models do, so it can't be cut in
two. Head and tail stay on the device, where the shared weights live once; the server has blocks in between.

cutwater verify examples/tied_lm.toml --rounds 1
"""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

LETTERS, LENGTH = 29, 24


def gpt2(blocks: int = 2, width: int = 32) -> nn.Module:
    """GPT-2 from a configuration, with random weights; the embedding and the head are one tensor."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=LETTERS,
        n_positions=LENGTH,
        n_layer=blocks,
        n_embd=width,
        n_head=4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def verses(count: int = 240, seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Letters that follow a rule with slips, and those that come next: (train, test)."""
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(LETTERS, (count, 1), generator=random)
    stride = torch.randint(1, 4, (count, 1), generator=random)
    letters = (start + stride * torch.arange(LENGTH + 1)) % LETTERS
    slips = torch.rand(letters.shape, generator=random) < 0.02
    letters = torch.where(slips, torch.randint(LETTERS, letters.shape, generator=random), letters)
    words, labels, held = letters[:, :-1], letters[:, 1:].clone(), count // 6
    return TensorDataset(words[held:], labels[held:]), TensorDataset(words[:held], labels[:held])


def next_letter(output: object, labels: Tensor) -> Tensor:
    """Cross-entropy of every letter, given those before it."""
    logits: Tensor = output.logits  # type: ignore[attr-defined]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
