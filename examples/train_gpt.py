"""Trains a small character-level GPT on the text of Python's own documentation (pydoc_data.topics).

    python examples/train_gpt.py                 # on device "tpu", beside the same model on plain CPU PyTorch
    python examples/train_gpt.py --device cpu    # plain PyTorch alone

The first steps run on both devices, from the same weights and over the same batches: they are timed in turn, and
their losses are compared. Then training goes on alone, and ends with a generated sample and a table.
"""

import argparse
import copy
import pydoc_data.topics
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm import tqdm


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.3)
        nn.init.normal_(self.head.weight, std=0.02)  # so that training begins with near-equal probabilities

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.positions(positions))
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Text:
    """The corpus as tokens, and random batches of it. The same seed gives the same batches."""

    def __init__(self, seed):
        text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
        self.characters = sorted(set(text))
        index = {character: i for i, character in enumerate(self.characters)}
        self.data = torch.tensor([index[character] for character in text])
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size, length):
        starts = torch.randint(len(self.data) - length - 1, (size, 1), generator=self.generator)
        window = self.data[starts + torch.arange(length + 1)]
        return window[:, :-1], window[:, 1:]

    def decode(self, tokens):
        return "".join(self.characters[token] for token in tokens)


class Trainer:
    """A model on a device with its optimizer. A step ends when the device is done with it."""

    def __init__(self, model, device, options):
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=options.lr, total_steps=options.steps + 1, pct_start=0.1, cycle_momentum=False
        )
        self.losses, self.seconds, self.compiles = [], [], []

    def step(self, tokens, targets):
        compiled = compile_count(self.device)
        start = time.perf_counter()
        loss = self.model(tokens.to(self.device), targets.to(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.item())
        if torch.device(self.device).type != "cpu":
            torch.accelerator.synchronize()  # the loss is known before the weights are updated
        self.seconds.append(time.perf_counter() - start)
        self.compiles.append(compile_count(self.device) - compiled)
        return self.losses[-1]


def compile_count(device):
    return torch.tpu.compile_count() if torch.device(device).type == "tpu" else 0


@torch.no_grad()
def generate(model, prompt, count):
    """`count` tokens after `prompt`, a row of as many tokens as the model reads: its shape never changes."""
    model.eval()
    window, generated = prompt, []
    for _ in range(count):
        probabilities = F.softmax(model(window)[:, -1] / 0.7, dim=-1)
        token = torch.multinomial(probabilities, 1)
        generated.append(token)
        window = torch.cat((window[:, 1:], token), dim=1)
    return torch.cat(generated, dim=1)[0].tolist()


def train(options):
    torch.manual_seed(options.seed)
    text = Text(options.seed)
    model = GPT(len(text.characters), options.length, options.layers, options.width, options.heads, options.dropout)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(text.data)} characters, {len(text.characters)} of them distinct; {parameters / 1e6:.2f} M parameters")

    compared = [Trainer(copy.deepcopy(model), "cpu", options)] if options.compare else []
    trainer = Trainer(model, options.device, options)
    with tqdm(range(options.steps), unit="step", mininterval=0.5) as bar:
        for step in bar:
            batch = text.batch(options.batch, options.length)
            loss = trainer.step(*batch)
            if step < options.compare_steps:
                for other in compared:
                    other.step(*batch)
            if step % 10 == 0:
                bar.set_postfix(loss=f"{loss:.3f}")
    prompt = text.batch(1, options.length)[0].to(options.device)
    sample = text.decode(generate(trainer.model, prompt, options.sample))
    return trainer, compared, sample


def report(options, trainer, compared, sample):
    """Prints what happened. True if everything is as it should be."""
    print(f"\n--- sample ---\n{sample}\n--------------\n")
    last = statistics.fmean(trainer.losses[-20:])
    print(f"loss {trainer.losses[0]:.3f} -> {last:.3f} (mean of the last {len(trainer.losses[-20:])} steps)")

    print(f"\n{'device':<8} {'step, median':>14} {'tokens/s':>10} {'first step':>12}")
    for run in (trainer, *compared):
        # Both over the same steps, in which they took turns; the first one compiles.
        seconds = run.seconds[1 : options.compare_steps] if compared else run.seconds[1:]
        median = statistics.median(seconds or run.seconds)
        rate = options.batch * options.length / median
        print(f"{run.device:<8} {median * 1e3:>11.1f} ms {rate:>10.0f} {run.seconds[0]:>10.2f} s")
    alone = trainer.seconds[options.compare_steps :]
    if compared and alone:
        print(f"{trainer.device} alone: {statistics.median(alone) * 1e3:.1f} ms a step")

    good = True
    if torch.device(trainer.device).type == "tpu":
        later = sum(trainer.compiles[1:])
        print(f"\npeak memory {torch.tpu.max_memory_allocated() / 2**20:.1f} MiB")
        print(f"compiles: {trainer.compiles[0]} in the first step, {later} in the {len(trainer.compiles) - 1} after it")
        if torch.tpu.fallback_ops():
            print(f"ran on the CPU: {torch.tpu.fallback_ops()}")
        good &= later == 0
    for other in compared:
        difference = max(abs(a - b) / b for a, b in zip(trainer.losses, other.losses))
        print(f"first {len(other.losses)} losses differ from {other.device}'s by {difference:.1e} at most (relative)")
        good &= options.dropout > 0 or difference < 1e-4
    return good and (options.target is None or last < options.target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, help="train on plain CPU PyTorch too")
    parser.add_argument("--compare-steps", type=int, default=20, metavar="N", help="how many steps of it")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=32, help="characters in a row")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=300, help="characters to generate")
    parser.add_argument("--target", type=float, help="fail unless the loss falls below this")
    options = parser.parse_args()
    if options.compare is None:
        options.compare = options.device != "cpu"
    good = report(options, *train(options))
    sys.exit(0 if good else "\nnot as it should be: see above")


if __name__ == "__main__":
    main()
