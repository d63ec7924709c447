"""Transformers for images (ViT, Dosovitskiy et al. 2021) and for token sequences, both as classifiers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.model.zoo.inputs import InputSpec, image_shape, sequence_length
from cutwater.model.zoo.parts import TransformerBlock, block, init_transformer, model_of

VOCABULARY = 8192
"""Token ids of `text_transformer` unless told otherwise."""


def vit_tiny(
    input: InputSpec,
    classes: int,
    *,
    patch: int | None = None,
    width: int = 192,
    depth: int = 12,
    heads: int = 3,
    dropout: float = 0.0,
    stochastic_depth: float = 0.1,
) -> nn.Sequential:
    """Patches to tokens, ``depth`` blocks, classifier on the class token: depth + 2 layers.

    Without ``patch`` it is 16 for large images and a seventh of a small one's shorter side.
    """
    channels, height, breadth = image_shape("vit_tiny", input)
    side = patch if patch is not None else max(1, min(16, min(height, breadth) // 7))
    if side < 1:
        raise ModelError(f"patch is {side}, but must be at least 1")
    embed = PatchEmbedding(channels, (height, breadth), side, width, dropout)
    blocks = _blocks(depth, width, heads, 4 * width, dropout, stochastic_depth, eps=1e-6)
    head = _head(width, classes, ClassToken(), eps=1e-6)
    model = model_of([("embed", embed), *blocks, ("head", head)])
    init_transformer(model)
    return model


def text_transformer(
    input: InputSpec,
    classes: int,
    *,
    vocabulary: int = VOCABULARY,
    width: int = 256,
    depth: int = 4,
    heads: int = 4,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> nn.Sequential:
    """Tokens and positions to vectors, ``depth`` blocks, classifier on their mean: depth + 2 layers."""
    length = sequence_length("text_transformer", input)
    if vocabulary < 1:
        raise ModelError(f"vocabulary is {vocabulary}, but must be at least 1")
    embed = TokenEmbedding(vocabulary, length, width, dropout)
    blocks = _blocks(depth, width, heads, hidden or 4 * width, dropout, 0.0, eps=1e-5)
    model = model_of([("embed", embed), *blocks, ("head", _head(width, classes, TokenMean(), eps=1e-5))])
    init_transformer(model)
    return model


def _blocks(
    depth: int, width: int, heads: int, hidden: int, dropout: float, stochastic_depth: float, eps: float
) -> list[tuple[str, nn.Module]]:
    if depth < 1:
        raise ModelError(f"depth is {depth}, but a transformer needs at least one block")
    steps = max(depth - 1, 1)
    return [
        (
            f"block_{index + 1}",
            TransformerBlock(
                width,
                heads,
                hidden,
                dropout=dropout,
                stochastic_depth=stochastic_depth * index / steps,
                eps=eps,
            ),
        )
        for index in range(depth)
    ]


def _head(width: int, classes: int, pool: nn.Module, eps: float) -> nn.Sequential:
    return block(
        [("norm", nn.LayerNorm(width, eps)), ("pool", pool), ("classifier", nn.Linear(width, classes))]
    )


class PatchEmbedding(nn.Module):
    """Cuts an image into patches, makes each a token, puts the class token first and adds positions."""

    def __init__(self, channels: int, image: tuple[int, int], patch: int, width: int, dropout: float) -> None:
        super().__init__()
        height, breadth = image
        # An image that patches don't tile is filled up with zeros at the lower and right edge.
        self.margin = (0, -breadth % patch, 0, -height % patch)
        tokens = -(-height // patch) * -(-breadth // patch)
        self.project = nn.Conv2d(channels, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, tokens + 1, width))
        self.dropout = nn.Dropout(dropout)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Images to tokens."""
        if any(self.margin):
            x = F.pad(x, self.margin)
        tokens = self.project(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(x.shape[0], -1, -1)
        out: Tensor = self.dropout(torch.cat([first, tokens], dim=1) + self.position)
        return out


class TokenEmbedding(nn.Module):
    """A vector for each token id plus one for its position."""

    def __init__(self, vocabulary: int, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.empty(1, length, width))
        self.dropout = nn.Dropout(dropout)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Token ids to vectors; shorter sequences use the first positions."""
        out: Tensor = self.dropout(self.token(x) + self.position[:, : x.shape[1]])
        return out


class ClassToken(nn.Module):
    """The first token, which gathers what the image shows."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector for each sample."""
        return x[:, 0]


class TokenMean(nn.Module):
    """The mean over the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """One vector for each sample."""
        return x.mean(dim=1)
