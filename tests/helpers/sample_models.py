"""Models as users write them: nothing in here knows of cuts."""

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or width != out:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Stem of single modules, stages in nn.Sequential, functional operations at the end, in-place ReLU."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Residual(8, 8), Residual(8, 8))
        self.layer2 = nn.Sequential(Residual(8, 12, 2), Residual(12, 12))
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        x = F.adaptive_avg_pool2d(x, 1)
        return self.fc(torch.flatten(x, 1))


class DenseLayer(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, growth, 3, padding=1)
        self.drop = nn.Dropout(0.2)

    def forward(self, features):
        return self.drop(self.conv(F.relu(self.norm(torch.cat(features, 1)))))


class DenseBlock(nn.ModuleDict):
    def __init__(self, count, width, growth):
        super().__init__()
        for index in range(count):
            self.add_module(f"denselayer{index + 1}", DenseLayer(width + index * growth, growth))

    def forward(self, first):
        features = [first]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """Every layer of a block takes what all layers before it made."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, 6, 3, padding=1),
                denseblock1=DenseBlock(3, 6, 4),
                transition1=nn.Sequential(nn.BatchNorm2d(18), nn.ReLU(inplace=True), nn.AvgPool2d(2)),
                denseblock2=DenseBlock(2, 18, 4),
                norm5=nn.BatchNorm2d(26),
            )
        )
        self.classifier = nn.Linear(26, 5)

    def forward(self, x):
        out = F.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(out, (1, 1)), 1))


class DoubleConv(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, padding=1)
        self.norm = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.norm(self.conv1(x)))))


class UNet(nn.Module):
    """Long skips, and an up-sampling that asks for sizes."""

    def __init__(self):
        super().__init__()
        self.stem = DoubleConv(3, 4)
        self.down = nn.ModuleList([DoubleConv(4, 6), DoubleConv(6, 8)])
        self.up = nn.ModuleList([DoubleConv(14, 6), DoubleConv(10, 4)])
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        skips = [self.stem(x)]
        for block in self.down:
            skips.append(block(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for block in self.up:
            skip = skips.pop()
            x = F.interpolate(x, size=skip.shape[2:], mode="nearest")
            x = block(torch.cat([x, skip], dim=1))
        return self.head(x)


class Feed(nn.Module):
    """A residual block with dropout."""

    def __init__(self, width=8, drop=0.3):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm(x)))))


class TiedLanguageModel(nn.Module):
    """Embedding and output share one matrix; two of the blocks share another."""

    def __init__(self, tie_output=True):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Feed(), Feed(), Feed(), Feed()])
        self.blocks[2].fc1.weight = self.blocks[1].fc1.weight
        self.norm = nn.LayerNorm(8)
        self.tie_output = tie_output

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return F.linear(x, self.embed.weight) if self.tie_output else x.mean(1)


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(batch, length, width)
        )
        return F.dropout(x, 0.2, self.training)


class MaskedEncoder(nn.Module):
    """Two inputs; the mask goes to every block."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.blocks = nn.ModuleList([Attention(), Attention(), Attention()])
        self.head = nn.Linear(8, 3)

    def forward(self, features, keep):
        x = self.embed(features)
        mask = keep[:, None, None, :].bool()
        for block in self.blocks:
            x = block(x, mask)
        return self.head((x * keep[..., None]).sum(1))


class Decoder(nn.Module):
    """A small GPT: positions from arange, a kept causal mask for every block, sizes checked on the way."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(13, 8)
        self.positions = nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Attention(), Attention(), Attention()])
        self.head = nn.Linear(8, 13)
        self.register_buffer("causal", torch.ones(32, 32, dtype=torch.bool).tril())

    def forward(self, tokens):
        _, length = tokens.shape
        if length > 32:
            raise ValueError(f"at most 32 tokens, but there are {length}")
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x, self.causal[:length, :length])
        return self.head(x)


class Noisy(nn.Module):
    """Functional dropout, noise in train mode only, and stochastic depth, all in the outermost forward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = F.dropout(torch.tanh(self.first(x)), 0.4, self.training)
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        x = self.second(x).relu_()
        branch = self.third(x)
        if self.training:
            keep = torch.empty(x.shape[0], 1, device=x.device).bernoulli_(0.7)
            branch = branch * keep / 0.7
        return self.last(x + branch)


class Mixing(nn.Module):
    """A block that mixes along tokens, so its result is a transposed view."""

    def __init__(self, tokens=16, width=6):
        super().__init__()
        self.norm = nn.BatchNorm1d(tokens)
        self.mix = nn.Linear(tokens, tokens)
        self.width = nn.Linear(width, width)

    def forward(self, x):
        return self.mix(self.width(self.norm(x)).transpose(1, 2)).transpose(1, 2)


class Permuting(nn.Module):
    """Tensors that lie otherwise in memory than their shape says, forward and backward."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 2, 2)
        self.norm = nn.BatchNorm2d(6)
        self.blocks = nn.ModuleList([Mixing(), Mixing()])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(self.patches(x)).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class DropPath(nn.Module):
    """Stochastic depth for each sample, decided within the block by a draw."""

    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Linear(width, width)

    def forward(self, x):
        if self.training and torch.rand(()) < 0.5:
            return x
        return x + torch.tanh(self.body(x))


class Deep(nn.Module):
    """Blocks that decide by the data, which is theirs alone."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([DropPath() for _ in range(4)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Deciding(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Feed(), Feed()])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
            if x.mean() > 0:  # decides here
                x = -x
        return self.head(x)


class Shifted(nn.Module):
    """Tokens written into a new tensor in several steps, as decoders shift their labels."""

    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Feed(), Feed()])
        self.target = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        shifted = torch.zeros_like(tokens)
        shifted[:, 1:] = tokens[:, :-1].clone()
        shifted[:, 0] = 3
        shifted.masked_fill_(shifted == 0, 1)
        x = self.source(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.target(shifted))


class Router(nn.Module):
    """Sends each token to one of several experts, and skips those that get none."""

    def __init__(self, width=8):
        super().__init__()
        self.gate = nn.Linear(width, 3)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, scores[rows, None] * expert(flat[rows]))
        return x + out.view_as(x)


class MixtureOfExperts(Decoder):
    """Blocks that decide by the data within glue that only export can follow."""

    def __init__(self):
        super().__init__()
        self.routers = nn.ModuleList([Router(), Router(), Router()])

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block, router in zip(self.blocks, self.routers, strict=True):
            x = router(block(x, self.causal[:length, :length]))
        return self.head(x)


class RoundStraight(torch.autograd.Function):
    """Rounds, and passes the gradient on doubled, which no traced operation would."""

    @staticmethod
    def forward(ctx, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Quantised(nn.Module):
    """An autograd function of its own, within blocks and between them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(2)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = RoundStraight.apply(block(x))
        return self.head(x)


class Frozen(nn.Module):
    """A part that runs without gradients."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.adapter = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():
            x = self.backbone(x)
            x = x / x.norm(dim=-1, keepdim=True).clamp_min(1e-3)
        return self.head(torch.relu(self.adapter(x)))


class Pair(nn.Module):
    """A block that takes and returns two tensors."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, pair):
        left, right = pair
        return right, left + torch.tanh(self.mix(right))


class Reversible(nn.Module):
    """Two streams throughout."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Pair(), Pair(), Pair()])
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.stem(x)
        pair = (x, x)
        for block in self.blocks:
            pair = block(pair)
        return self.head(torch.cat(pair, -1))


class TwoTowers(nn.Module):
    """Two inputs, each with layers of its own."""

    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))
        self.right = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8))
        self.merge = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, left, right):
        both = torch.cat([self.left(left), self.right(right)], -1)
        return self.head(torch.relu(self.merge(both)))


@dataclass
class Prediction:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class WithAuxiliary(nn.Module):
    """A second head that only train mode uses, and an output with fields."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 8)
        self.auxiliary = nn.Linear(8, 3)
        self.third = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        hidden = self.auxiliary(x) if self.training else None
        return Prediction(self.head(torch.relu(self.third(x))), hidden)


class Recurrent(nn.Module):
    """Modules of torch that return tuples."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, dropout=0.3, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        x, (hidden, _) = self.lstm(self.embed(tokens))
        x, _ = self.gru(x)
        return self.head(x[:, -1] + hidden[-1])


class TorchTransformer(nn.Module):
    """torch's own encoder, whose forward fx can't follow."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.embed = nn.Linear(5, 8)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, features):
        return self.head(self.encoder(self.embed(features)).mean(1))


class Counting(nn.Module):
    """Keeps what it saw: a buffer changed in forward, and attributes that no one registered."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Feed(), Feed()])
        self.head = nn.Linear(8, 3)
        self.scale = torch.tensor(2.0)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen.add_(1)
        x = self.stem(x) * self.scale
        self.last_stem = x
        for block in self.blocks:
            x = block(x)
        return self.head(x)
