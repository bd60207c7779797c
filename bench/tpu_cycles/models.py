"""Training steps whose programs are given to the TPU compiler: small models, each with AdamW."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    """Causal, with `groups` heads for keys and values; `rotary` turns queries and keys."""

    def __init__(self, width, heads, groups, bias, rotary=None):
        super().__init__()
        self.heads, self.groups, self.rotary, size = heads, groups, rotary, width // heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * groups * size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.key_value(x).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        if self.groups != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, heads, bias=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(GPTBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(positions))))


class Rotary(nn.Module):
    def __init__(self, size, length):
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(length), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, hidden, rotary):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, groups, bias=False, rotary=rotary)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads, groups, hidden):
        super().__init__()
        rotary = Rotary(width // heads, length)
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, groups, hidden, rotary) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


def resnet(classes, width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def language(model, batch, length, vocabulary):
    """A model of tokens, and its batch."""
    tokens = torch.zeros(batch, length, dtype=torch.int64)
    return model, tokens, tokens.clone()


def gpt(layers, width, heads, length, batch, vocabulary=96):
    return language(GPT(vocabulary, length, layers, width, heads), batch, length, vocabulary)


def llama(layers, width, heads, groups, hidden, length, batch, vocabulary=1024):
    return language(Llama(vocabulary, length, layers, width, heads, groups, hidden), batch, length, vocabulary)


def mlp():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    return model, torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)


def image(batch):
    return resnet(10, 16), torch.zeros(batch, 3, 16, 16), torch.zeros(batch, dtype=torch.int64)


# name: (what it is, function that makes model, input and target)
MODELS = {
    "mlp": ("two layers, width 16, batch 4", mlp),
    "gpt-s": ("GPT, 4 layers, width 64, 4 heads, sequence 32, batch 4", lambda: gpt(4, 64, 4, 32, 4)),
    "gpt-m": ("GPT, 6 layers, width 192, 6 heads, sequence 128, batch 16", lambda: gpt(6, 192, 6, 128, 16)),
    "llama": (
        "RMSNorm, RoPE, SwiGLU; 4 layers, width 256, 8 heads in 4 groups, hidden 688, sequence 128, batch 8",
        lambda: llama(4, 256, 8, 4, 688, 128, 8),
    ),
    # Small, since the compiler takes seconds for each convolution and minutes for larger ones.
    "resnet": ("ResNet, 3 blocks, width 16, 16x16 images, batch 8", lambda: image(8)),
}
DEFAULT = ("gpt-s", "gpt-m", "llama", "resnet")


def training(name, device, mode="strict"):
    """A function that takes one training step."""
    torch.manual_seed(0)
    model, inputs, targets = (t.to(device) for t in MODELS[name][1]())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def loss_of(model, inputs, targets):
        return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    if mode == "step":
        whole = torch.tpu.compile_step(model, optimizer, loss_of)
        return lambda: whole(inputs, targets)
    run = torch.compile(loss_of) if mode == "compile" else loss_of

    def step():
        loss = run(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step
