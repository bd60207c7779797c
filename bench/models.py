"""The models that are trained and decoded. Plain PyTorch; nothing here knows the device."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def written_attention(q, k, v, causal):
    """scaled_dot_product_attention in single operators, for the peer, which can't run PyTorch's own on XLA:CPU."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        length = q.shape[-2]
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v


def attention(q, k, v, causal, written):
    return written_attention(q, k, v, causal) if written else F.scaled_dot_product_attention(q, k, v, is_causal=causal)


# ---- an MLP ----
def mlp(width=256, inputs=64, classes=10):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


# ---- a GPT ----
class GPTBlock(nn.Module):
    def __init__(self, width, heads, written):
        super().__init__()
        self.heads, self.written = heads, written
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = attention(q, k, v, True, self.written)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads, written=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads, written) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.3)
        nn.init.normal_(self.positions.weight, std=0.3)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---- a ResNet-18 for small images ----
class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks, inputs = [], width
        for stage in range(4):
            for i in range(2):
                blocks.append(BasicBlock(inputs, width << stage, 2 if stage and not i else 1))
                inputs = width << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


# ---- a Llama, which is a Qwen3 where queries and keys are normalised ----
def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class LlamaBlock(nn.Module):
    """With a cache it decodes: `x` is one token, and `position` where it stands."""

    def __init__(self, width, heads, kv_heads, hidden, cache=0, qk_norm=False, written=False):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.written = heads, kv_heads, width // heads, written
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q_norm, self.k_norm = (nn.RMSNorm(self.size) if qk_norm else nn.Identity() for _ in range(2))
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        if cache:
            self.register_buffer("keys", torch.zeros(1, kv_heads, cache, self.size))
            self.register_buffer("values", torch.zeros(1, kv_heads, cache, self.size))

    def forward(self, x, cos, sin, position=None, mask=None):
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q_norm(self.q(h).view(batch, length, self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(h).view(batch, length, 2 * self.kv_heads, self.size).transpose(1, 2).chunk(2, dim=1)
        q, k = rotate(q, cos, sin), rotate(self.k_norm(k), cos, sin)
        if position is not None:
            self.keys.index_copy_(2, position, k)
            self.values.index_copy_(2, position, v)
            k, v = self.keys, self.values
        group = self.heads // self.kv_heads
        y = self.attend(q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1), mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def attend(self, q, k, v, mask):
        if mask is None:
            return attention(q, k, v, True, self.written)
        if self.written:
            scores = (q @ k.transpose(-2, -1) * self.size**-0.5).masked_fill(~mask, float("-inf"))
            return scores.softmax(-1) @ v
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Llama(nn.Module):
    def __init__(
        self, vocabulary, layers, width, heads, kv_heads, length, hidden=None, cache=0, qk_norm=False, written=False
    ):
        super().__init__()
        hidden = hidden or 2 * width
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            LlamaBlock(width, heads, kv_heads, hidden, cache, qk_norm, written) for _ in range(layers)
        )
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = (torch.arange(length)[:, None] * frequency).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        length = tokens.shape[1]
        x, cos, sin = self.tokens(tokens), self.cos[:length], self.sin[:length]
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def qwen3(**options):
    return Llama(qk_norm=True, **options)


class Decoder(Llama):
    """Over a static cache."""

    def __init__(self, vocabulary=512, layers=4, width=256, heads=8, kv_heads=2, cache=256, **options):
        super().__init__(vocabulary, layers, width, heads, kv_heads, cache, cache=cache, **options)
        self.register_buffer("places", torch.arange(cache))

    def forward(self, token, position):
        """Logits after `token` (int64[1]), which stands at `position` (int64[1])."""
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        mask = (self.places <= position).view(1, 1, 1, -1)
        x = self.tokens(token).view(1, 1, -1)
        for block in self.blocks:
            x = block(x, cos, sin, position, mask)
        return self.head(self.norm(x)).view(-1)


# ---- a UNet ----
class UNetBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, outputs), nn.GroupNorm(4, outputs)
        self.short = nn.Conv2d(inputs, outputs, 1)
        self.time = nn.Linear(16, outputs)

    def forward(self, x, time):
        y = F.silu(self.norm1(self.conv1(x))) + self.time(time)[:, :, None, None]
        return self.short(x) + F.silu(self.norm2(self.conv2(y)))


class UNet(nn.Module):
    """Of images and the time of each, as in diffusion: pooled on the way down, transposed convolution on the way up."""

    def __init__(self, channels=3, width=8, levels=2):
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.stem, self.head = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, channels, 1)
        self.down = nn.ModuleList(UNetBlock(widths[max(0, i - 1)], widths[i]) for i in range(levels))
        self.middle = UNetBlock(widths[levels - 1], widths[levels])
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in reversed(range(levels))
        )
        self.up = nn.ModuleList(UNetBlock(2 * widths[i], widths[i]) for i in reversed(range(levels)))
        self.register_buffer("rates", 100.0 ** -(torch.arange(8) / 8))

    def forward(self, images, times):
        angles = times[:, None] * self.rates
        time = torch.cat((angles.sin(), angles.cos()), dim=-1)
        x, kept = self.stem(images), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x, time)
        for widen, block in zip(self.widen, self.up):
            x = block(torch.cat((widen(x), kept.pop()), dim=1), time)
        return self.head(x)


# ---- a DLRM ----
class DLRM(nn.Module):
    """Bags of categories beside dense features, and the products of all their pairs."""

    def __init__(self, rows=(50, 30, 20), dense=6, width=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, width, mode="sum") for n in rows)
        self.bottom = nn.Sequential(nn.Linear(dense, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        vectors = len(rows) + 1
        self.top = nn.Sequential(nn.Linear(width + vectors * (vectors - 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))
        pairs = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1])

    def forward(self, dense, categories):
        """`categories`: for each table int64[batch, size of a bag], or (int64[all], offsets int64[batch])."""
        x = self.bottom(dense)
        found = [bag(*c) if isinstance(c, tuple) else bag(c) for bag, c in zip(self.bags, categories)]
        vectors = torch.stack((x, *found), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat((x, products.index_select(1, self.pairs)), dim=1)).squeeze(1)


# ---- an LSTM ----
class LSTM(nn.Module):
    def __init__(self, vocabulary, width, layers=2, **options):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True, **options)
        self.head = nn.Linear(width * (1 + self.recurrent.bidirectional), vocabulary)

    def forward(self, tokens):
        return self.head(self.recurrent(self.tokens(tokens))[0])


# ---- a mixture of experts ----
class Experts(nn.Module):
    """Each token goes to its best experts, as far as those have room: all sizes are known beforehand."""

    def __init__(self, width, hidden, experts, best, room=1.5):
        super().__init__()
        self.best, self.room = best, room
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x):
        shape, x = x.shape, x.flatten(0, -2)
        experts, count = self.up.shape[0], x.shape[0]
        capacity = int(self.room * count * self.best / experts)
        gates, chosen = self.router(x).float().softmax(-1).topk(self.best)
        gates = (gates / gates.sum(-1, keepdim=True)).to(x.dtype)
        # The place of each in its expert's queue; who comes too late has the one place that is thrown away.
        one_hot = F.one_hot(chosen.flatten(), experts)
        queue = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        place = torch.where(queue < capacity, chosen.flatten() * capacity + queue, experts * capacity)
        sent = x.repeat_interleave(self.best, dim=0)
        room = x.new_zeros(experts * capacity + 1, x.shape[-1]).index_copy(0, place, sent)
        h = F.gelu(torch.bmm(room[:-1].view(experts, capacity, -1), self.up))
        y = torch.bmm(h, self.down).flatten(0, 1)
        y = torch.cat((y, y.new_zeros(1, y.shape[-1])))[place].view(count, self.best, -1)
        return (y * gates.unsqueeze(-1)).sum(1).view(shape)


class MixtureBlock(nn.Module):
    def __init__(self, width, heads, hidden, experts, best):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(width, hidden, experts, best)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = attention(q, k, v, True, False)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.experts(self.norm2(x))


class Mixture(nn.Module):
    """A language model whose blocks have experts."""

    def __init__(self, vocabulary, layers, width, heads, hidden, experts=4, best=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(MixtureBlock(width, heads, hidden, experts, best) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
