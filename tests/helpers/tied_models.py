"""Small models whose first and last layers share weights, and others to cut in three."""

import itertools

import torch
from torch import nn

from cutwater.model.discover.layered import layered, of_chain

WORDS, LENGTH = 13, 6


class Embedded(nn.Module):
    """A language model in small: the weights of the first layer are those of the last."""

    def __init__(self, width=8, tied=True):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.first = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2))
        self.second = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.2))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, WORDS, bias=False)
        if tied:
            self.out.weight = self.words.weight

    def forward(self, tokens):
        value = self.words(tokens)
        value = value + self.first(value)
        return self.out(self.norm(value + self.second(value)))


def tied_chain(seed=0):
    """The same as a chain of layers: words, first, second, norm, out."""
    torch.manual_seed(seed)
    return of_chain(Embedded(), ["words", "first", "second", "norm", "out"])


def gpt2(layers=2, **changes):
    """GPT-2 in small, as transformers builds it: its embedding and its head are one tensor."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": layers, "n_embd": 8, "n_head": 2, "vocab_size": WORDS, "n_positions": 16}
    return GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, **changes))


def llama(layers=2):
    """Llama in small, with tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(
        num_hidden_layers=layers, vocab_size=WORDS, tie_word_embeddings=True, use_cache=False, **sizes
    )
    return LlamaForCausalLM(config)


def tokens(samples=2, seed=1):
    return torch.randint(WORDS, (samples, LENGTH), generator=torch.Generator().manual_seed(seed))


def language_loss(output, labels):
    """Cross-entropy of every word."""
    logits = output.logits if hasattr(output, "logits") else output
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def taken_apart(model):
    return layered(model, tokens())


def pairs(model):
    """Every pair of cuts that a model in layers allows."""
    found = itertools.combinations(range(1, len(model)), 2)
    return [pair for pair in found if not any(shared.torn_by(*pair) for shared in model.shared)]
