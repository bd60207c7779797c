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


# ---- a Llama that decodes over a static cache ----
class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, cache, written):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.written = heads, kv_heads, width // heads, written
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, kv_heads, cache, self.size))
        self.register_buffer("values", torch.zeros(1, kv_heads, cache, self.size))

    def forward(self, x, position, cos, sin, mask):
        h = self.norm1(x)
        q = rotate(self.q(h).view(1, 1, self.heads, self.size).transpose(1, 2), cos, sin)
        k, v = self.kv(h).view(1, 1, 2 * self.kv_heads, self.size).transpose(1, 2).chunk(2, dim=1)
        self.keys.index_copy_(2, position, rotate(k, cos, sin))
        self.values.index_copy_(2, position, v)
        group = self.heads // self.kv_heads
        keys = self.keys.repeat_interleave(group, dim=1)
        values = self.values.repeat_interleave(group, dim=1)
        if self.written:
            scores = (q @ keys.transpose(-2, -1) * self.size**-0.5).masked_fill(~mask, float("-inf"))
            y = scores.softmax(-1) @ values
        else:
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(1, 1, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self, vocabulary=512, layers=4, width=256, heads=8, kv_heads=2, cache=256, written=False):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            LlamaBlock(width, heads, kv_heads, 2 * width, cache, written) for _ in range(layers)
        )
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        frequency = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = (torch.arange(cache)[:, None] * frequency).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("places", torch.arange(cache))

    def forward(self, token, position):
        """Logits after `token` (int64[1]), which stands at `position` (int64[1])."""
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        mask = (self.places <= position).view(1, 1, 1, -1)
        x = self.tokens(token).view(1, 1, -1)
        for block in self.blocks:
            x = block(x, position, cos, sin, mask)
        return self.head(self.norm(x)).view(-1)
