"""Building blocks that several models of the zoo share."""

from collections import OrderedDict
from collections.abc import Iterable
from math import prod, sqrt

import torch.nn.functional as F
from torch import Tensor, nn

from cutwater.base.errors import ModelError


class Block(nn.Sequential):
    """Modules called one after the other that make one layer, or a part of one: never divided by a cut."""


def model_of(layers: Iterable[tuple[str, nn.Module]]) -> nn.Sequential:
    """A model: its children are the layers w(1)…w(L), by name."""
    return nn.Sequential(OrderedDict(layers))


def block(parts: Iterable[tuple[str, nn.Module]]) -> Block:
    """A block of named parts."""
    return Block(OrderedDict(parts))


def conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, number: str = ""
) -> list[tuple[str, nn.Module]]:
    """A convolution that loses no pixel but by its stride, and BatchNorm, which has its bias."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [(f"conv{number}", conv), (f"norm{number}", nn.BatchNorm2d(outputs))]


class StochasticDepth(nn.Module):
    """Drops a residual branch for some samples of a batch and scales the others up (Huang et al. 2016)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ModelError(f"stochastic depth is {probability}, but must be at least 0 and below 1")
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """The branch, with one draw for each sample."""
        if not self.training or self.probability == 0:
            return x
        survival = 1 - self.probability
        keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(survival)
        return x * keep.div_(survival)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"probability={self.probability}"


class Residual(nn.Module):
    """act(shortcut(x) + depth(branch(x))); the shortcut is the identity unless given."""

    def __init__(
        self,
        branch: nn.Module,
        shortcut: nn.Module | None = None,
        *,
        act: nn.Module | None = None,
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        self.branch = branch
        self.depth = StochasticDepth(stochastic_depth)
        self.shortcut = shortcut or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """One residual block."""
        total: Tensor = self.act(self.shortcut(x) + self.depth(self.branch(x)))
        return total


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017) with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width < 1 or heads < 1 or width % heads:
            raise ModelError(f"{heads} heads don't divide a width of {width}: choose a divisor of the width")
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention of each token to all others."""
        batch, tokens, width = x.shape
        joint = self.project_in(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each with normalisation first and a shortcut around it."""

    def __init__(
        self, width: int, heads: int, hidden: int, *, dropout: float, stochastic_depth: float, eps: float
    ) -> None:
        super().__init__()
        attention = block(
            [
                ("norm", nn.LayerNorm(width, eps)),
                ("attention", SelfAttention(width, heads)),
                ("dropout", nn.Dropout(dropout)),
            ]
        )
        feed_forward = block(
            [
                ("norm", nn.LayerNorm(width, eps)),
                ("widen", nn.Linear(width, hidden)),
                ("act", nn.GELU()),
                ("narrow", nn.Linear(hidden, width)),
                ("dropout", nn.Dropout(dropout)),
            ]
        )
        self.attention = Residual(attention, stochastic_depth=stochastic_depth)
        self.feed_forward = Residual(feed_forward, stochastic_depth=stochastic_depth)

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        out: Tensor = self.feed_forward(self.attention(x))
        return out


def halved(size: int, times: int = 1) -> int:
    """A length after so many steps of stride two that round up."""
    return -(-size // (1 << times))


def init_convolutions(model: nn.Module) -> None:
    """He et al. (2015) for convolutions, by the fan out.

    Of grouped ones each input reaches its own group alone. torch's own function counts all groups, by which
    depthwise weights start √groups times too small, while the steps of plain SGD do not shrink with them.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * prod(module.kernel_size) // module.groups
            nn.init.normal_(module.weight, 0.0, sqrt(2 / fan_out))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def init_transformer(model: nn.Module) -> None:
    """Truncated normal numbers of deviation 0.02 for all projections and embeddings."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
